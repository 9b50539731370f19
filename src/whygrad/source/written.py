"""Where the value of an argument was written down: back through names and through callers."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from whygrad.source.bindings import Names, dotted_name, first_part, names_of
from whygrad.source.calls import bound_arguments
from whygrad.source.files import load
from whygrad.source.reaching import origins
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, node_span

_MAX_HOPS = 8


@dataclass(frozen=True, slots=True)
class Written:
    """An expression, and the call of the stack in whose function it stands."""

    node: ast.expr
    span: Span
    depth: int


def argument(call: ast.Call, index: int, keyword: str) -> ast.expr | None:
    """What a call is given for a parameter; None if that cannot be told, or it is not given."""
    named = [k.value for k in call.keywords if k.arg == keyword]
    if named:
        return named[0]
    plain = call.args[: index + 1]
    if len(plain) <= index or any(isinstance(part, ast.Starred) for part in plain):
        return None
    return plain[index]


def argument_written(spans: Sequence[Span], index: int, keyword: str) -> Written | None:
    """The expression from which the innermost of these calls gets an argument.

    A name is followed to the one statement that sets it, a parameter to the caller.
    """
    call = expression_at(spans[0]) if spans else None
    found = argument(call, index, keyword) if isinstance(call, ast.Call) else None
    if found is None:
        return None
    written = Written(found, node_span(load(spans[0].file), found), 0)
    for _ in range(_MAX_HOPS):
        earlier = _earlier(written, spans)
        if earlier is None:
            break
        written = earlier
    return written


def origin_of(node: ast.expr, file: str) -> ast.expr:
    """The expression that a name was set to, as far as one statement did it; else the name."""
    for _ in range(_MAX_HOPS):
        value = _set_to(node, file)
        if value is None:
            break
        node = value
    return node


def _set_to(node: ast.expr, file: str) -> ast.expr | None:
    names, name = names_of(load(file)), dotted_name(node)
    if names is None or name is None:
        return None
    found = origins(names, name, node)
    set_by = [d for d in found.definitions if d.replaces]
    if found.parameter_of is not None or len(set_by) != 1 or len(set_by[0].values) != 1:
        return None
    return set_by[0].values[0]


def _earlier(written: Written, spans: Sequence[Span]) -> Written | None:
    """One hop back, where there is just one that it can be."""
    names = names_of(load(written.span.file))
    name = dotted_name(written.node)
    if names is None or name is None:
        return None
    found = origins(names, name, written.node)
    if found.parameter_of is not None and not found.definitions:
        return _handed(found.name, spans, written.depth)
    value = _set_to(written.node, written.span.file)
    if value is None:
        return None
    return Written(value, node_span(load(written.span.file), value), written.depth)


def _handed(name: str, spans: Sequence[Span], depth: int) -> Written | None:
    """What the caller gives for a parameter."""
    if "." in name or depth + 1 >= len(spans):
        return None
    callee, caller = spans[depth], spans[depth + 1]
    names, call = names_of(load(caller.file)), expression_at(caller)
    if names is None or not isinstance(call, ast.Call):
        return None
    given = _given(names, call, name, (callee.file, callee.first_line))
    if given is None:
        return None
    return Written(given, node_span(load(caller.file), given), depth + 1)


def _given(names: Names, call: ast.Call, name: str, callee: tuple[str, int]) -> ast.expr | None:
    given = bound_arguments(names, call, frozenset([first_part(name)]), callee)
    return given[0] if given is not None and len(given) == 1 else None
