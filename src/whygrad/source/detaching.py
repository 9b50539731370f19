"""Values that are handed to numpy: whether they come back, and how to hand over just numbers."""

from __future__ import annotations

import ast
import copy

from whygrad.session import Edit
from whygrad.source.bindings import names_of
from whygrad.source.files import SourceFile, load
from whygrad.source.rewriting import verified
from whygrad.source.spans import Span
from whygrad.source.tree import (
    assigned_names,
    expression_at,
    full_name,
    function_at,
    node_span,
    statement_at,
)
from whygrad.source.values import reads

_REBUILDERS = ("tensor", "from_numpy", "as_tensor", "asarray", "Tensor", "FloatTensor", "stack")
_COMPUTING = ("forward", "loss", "loss_fn", "criterion", "step", "training_step", "closure")


def comes_back(span: Span) -> Span | None:
    """Where torch gets back what is computed from the numbers that leave it at a span.

    That is a call which makes a tensor, or the `return` of a function that computes a result.
    """
    source, statement = load(span.file), statement_at(span)
    if statement is None:
        return None
    around: ast.AST | None = expression_at(span)
    while around is not None and around is not statement:
        if _makes_tensor(source, around):
            return node_span(source, around)
        around = source.parents.get(around)
    function = function_at(span)
    computing = getattr(function, "name", "") in _COMPUTING
    if computing and isinstance(statement, ast.Return):
        return node_span(source, statement)
    names = {name for name in assigned_names(span) if "." not in name}
    scope: ast.AST | None = function or source.tree
    for node in ast.walk(scope) if scope is not None and names else ():
        later = getattr(node, "lineno", 0) > (statement.end_lineno or 0)
        if later and isinstance(node, ast.Call) and _makes_tensor(source, node):
            given = [*node.args, *(k.value for k in node.keywords)]
            if names & {name for name, _ in reads(*given)}:
                return node_span(source, node)
        value = node.value if isinstance(node, ast.Return) else None
        if later and computing and value is not None and names & {n for n, _ in reads(value)}:
            return node_span(source, node)
    return None


def _makes_tensor(source: SourceFile, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or names_of(source) is None:
        return False
    module, _, name = (full_name(source, node.func) or "").rpartition(".")
    return module.startswith("torch") and name in _REBUILDERS


def detached_first(span: Span) -> list[Edit]:
    """`x.numpy()` becomes `x.detach().numpy()`, `x.cpu().numpy()` `x.detach().cpu().numpy()`."""
    source, call = load(span.file), expression_at(span)
    match call:
        case ast.Call(func=ast.Attribute(value=value, attr="numpy")):
            pass
        case _:
            return []
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr="cpu"), args=[], keywords=[]):
            value = inner
    end = source.extent(value)[2:]
    wanted = ast.Call(ast.Attribute(copy.copy(value), "detach", ast.Load()), [], [])
    return verified(source, [((*end, *end), ".detach()")], {value: [wanted]})
