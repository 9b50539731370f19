"""Which definitions of a name may have given it the value that it has at one place.

Within a function the order of statements counts: what is surely overwritten before the place
is left out, and what comes after it counts only around a loop. Between functions anything
may have happened before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from whygrad.source.bindings import (
    COMPREHENSIONS,
    Definition,
    Names,
    Scope,
    first_part,
)

LOOPS = (ast.For, ast.AsyncFor, ast.While)
HEADED = (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)


@dataclass(frozen=True)
class Origins:
    """Where the value of a name comes from."""

    name: str
    definitions: tuple[Definition, ...] = ()
    parameter_of: Scope | None = None  # the name is, or belongs to, a parameter of this scope


def origins(names: Names, name: str, use: ast.AST) -> Origins:
    local = _comprehension_target(names, first_part(name), use)
    if local:
        return Origins(name, tuple(local))
    scope = names.scope_at(use)
    owner, name = names.owner(name, scope)
    root = first_part(name)
    related = [d for d in owner.definitions.get(root, ()) if _related(d.name, name)]
    place = _Place(names, use, scope)
    killer = place.last_overwriting([d for d in related if _covers(d.name, name)])
    reaching = [d for d in related if place.reached_by(d, killer, owner)]
    is_parameter = not owner.is_class and root in owner.parameters
    overwritten = killer is not None and _covers(killer.name, root)
    return Origins(name, tuple(reaching), owner if is_parameter and not overwritten else None)


def _related(defined: str, read: str) -> bool:
    """Writing `a.b` matters to one who reads `a`, `a.b` or `a.b.c`, but `self` is too much."""
    if defined == "self" or read == "self":
        return False
    return _covers(defined, read) or _covers(read, defined)


def _covers(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer + ".")


def _comprehension_target(names: Names, root: str, use: ast.AST) -> list[Definition]:
    """The loops of a comprehension around the place that bind the name."""
    child, parent = use, names.parents.get(use)
    evaluated_outside: ast.AST | None = None
    while parent is not None and not isinstance(parent, (ast.stmt, ast.Lambda)):
        if isinstance(parent, ast.comprehension) and child is parent.iter:
            evaluated_outside = parent
        elif isinstance(parent, COMPREHENSIONS) and not (
            child is evaluated_outside and child is parent.generators[0]
        ):
            bound = [d for d in names.of_comprehension[parent] if d.name == root]
            if bound:
                return bound
        child, parent = parent, names.parents.get(parent)
    return []


class _Place:
    """A node in a function's sequence of statements."""

    def __init__(self, names: Names, node: ast.AST, scope: Scope) -> None:
        self.names = names
        self.scope = scope
        self.around = list(_statements_around(names, node, scope.node))  # innermost first

    def last_overwriting(self, definitions: list[Definition]) -> Definition | None:
        """The last definition that surely ran before this place, making older ones void."""
        certain = [
            d
            for d in definitions
            if d.replaces and d.scope is self.scope and self._surely_follows(d.statement)
        ]
        return max(certain, key=lambda d: _start(d.statement), default=None)

    def _surely_follows(self, statement: ast.stmt) -> bool:
        if statement in self.around:
            inner = self.around[: self.around.index(statement)]
            return isinstance(statement, HEADED) and bool(inner) and inner[-1] in statement.body
        if isinstance(statement, LOOPS):  # it may not have run at all
            return False
        block, index = self.names.blocks[statement]
        return any(
            own_block == block and index < own_index
            for own_block, own_index in map(self.names.blocks.__getitem__, self.around)
        )

    def reached_by(self, definition: Definition, killer: Definition | None, owner: Scope) -> bool:
        if definition.scope is not self.scope:
            return killer is None or owner is self.scope
        if definition is killer:
            return True
        if self._follows(definition):
            return killer is None or _start(definition.statement) >= _start(killer.statement)
        if owner is not self.scope and killer is None:
            return True  # it outlives the call
        return any(
            isinstance(loop, LOOPS) and (killer is None or not self._inside(killer, loop))
            for loop in self.around
            if loop is not definition.statement and self._inside(definition, loop)
        )

    def _follows(self, definition: Definition) -> bool:
        here = self.around[0] if self.around else None
        if here is None or definition.statement is here:
            # Within one statement only what is bound on the way is there already.
            binders = [self.names.parents.get(value) for value in definition.values]
            return any(isinstance(b, (ast.NamedExpr, ast.withitem)) for b in binders)
        return _start(definition.statement) < _start(here)

    def _inside(self, definition: Definition, loop: ast.stmt) -> bool:
        statement = definition.statement
        return loop in _statements_around(self.names, statement, self.scope.node)


def _statements_around(names: Names, node: ast.AST, scope: ast.AST) -> Iterator[ast.stmt]:
    current: ast.AST | None = node
    while current is not None and current is not scope:
        if isinstance(current, ast.stmt):
            yield current
        current = names.parents.get(current)


def _start(statement: ast.stmt) -> tuple[int, int]:
    return statement.lineno, statement.col_offset
