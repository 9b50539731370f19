"""Whether a changed value matters elsewhere: read again, or shared under another name."""

from __future__ import annotations

import ast

from whygrad.source.bindings import Definition, Names, dotted_name
from whygrad.source.files import byte_extent
from whygrad.source.inplace_names import VIEW_ATTRIBUTES, VIEW_METHODS
from whygrad.source.reaching import LOOPS, Origins, origins


def can_be_rebound(names: Names, name: str | None, place: ast.AST) -> bool:
    """Whether `name = …` at a place would change what the name means from there on."""
    root, *attributes = (name or "").split(".")
    if attributes:
        return VIEW_ATTRIBUTES.isdisjoint(attributes)
    scope = names.scope_at(place)
    local = {*scope.bound, *scope.parameters, *scope.in_module, *scope.outside}
    return bool(root) and (scope is names.module or root in local)


def read_again(names: Names, read: ast.expr, within: ast.AST) -> bool:
    """Whether what a name holds at `read` is read by that name, outside `within`, later on."""
    name = dotted_name(read)
    if name is None:
        return False
    identity, here = names.owner(name, names.scope_at(read)), origins(names, name, read)
    inside = set(ast.walk(within))
    return any(
        _same_value(here, origins(names, written, use))
        and _may_follow(names, use, within, here, read)
        for use in ast.walk(names.module.node)
        if isinstance(use, (ast.Name, ast.Attribute)) and isinstance(use.ctx, ast.Load)
        if use not in inside and (written := dotted_name(use))
        if names.owner(written, names.scope_at(use)) == identity
    )


def is_shared(names: Names, read: ast.expr, within: ast.AST) -> bool:
    """Whether a name stands for (part of) something that is read again under its own name."""
    scope = names.scope_at(read)
    return any(
        read_again(names, base, within)
        for definition in _definitions(names, read)
        if definition.scope is scope and definition.replaces
        for value in definition.values
        if (base := viewed(value)) is not None
    )


def is_loop_variable(names: Names, read: ast.expr) -> bool:
    """Whether a name may hold an element of something that a loop goes through."""
    return any(isinstance(d.statement, LOOPS) for d in _definitions(names, read))


def is_parameter(names: Names, read: ast.expr) -> bool:
    """Whether a name was given an `nn.Parameter(…)`, or is called as layers call theirs."""
    values = [value for d in _definitions(names, read) for value in d.values]
    makers = [dotted_name(value.func) for value in values if isinstance(value, ast.Call)]
    named_so = (dotted_name(read) or "").endswith((".weight", ".bias"))
    return named_so or any((maker or "").endswith("Parameter") for maker in makers)


def viewed(node: ast.expr) -> ast.expr | None:
    """The name or attribute with which an expression may share its memory."""
    match node:
        case ast.Attribute(value=value, attr=attr) if attr in VIEW_ATTRIBUTES:
            return viewed(value)
        case ast.Name() | ast.Attribute():
            return node if dotted_name(node) else None
        case ast.Subscript(slice=ast.Constant(value=str())):
            return None  # an entry of a dictionary is a thing of its own
        case ast.Subscript(value=value):
            return viewed(value)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=attr), args=[value, *_]):
            return viewed(value) if attr in VIEW_METHODS or attr.endswith("_") else None
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            return viewed(value) if attr in VIEW_METHODS or attr.endswith("_") else None
    return None


def _definitions(names: Names, read: ast.expr) -> tuple[Definition, ...]:
    name = dotted_name(read)
    return origins(names, name, read).definitions if name else ()


def _same_value(one: Origins, other: Origins) -> bool:
    made, also = _replacing(one), _replacing(other)
    unknown = one.parameter_of is None and (made or also)
    return bool(made & also) or (one.parameter_of is other.parameter_of and not unknown)


def _replacing(value: Origins) -> set[Definition]:
    return {definition for definition in value.definitions if definition.replaces}


def _may_follow(names: Names, use: ast.AST, node: ast.AST, value: Origins, read: ast.AST) -> bool:
    """Whether a use of a value may be evaluated after a node, or together with it."""
    if names.scope_at(use) is not names.scope_at(node):
        return True
    here, there = statements_around(names, node), statements_around(names, use)
    if here[:1] == there[:1]:
        return use is not read
    if here and isinstance(here[0], ast.Return):
        return False
    around = (s for s in here if s in there and isinstance(s, LOOPS))
    return _start(use) > _start(node) or any(outlives(names, value, loop) for loop in around)


def outlives(names: Names, value: Origins, loop: ast.stmt) -> bool:
    """Whether a value may be older than the loop's present iteration."""
    made = [statements_around(names, d.statement) for d in _replacing(value)]
    return value.parameter_of is not None or not made or any(loop not in m for m in made)


def statements_around(names: Names, node: ast.AST) -> list[ast.stmt]:
    """The statements of the same function that a node lies in, innermost first."""
    scope, current, found = names.scope_at(node).node, node, []
    while current is not scope:
        if isinstance(current, ast.stmt):
            found.append(current)
        current = names.parents[current]
    return found


def _start(node: ast.AST) -> tuple[int, int]:
    return byte_extent(node)[:2]
