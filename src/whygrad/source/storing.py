"""Statements that add something to what a container or a running sum already holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from whygrad.source.bindings import COLLECTORS, Names, dotted_name, pairs
from whygrad.source.reaching import origins
from whygrad.source.reuse import statements_around
from whygrad.source.rewriting import same_syntax

Kind = Literal["append", "item", "sum"]

LISTS = (ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.GeneratorExp)
ADDING = (ast.Add, ast.Sub, ast.BitOr)
JOINING = {"cat", "concat", "concatenate", "stack", "hstack", "vstack"}
KEYED = {"insert", "setdefault"}  # the first argument only says where
MAX_ALIASES = 4
LOOKUPS = {"get", "setdefault", "values", "items"}


@dataclass(frozen=True)
class Storing:
    statement: ast.stmt
    container: ast.expr  # a name or an attribute
    values: tuple[ast.expr, ...]
    kind: Kind


def storings(statement: ast.stmt) -> Iterator[Storing]:
    """What one statement, without the blocks inside it, stores where."""
    match statement:
        case ast.Expr():
            yield from _collected(statement)
        case ast.AugAssign(target=target, op=op, value=value) if isinstance(op, ADDING):
            yield from _added(statement, target, [value])
        case ast.Assign(targets=targets, value=value):
            for whole in targets:
                yield from _assigned(statement, whole, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield from _assigned(statement, target, value)


def called(statement: ast.stmt) -> ast.Call | None:
    """The call that a statement consists of."""
    match statement:
        case (
            ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call))
        ):
            return call
    return None


def holder(node: ast.expr) -> ast.expr | None:
    """The name or attribute that holds a place: `self.log` for `self.log["a"][0]`."""
    while dotted_name(node) is None:
        match node:
            case ast.Subscript(value=value) | ast.Attribute(value=value):
                node = value
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in LOOKUPS:
                node = value
            case _:
                return None
    return node


def is_kept(names: Names, storing: Storing, loop: ast.stmt | None) -> bool:
    """Whether what is stored is still there in the loop's next iteration.

    Without a loop the question is whether it is there after the call of the function.
    """
    container, is_local = storing.container, _is_local(names, storing.container)
    rebinds = isinstance(container, ast.Name) and isinstance(container.ctx, ast.Store)
    extends = isinstance(storing.statement, ast.AugAssign) and storing.kind == "append"
    if loop is None and is_local and rebinds and not extends:
        return False
    return _is_older(names, container, loop, storing.statement, MAX_ALIASES)


def _is_local(names: Names, read: ast.expr) -> bool:
    scope = names.scope_at(read)
    return scope is not names.module and names.owner(dotted_name(read) or "", scope)[0] is scope


def _is_older(
    names: Names, read: ast.expr, loop: ast.stmt | None, store: ast.stmt, aliases: int
) -> bool:
    """Whether what a name holds was there before the loop's iteration, or before the call."""
    if loop is None and not _is_local(names, read):
        return True
    found = origins(names, dotted_name(read) or "", read)
    made = [d for d in found.definitions if d.replaces and d.statement is not store]
    if found.parameter_of is not None or not made:
        return True
    if loop is not None and any(loop not in statements_around(names, d.statement) for d in made):
        return True
    others = (holder(v) for d in made if d.statement is not loop for v in d.values)
    return aliases > 0 and any(
        other is not None and _is_older(names, other, loop, store, aliases - 1) for other in others
    )


def _collected(statement: ast.stmt) -> Iterator[Storing]:
    match called(statement):
        case ast.Call(func=ast.Attribute(value=place, attr=attr), args=given, keywords=keywords):
            container = holder(place)
            values = [*given, *(k.value for k in keywords)][attr in KEYED :]
            if attr in COLLECTORS and container is not None and values:
                yield Storing(statement, container, tuple(values), "append")


def _assigned(statement: ast.stmt, target: ast.expr, value: ast.expr) -> Iterator[Storing]:
    for place, part in pairs(target, value):
        addends = _addends(part, place) or _joined(part, place)
        container = holder(place)
        if addends:
            yield from _added(statement, place, addends)
        elif isinstance(place, ast.Subscript) and container is not None:
            yield Storing(statement, container, (part,), "item")


def _added(statement: ast.stmt, target: ast.expr, addends: list[ast.expr]) -> Iterator[Storing]:
    container = holder(target)
    if container is None:
        return
    kind: Kind = "sum"
    if all(isinstance(addend, LISTS) for addend in addends):
        kind = "append"
    elif all(isinstance(addend, ast.Dict) for addend in addends):
        kind = "item"
    values = [value for addend in addends for value in getattr(addend, "elts", [addend])]
    yield Storing(statement, container, tuple(values), kind)


def _addends(value: ast.expr, target: ast.expr) -> list[ast.expr] | None:
    """What an expression adds to a target's old value; None if it does not read that."""
    if same_syntax(value, target):
        return []
    if not isinstance(value, ast.BinOp):
        return None
    for side, other in ((value.left, value.right), (value.right, value.left)):
        found = _addends(side, target)
        if found is not None:
            return [*found, other] if isinstance(value.op, ADDING) else found
    return None


def _joined(value: ast.expr, target: ast.expr) -> list[ast.expr] | None:
    """The list that `torch.cat` and its like join with a target's old value."""
    match value:
        case ast.Call(func=ast.Attribute(attr=attr), args=[ast.List() | ast.Tuple() as parts, *_]):
            others = [part for part in parts.elts if not same_syntax(part, target)]
            if attr in JOINING and len(others) < len(parts.elts):
                return [ast.List(others)]
    return None
