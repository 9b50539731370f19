"""Who handed a value over: from the line that uses an object to the call that made it."""

from __future__ import annotations

import ast

from whygrad.source.bindings import Names, base_name, dotted_name, names_of
from whygrad.source.files import load
from whygrad.source.reaching import origins
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, node_span

_MOST_STEPS = 6


def making_call(span: Span) -> Span | None:
    """The call that made what is called at a span, or whose method is.

    `nn.CrossEntropyLoss(weight=w)` for `self.criterion(x, y)`, `mp.Process(...)` for `p.start()`.
    None where there is none in the file, or more than one.
    """
    source, call = load(span.file), expression_at(span)
    names = names_of(source)
    if names is None or not isinstance(call, ast.Call):
        return None
    made = _makers(names, call.func, _MOST_STEPS)
    if not made and isinstance(call.func, ast.Attribute):
        made = _makers(names, call.func.value, _MOST_STEPS)
    return node_span(source, made.pop()) if len(made) == 1 else None


def _makers(names: Names, node: ast.expr, steps: int) -> set[ast.Call]:
    """The calls whose results an expression may be, or may be one of."""
    match node:
        case ast.Call():
            return {node}
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return {made for part in parts for made in _makers(names, part, steps)}
        case ast.ListComp(elt=part):
            return _makers(names, part, steps)
        case ast.Name() | ast.Attribute() | ast.Subscript() if steps:
            name = base_name(node) or dotted_name(node)
            if name is None:
                return set()
            found = origins(names, name, node).definitions
            values = [value for definition in found for value in definition.values]
            return {made for value in values for made in _makers(names, value, steps - 1)}
    return set()


def argument(span: Span, keyword: str) -> Span | None:
    """Where a call at a span is given an argument by this name."""
    source, call = load(span.file), expression_at(span)
    if not isinstance(call, ast.Call):
        return None
    return next((node_span(source, k.value) for k in call.keywords if k.arg == keyword), None)
