"""Static backward slices: from which pieces of a file may the values at a place come?"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from whygrad.source.bindings import Names, Scope, first_part, names_of
from whygrad.source.calls import bound_arguments
from whygrad.source.files import SourceFile, load
from whygrad.source.reaching import origins
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, is_method_call, statement_at
from whygrad.source.values import reads

MAX_REGIONS = 2000


@dataclass(frozen=True)
class Region:
    """A piece of source from which values flow; `function` is empty at module level."""

    file: str
    function: str
    line: int
    column: int
    end_line: int
    end_column: int

    def contains(self, span: Span) -> bool:
        return (
            self.file == span.file
            and (self.line, self.column) <= (span.line, span.column)
            and (span.end_line, span.end_column) <= (self.end_line, self.end_column)
        )


@dataclass(frozen=True)
class Slice:
    """What flows into a place, from near to far."""

    regions: tuple[Region, ...]
    parameters: frozenset[str]  # of the function around it: go on at its caller
    names: frozenset[str]  # every variable that carries the value


def slice_back(span: Span, *, arguments_of_call: bool = True) -> Slice | None:
    """What flows into the expression at a span; into its arguments if it is a call."""
    source = load(span.file)
    names = names_of(source)
    if names is None:
        return None
    node: ast.AST | None = expression_at(span)
    if node is None:
        node = statement_at(span)
    match node:
        case ast.Call(func=func, args=arguments, keywords=keywords) if arguments_of_call:
            pieces = [*arguments, *(k.value for k in keywords)]
            if isinstance(func, ast.Attribute) and is_method_call(source, node):
                pieces.append(func.value)
            return _slice(source, names, node, reads(node), pieces)
        case ast.expr():
            return _slice(source, names, node, reads(node), [node])
        case ast.AugAssign(target=target, value=value):
            return _slice(source, names, node, reads(target, value), [node])
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return _slice(source, names, node, reads(value), [value])
        case ast.Return(value=ast.expr() as value) | ast.Expr(value=value):
            return _slice(source, names, node, reads(value), [value])
    return None


def call_arguments_slice(
    call_span: Span, parameter_names: Iterable[str], callee: tuple[str, int] | None = None
) -> Slice | None:
    """What flows, at a call, into the arguments bound to these parameters of the callee.

    `callee` is the file and first line of its code. Where it is unknown, or is not what the
    expression calls (a decorator or a library stands in between), all arguments count.
    """
    source = load(call_span.file)
    names = names_of(source)
    node = expression_at(call_span)
    if names is None or not isinstance(node, ast.Call):
        return slice_back(call_span)
    arguments = bound_arguments(names, node, frozenset(parameter_names), callee)
    if arguments is None:
        return slice_back(call_span)
    return _slice(source, names, node, reads(*arguments), arguments)


def _slice(
    source: SourceFile,
    names: Names,
    place: ast.AST,
    first: Iterable[tuple[str, ast.AST]],
    pieces: Iterable[ast.AST],
) -> Slice:
    home = names.scope_at(place)
    regions = {piece: _region(source, piece, home) for piece in pieces}
    parameters: set[str] = set()
    carriers: set[str] = set()
    waiting = deque(first)
    seen: set[object] = set()
    while waiting and len(regions) < MAX_REGIONS:
        name, use = waiting.popleft()
        if use in seen:
            continue
        seen.add(use)
        found = origins(names, name, use)
        if found.name.startswith("self."):
            carriers.add(found.name)
        if found.parameter_of is not None:
            carriers.add(first_part(found.name))
        if found.parameter_of is home:
            parameters.add(first_part(found.name))
        for definition in found.definitions:
            carriers.add(definition.name)
            if definition not in seen:
                seen.add(definition)
                for piece in definition.pieces:
                    regions[piece] = _region(source, piece, definition.scope)
                waiting += reads(*definition.values)
    return Slice(tuple(regions.values()), frozenset(parameters), frozenset(carriers))


def _region(source: SourceFile, node: ast.AST, scope: Scope) -> Region:
    return Region(source.name, scope.qualified_name, *source.extent(node))
