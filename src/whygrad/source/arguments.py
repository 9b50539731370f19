"""Questions about one call in the source: its arguments, and the function around it."""

from __future__ import annotations

import ast
from typing import Literal

from whygrad.source.files import load
from whygrad.source.spans import Span, line_span
from whygrad.source.tree import expression_at, node_span, statement_at, text_of


def argument_text(span: Span, index: int, keyword: str) -> str | None:
    """The source of an argument of the call at a span, by position or by name."""
    call = expression_at(span)
    if not isinstance(call, ast.Call):
        return None
    named = [k.value for k in call.keywords if k.arg == keyword]
    chosen = named[0] if named else call.args[index] if index < len(call.args) else None
    return text_of(chosen, span.file) if chosen is not None else None


def argument_kind(span: Span) -> Literal["sequence", "value"] | None:
    """Whether the call's only argument is written as, or assigned from, a flat list of things."""
    call = expression_at(span)
    if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return None
    if any(isinstance(part, _SEQUENCES) for part in getattr(call.args[0], "elts", ())):
        return None
    return "sequence" if _is_sequence(call.args[0], span) else "value"


_SEQUENCES = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp)


def _is_sequence(node: ast.expr, span: Span) -> bool:
    if isinstance(node, _SEQUENCES):
        return True
    if not isinstance(node, ast.Name):
        return False
    tree = load(span.file).tree
    return any(
        isinstance(value, _SEQUENCES)
        for statement in (ast.walk(tree) if tree is not None else ())
        if isinstance(statement, ast.Assign)
        for value in _values_for(statement, node.id)
    )


def _values_for(statement: ast.Assign, name: str) -> list[ast.expr]:
    """The expressions that an assignment gives to a name."""
    found = []
    for target in statement.targets:
        if isinstance(target, ast.Name) and target.id == name:
            found.append(statement.value)
        elif isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            found += [
                value
                for part, value in zip(target.elts, statement.value.elts, strict=False)
                if isinstance(part, ast.Name) and part.id == name
            ]
    return found


def inside_call(span: Span) -> bool:
    """Whether the expression at a span is (part of) an argument of another call."""
    node: ast.AST | None = expression_at(span)
    parents = load(span.file).parents
    while node is not None and not isinstance(node, ast.stmt):
        outer = parents.get(node)
        if isinstance(outer, ast.Call) and node is not outer.func:
            return True
        node = outer
    return False


def function_name(file: str, first_line: int) -> str:
    """The name of the function whose code (decorators included) starts on a line, or ""."""
    statement = statement_at(line_span(file, first_line))
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        body = node_span(load(file), statement.body[0])
        return body.function or statement.name
    return ""
