"""Functions that reduce a value, or not, as a setting says."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from whygrad.source.files import load
from whygrad.source.spans import Span
from whygrad.source.tree import assigned_names, function_at, node_span, statement_at, text_of

_REDUCTIONS = frozenset(["mean", "sum"])


@dataclass(frozen=True, slots=True)
class Passed:
    """The `return` by which a value leaves unreduced, past branches that would reduce it."""

    where: Span
    first: Span  # the first of the conditions
    setting: str  # what they look at: `self.reduction`
    choices: tuple[str, ...]  # the values at which it would be reduced


def passed_by(span: Span) -> Passed | None:
    """None unless one plain `return` follows that is not itself one of the setting's choices."""
    function, names = function_at(span), assigned_names(span)
    statement = statement_at(span)
    if not isinstance(function, ast.FunctionDef) or len(names) != 1 or statement is None:
        return None
    branches = [
        (node, found)
        for node in ast.walk(function)
        if isinstance(node, ast.If) and node.lineno > span.line
        if (found := _choice(node.test, span.file)) and _reduces(node.body, names[0])
    ]
    returns = [
        n for n in ast.walk(function) if isinstance(n, ast.Return) and _is(n.value, names[0])
    ]
    settings = {setting for _, (setting, _) in branches}
    chosen = [n for branch, _ in branches for part in branch.body for n in ast.walk(part)]
    if len(settings) != 1 or len(returns) != 1 or returns[0] in chosen:
        return None
    if _is_chosen(returns[0], span.file) or _is_chosen(statement, span.file):
        return None
    source = load(span.file)
    return Passed(
        node_span(source, returns[0]),
        node_span(source, branches[0][0].test),
        settings.pop(),
        tuple(value for _, (_, value) in branches),
    )


def _choice(test: ast.expr, file: str) -> tuple[str, str] | None:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=str(value))]):
            return text_of(left, file), repr(value)
    return None


def _reduces(body: list[ast.stmt], name: str) -> bool:
    """Whether a branch takes the mean or the sum of a value."""
    for node in (n for part in body for n in ast.walk(part)):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=[], keywords=[]):
                given = value  # x.mean()
            case ast.Call(func=ast.Attribute(attr=method), args=[given], keywords=[]):
                pass  # torch.mean(x)
            case _:
                continue
        if method in _REDUCTIONS and _is(given, name):
            return True
    return False


def _is_chosen(node: ast.stmt, file: str) -> bool:
    """Whether a statement stands in the body of a condition: then somebody asked for it."""
    parents = load(file).parents
    child: ast.AST = node
    while (around := parents.get(child)) is not None:
        if isinstance(around, ast.If) and child in around.body:
            return True
        child = around
    return False


def _is(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
