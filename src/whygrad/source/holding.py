"""Since when a name may have held its value: read from the syntax around its use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

from whygrad.source.bindings import COLLECTORS
from whygrad.source.files import FunctionNode, SourceFile, load
from whygrad.source.spans import Span
from whygrad.source.tree import function_at, node_span, statement_at
from whygrad.source.uses import is_parameter, values_in

# state: kept in an attribute, a global or a closure, and set outside of a constructor
# loop: a variable that the loop around the use sets after the use, for the next iteration
# before: set once, before the loop or in a constructor
# handed: an argument, as it came in
# fresh: computed in this very run of the lines
Holding = Literal["state", "loop", "before", "handed", "fresh"]

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_CONSTRUCTORS = {"__init__", "__post_init__"}
_MAX_HOPS = 3


def holding_of(span: Span, name: str, hops: int = _MAX_HOPS) -> Holding:
    """Where the value of a name that is read at a span may come from."""
    source, statement = load(span.file), statement_at(span)
    if statement is None or source.tree is None:
        return "fresh"
    if "." in name:
        return _of_attribute(source, name)
    drawn_from = _drawn_from(source, span, name)
    if drawn_from is not None:
        return _oldest(source, drawn_from, hops)
    function = function_at(span)
    scope: ast.AST = source.tree if function is None else function
    if any(isinstance(n, (ast.Global, ast.Nonlocal)) and name in n.names for n in ast.walk(scope)):
        return "state"
    set_at = [node for node in _stores(scope, name) if _is_set_in(source, node, function)]
    if not set_at:
        if is_parameter(span, name):
            return "handed"
        return "state" if any(_stores(source.tree, name)) else "before"
    around = [n for n in _around(source, statement) if isinstance(n, _LOOPS)]
    loops = [n for n in around if _function(source, n) is function]
    for loop in loops:
        inside = [node for node in set_at if loop in _around(source, node)]
        if any(node.lineno < statement.lineno for node in inside):
            set_at = inside
            break
        if inside or any(loop in _around(source, node) for node in _filled(source, name)):
            return "loop"
    else:
        if loops:
            return "before"
    earlier = [node for node in set_at if node.lineno < statement.lineno]
    if not earlier and is_parameter(span, name):
        return "handed"
    return _of_variable(source, earlier, hops)


def is_generator(span: Span) -> bool:
    """Whether the function around a span lives on between its values."""
    function = function_at(span)
    return function is not None and any(
        isinstance(node, (ast.Yield, ast.YieldFrom))
        and _function(load(span.file), node) is function
        for node in ast.walk(function)
    )


def _of_variable(source: SourceFile, set_at: list[ast.Name], hops: int) -> Holding:
    """A variable that was set just before is as old as what it was set from."""
    for node in reversed(set_at):
        statement = next((n for n in _around(source, node) if isinstance(n, ast.stmt)), None)
        value: ast.expr | None = None
        match statement:
            case ast.Assign(value=value) | ast.For(iter=value):
                pass
        found = _oldest(source, value, hops) if value is not None else "fresh"
        if found != "fresh":
            return found
    return "fresh"


def _oldest(source: SourceFile, value: ast.expr, hops: int) -> Holding:
    """State, or set by a loop, if anything that an expression reads is."""
    span = node_span(source, value)
    names = values_in(value, span.file) if hops else []
    found = {holding_of(span, name, hops - 1) for name in names}
    return "state" if "state" in found else "loop" if "loop" in found else "fresh"


def _drawn_from(source: SourceFile, span: Span, name: str) -> ast.expr | None:
    """For a variable of a comprehension around a span: what it goes through."""
    for node in reversed(source.chain(span.extent)):
        for generator in getattr(node, "generators", ()):
            if any(_stores(generator.target, name)):
                found: ast.expr = generator.iter
                return found
    return None


def _of_attribute(source: SourceFile, name: str) -> Holding:
    """An attribute is state if something other than a constructor sets or fills it."""
    setters = list(_setters(source, name))
    inside = {getattr(_function(source, node), "name", "") for node in setters}
    if setters and not inside <= _CONSTRUCTORS:
        return "state"
    return "before" if setters or name.partition(".")[0] not in ("self", "cls") else "fresh"


def kept_at(span: Span, name: str, hops: int = _MAX_HOPS) -> Span | None:
    """The one statement, outside of constructors, that puts a value where a name reads it.

    For attributes and variables from outside the function, also if a variable of its own was set
    from one of them.
    """
    source = load(span.file)
    if "." not in name and hops and (values := _values_set(source, span, name)) is not None:
        found = {
            (node_span(source, value), used)
            for value in values
            for used in values_in(value, span.file)
            if holding_of(node_span(source, value), used) == "state"
        }
        return kept_at(*found.pop(), hops - 1) if len(found) == 1 else None
    statements = {
        statement
        for node in _setters(source, name)
        if getattr(_function(source, node), "name", "") not in _CONSTRUCTORS
        and (statement := next((n for n in _around(source, node) if isinstance(n, ast.stmt)), None))
        and not _sets_nothing(statement)
    }
    return node_span(source, statements.pop()) if len(statements) == 1 else None


def _values_set(source: SourceFile, span: Span, name: str) -> list[ast.expr] | None:
    """What the function around a span sets a variable of its own from; None if it is not its own.

    The variable of a comprehension, or of a loop, comes from what that goes through.
    """
    drawn_from = _drawn_from(source, span, name)
    if drawn_from is not None:
        return [drawn_from]
    function = function_at(span)
    if function is None or any(
        isinstance(n, (ast.Global, ast.Nonlocal)) and name in n.names for n in ast.walk(function)
    ):
        return None
    set_at = [node for node in _stores(function, name) if _is_set_in(source, node, function)]
    values: list[ast.expr] = []
    for node in set_at:
        match next((n for n in _around(source, node) if isinstance(n, ast.stmt)), None):
            case ast.Assign(value=value) | ast.For(iter=value):
                values.append(value)
    return values if set_at else None


def _sets_nothing(statement: ast.stmt) -> bool:
    """`self.memory = None` and its like, which only clear."""
    match statement:
        case ast.Assign(value=value) | ast.AnnAssign(value=value):
            parts = getattr(value, "elts", getattr(value, "keys", None))
            return value is None or isinstance(value, ast.Constant) or parts == []
        case ast.Delete():
            return True
    return False


def _setters(source: SourceFile, name: str) -> Iterator[ast.AST]:
    """Where something of this name is set, or something is put into it."""
    yield from (node for node in _named(source, name) if isinstance(node.ctx, ast.Store))
    yield from _filled(source, name)


def _named(source: SourceFile, name: str) -> Iterator[ast.Name | ast.Attribute]:
    """Every place with this name, or with an attribute of this name."""
    last = name.rpartition(".")[2]
    for node in ast.walk(source.tree) if source.tree is not None else ():
        if "." in name:
            if isinstance(node, ast.Attribute) and node.attr == last:
                yield node
        elif isinstance(node, ast.Name) and node.id == last:
            yield node


def _filled(source: SourceFile, name: str) -> Iterator[ast.AST]:
    """Where something is put into what has this name."""
    for node in _named(source, name):
        if isinstance(node.ctx, ast.Store):
            continue
        part: ast.AST = node
        around = source.parents.get(node)
        while isinstance(around, ast.Subscript) and around.value is part:
            if isinstance(around.ctx, ast.Store):
                yield around
            part = around
            around = source.parents.get(around)
        if isinstance(around, ast.Attribute) and around.attr in COLLECTORS:
            yield around


def _stores(scope: ast.AST, name: str) -> Iterator[ast.Name]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            yield node


def _is_set_in(source: SourceFile, node: ast.AST, function: ast.AST | None) -> bool:
    inside = next(
        (n for n in _around(source, node) if isinstance(n, (FunctionNode, ast.comprehension))), None
    )
    return inside is function


def _around(source: SourceFile, node: ast.AST) -> Iterator[ast.AST]:
    """What a node lies in, the innermost first."""
    parents = source.parents
    current = parents.get(node)
    while current is not None:
        yield current
        current = parents.get(current)


def _function(source: SourceFile, node: ast.AST) -> ast.AST | None:
    return next((n for n in _around(source, node) if isinstance(n, FunctionNode)), None)
