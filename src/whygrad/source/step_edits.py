"""Edits of the order of a training step: a line added, moved, or at last called.

As in `edits`, each change is checked against the syntax tree that was meant.
"""

from __future__ import annotations

import ast
import copy

from whygrad.session import Edit
from whygrad.source.files import SourceFile, load, parse
from whygrad.source.rewriting import Replaced, changed_lines, verified
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, statement_at

_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
# A moved line is shown together with all lines between its old and its new place.
_LONGEST_MOVE = 24


def insert_before(span: Span, line: str) -> list[Edit]:
    """Put a line before the statement at a span."""
    return _insert(span, line, behind=False)


def insert_after(span: Span, line: str) -> list[Edit]:
    """Put a line behind the statement at a span."""
    return _insert(span, line, behind=True)


def _insert(span: Span, line: str, behind: bool) -> list[Edit]:
    source, statement, added = load(span.file), statement_at(span), parse(line, span.file)
    if statement is None or added is None or (behind and isinstance(statement, _ENDS)):
        return []
    indentation = _indentation(source, statement)
    if indentation is None:
        return []
    kept = copy.copy(statement)
    order: list[ast.AST] = [kept, *added.body] if behind else [*added.body, kept]
    lines = source.plain_lines
    place = (statement.end_lineno or 0) if behind else statement.lineno - 1
    lines.insert(place, indentation + line)
    return changed_lines(source, lines, {statement: order})


def move_before(span: Span, target: Span) -> list[Edit]:
    """Take the statement at a span out of its place and put it before another one."""
    return _move(span, target, behind=False)


def move_after(span: Span, target: Span) -> list[Edit]:
    """Take the statement at a span out of its place and put it behind another one."""
    return _move(span, target, behind=True)


def _move(span: Span, target: Span, behind: bool) -> list[Edit]:
    source, moved, there = load(span.file), statement_at(span), statement_at(target)
    if span.file != target.file or moved is None or there is None or moved is there:
        return []
    if moved.lineno != moved.end_lineno or (behind and isinstance(there, _ENDS)):
        return []
    indentation = _indentation(source, there)
    if indentation is None or _indentation(source, moved) is None or _is_alone(source, moved):
        return []
    if abs(moved.lineno - there.lineno) > _LONGEST_MOVE:
        return []
    lines = source.plain_lines
    text = indentation + lines[moved.lineno - 1].lstrip()
    place = (there.end_lineno or 0) if behind else there.lineno - 1
    lines.insert(place, text)
    del lines[moved.lineno - (1 if place >= moved.lineno else 0)]
    pair: list[ast.AST] = [copy.copy(there), copy.copy(moved)]
    replaced: Replaced = {there: pair if behind else pair[::-1], moved: []}
    return changed_lines(source, lines, replaced)


def add_parentheses(span: Span) -> list[Edit]:
    """`optimizer.step` becomes `optimizer.step()`."""
    source, node = load(span.file), expression_at(span)
    if not isinstance(node, ast.Attribute) or not isinstance(source.parents[node], ast.Expr):
        return []
    end = source.extent(node)[2:]
    wanted = ast.Call(copy.copy(node), [], [])
    return verified(source, [((*end, *end), "()")], {node: [wanted]})


def replace_receiver(span: Span, name: str) -> list[Edit]:
    """`a.zero_grad()` becomes `b.zero_grad()`."""
    source, node = load(span.file), expression_at(span)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return []
    wanted, old = parse(name, span.file), node.func.value
    if wanted is None or not isinstance(wanted.body[0], ast.Expr):
        return []
    return verified(source, [(source.extent(old), name)], {old: [wanted.body[0].value]})


def _is_alone(source: SourceFile, statement: ast.stmt) -> bool:
    """Whether a block would be empty without a statement."""
    blocks = (value for _, value in ast.iter_fields(source.parents[statement]))
    return any(block == [statement] for block in blocks)


def _indentation(source: SourceFile, statement: ast.stmt) -> str | None:
    """The indentation of a statement; None if it is compound or shares its lines with another."""
    if hasattr(statement, "body") or isinstance(statement, ast.Match):
        return None
    line, column, end_line, end_column = source.extent(statement)
    before, after = source.line(line)[: column - 1], source.line(end_line)[end_column - 1 :]
    alone = not before.strip() and (not after.strip() or after.lstrip().startswith("#"))
    return before if alone else None
