"""Where the value of an argument comes from: through names, attributes and callers."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from whygrad.source.bindings import dotted_name, names_of
from whygrad.source.calls import bound_arguments
from whygrad.source.files import load
from whygrad.source.reaching import origins
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, node_span

_MOST_STEPS = 8


def argument_at(span: Span, index: int, keyword: str) -> ast.expr | None:
    """An argument of the call at a span, by position or by name."""
    call = expression_at(span)
    if not isinstance(call, ast.Call):
        return None
    named = [k.value for k in call.keywords if k.arg == keyword]
    return named[0] if named else call.args[index] if index < len(call.args) else None


def defined_at(spans: Sequence[Span], index: int, keyword: str) -> Span | None:
    """The expression that gave an argument of the innermost call its value.

    None where there is no name to follow, or where it leads to more than one place.
    """
    given = argument_at(spans[0], index, keyword) if spans else None
    if given is None or dotted_name(given) is None:
        return None
    return _followed(given, spans, _MOST_STEPS)


def _followed(node: ast.expr, spans: Sequence[Span], steps: int) -> Span | None:
    """What a name stands for, in the function of the first of some calls."""
    source, name = load(spans[0].file), dotted_name(node)
    names = names_of(source)
    if name is None or names is None:
        return node_span(source, node)
    if not steps:
        return None
    found = origins(names, name, node)
    values = [value for definition in found.definitions for value in definition.values]
    if found.parameter_of is not None:
        handed = _handed_over(spans, name) if not values else None
        return None if handed is None else _followed(handed, spans[1:], steps - 1)
    if len(found.definitions) != 1 or len(values) != 1:
        return None
    return _followed(values[0], spans, steps - 1)


def _handed_over(spans: Sequence[Span], name: str) -> ast.expr | None:
    """The expression by which a caller gave a parameter its value."""
    if len(spans) < 2:
        return None
    names, call = names_of(load(spans[1].file)), expression_at(spans[1])
    if names is None or not isinstance(call, ast.Call):
        return None
    function = spans[0].file, spans[0].first_line
    found = bound_arguments(names, call, frozenset([name]), function)
    return found[0] if found and len(found) == 1 else None
