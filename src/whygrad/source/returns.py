"""Whether a value leaves the function that computes it."""

from __future__ import annotations

import ast

from whygrad.source.bindings import pairs
from whygrad.source.spans import Span
from whygrad.source.tree import assigned_names, expression_at, function_at, statement_at, text_of


def is_given_back(span: Span) -> bool:
    """Whether a function returns what is computed at a place, alone or in a tuple."""
    statement = statement_at(span)
    if isinstance(statement, ast.Return):
        return any(part is expression_at(span) for part in _parts(statement.value))
    names, function = assigned_names(span), function_at(span)
    if len(names) != 1 or not isinstance(function, ast.FunctionDef):
        return False
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == names[0]]
    # Set once and read once: what is returned is this and nothing else.
    if len(uses) != 2:
        return False
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return)]
    return any(part in uses for node in returns for part in _parts(node.value))


def name_given(span: Span) -> str:
    """What a statement calls exactly the value at a place: `self.scale`; empty if nothing."""
    statement, node = statement_at(span), expression_at(span)
    if not isinstance(statement, ast.Assign):
        return ""
    named = [
        target
        for each in statement.targets
        for target, value in pairs(each, statement.value)
        if value is node
    ]
    return text_of(named[0], span.file) if len(named) == 1 else ""


def takes_apart(span: Span) -> bool:
    """Whether a line gives the parts of a result names of their own, or has just one part."""
    statement = statement_at(span)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return bool(targets) and all(isinstance(target, ast.Tuple) for target in targets)


def is_among_others(span: Span) -> bool:
    """Whether a function returns more than this one value."""
    function = function_at(span)
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return)] if function else []
    return any(isinstance(node.value, ast.Tuple) for node in returns)


def _parts(value: ast.expr | None) -> list[ast.expr]:
    """The values that a return hands over."""
    if isinstance(value, ast.Tuple):
        return list(value.elts)
    return [] if value is None else [value]
