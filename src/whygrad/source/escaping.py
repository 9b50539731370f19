"""Where a function keeps a value that outlives it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.source.bindings import COLLECTORS, Names, names_of, pairs
from whygrad.source.files import FunctionNode, SourceFile, load
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, function_at, node_span

_MAX_NAMES = 4


def stored_at(span: Span) -> Span | None:
    """The statement that stores what is computed at a span where others can get at it."""
    source, node, function = load(span.file), expression_at(span), function_at(span)
    names = names_of(source)
    if names is None or node is None or function is None:
        return None
    return _stored(source, names, node, function, _MAX_NAMES)


def _stored(
    source: SourceFile, names: Names, value: ast.expr, function: FunctionNode, hops: int
) -> Span | None:
    """Behind a plain name, what happens to that name."""
    statement: ast.AST | None = value
    while statement is not None and not isinstance(statement, ast.stmt):
        around = source.parents.get(statement)
        if isinstance(around, ast.Call) and _collects(around) and statement in around.args:
            return node_span(source, around)
        statement = around
    local: list[str] = []
    for target in _targets(statement):
        if not isinstance(target, ast.Name):
            return node_span(source, statement or target)
        scope = names.scope_at(target)
        if target.id in scope.in_module | scope.outside:
            return node_span(source, statement) if statement is not None else None
        local.append(target.id)
    for name in local if hops else ():
        for use in _uses(function, name, value):
            found = _stored(source, names, use, function, hops - 1)
            if found is not None:
                return found
    return None


def _collects(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in COLLECTORS


def _targets(statement: ast.AST | None) -> list[ast.expr]:
    match statement:
        case ast.Assign(targets=targets, value=value):
            return [place for target in targets for place, _ in pairs(target, value)]
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return [target]
    return []


def _uses(function: FunctionNode, name: str, after: ast.expr) -> Iterator[ast.expr]:
    """Where a name is read as a whole, below an expression."""
    names = (n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name)
    return (n for n in names if isinstance(n.ctx, ast.Load) and n.lineno >= after.lineno)
