"""Small, safe changes of source text.

Every change is checked: the new text must parse, and to exactly the syntax tree that was
meant. Where that fails, or the change would alter more than was asked for, there is no edit.
"""

from __future__ import annotations

import ast

from whygrad.session import Edit
from whygrad.source.files import DEFINITIONS, SourceFile, first_line_of, load
from whygrad.source.rewriting import Change, Replaced, apply, changed_lines, same_syntax, verified
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, is_method_call, statement_at

EFFECTS = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
SUBJECT_KEYWORDS = ("input", "data", "object", "x")


def remove_method_call(span: Span) -> list[Edit]:
    """`f(y).detach() + 1` becomes `f(y) + 1`, `x.data` becomes `x`."""
    source, node = load(span.file), expression_at(span)
    match node:
        case ast.Call(func=ast.Attribute() as attribute) if is_method_call(source, node):
            pass
        case ast.Call():
            return replace_call_with_argument(span)
        case ast.Attribute(ctx=ast.Load()) as attribute:
            pass
        case _:
            return []
    value_end = source.extent(attribute.value)[2:]
    gap = source.text((*value_end, *source.attribute_name_start(attribute)))
    dot = gap.rfind(".")
    end = source.extent(node)[2:]
    # A dot at the start of a line goes with its line break, unless a comment stands before it.
    starts = [_advance(value_end, gap[:dot].rstrip()), _advance(value_end, gap[:dot])]
    changes: list[list[Change]] = [[((*start, *end), "")] for start in starts]
    return _replace(source, node, attribute.value, changes)


def replace_call_with_argument(span: Span) -> list[Edit]:
    """`float(x)` becomes `x`, in parentheses where it needs them."""
    source, node = load(span.file), expression_at(span)
    if not isinstance(node, ast.Call):
        return []
    argument = next(iter(node.args), None) or next(
        (k.value for k in node.keywords if k.arg in SUBJECT_KEYWORDS), None
    )
    if argument is None or isinstance(argument, ast.Starred):
        return []
    extent, text = source.extent(node), source.text(source.extent(argument))
    return _replace(source, node, argument, [[(extent, text)], [(extent, f"({text})")]])


def rename_callee(span: Span, new: str) -> list[Edit]:
    """`torch.tensor(xs)` becomes `torch.stack(xs)`."""
    source, node = load(span.file), expression_at(span)
    if not isinstance(node, ast.Call):
        return []
    try:
        callee = ast.parse(new, mode="eval").body
    except (SyntaxError, ValueError):
        return []
    return verified(source, [(source.extent(node.func), new)], {node.func: [callee]})


def add_keyword(span: Span, keyword: str) -> list[Edit]:
    """`torch.randn(3)` becomes `torch.randn(3, requires_grad=True)`."""
    source, call = load(span.file), expression_at(span)
    try:
        template = ast.parse(f"f({keyword})", mode="eval").body
    except (SyntaxError, ValueError):
        return []
    if not isinstance(call, ast.Call) or not isinstance(template, ast.Call):
        return []
    if template.args or len(template.keywords) != 1:
        return []
    added = template.keywords[0]
    for existing in call.keywords:
        if existing.arg == added.arg:
            return verified(source, [(source.extent(existing), keyword)], {existing: [added]})
    wanted = ast.Call(call.func, call.args, [*call.keywords, added])
    return verified(source, [_keyword_insertion(source, call, keyword)], {call: [wanted]})


def _keyword_insertion(source: SourceFile, call: ast.Call, keyword: str) -> Change:
    arguments = [*call.args, *call.keywords]
    last = max((source.extent(a) for a in arguments), key=lambda e: e[2:], default=None)
    line, column = source.extent(call)[2:]
    if last is None:
        return (line, column - 1, line, column - 1), keyword
    closers, comma = _after_argument(source.text((*last[2:], line, column - 1)))
    if comma is None:
        place = _advance(last[2:], closers)
        return (*place, *place), f", {keyword}"
    place = _advance(last[2:], comma)
    indentation = source.line(last[0])[: last[1] - 1]
    if indentation.strip() or place[0] == line:
        return (*place, *place), f" {keyword},"
    return (*place, *place), f"\n{indentation}{keyword},"


def _after_argument(gap: str) -> tuple[str, str | None]:
    """The text up to an argument's last parenthesis, and up to its comma if it has one."""
    closed = index = 0
    while index < len(gap):
        if gap[index] == "#":
            index = gap.find("\n", index) if "\n" in gap[index:] else len(gap)
        elif gap[index] == ")":
            closed = index + 1
        elif gap[index] == ",":
            return gap[:closed], gap[: index + 1]
        index += 1
    return gap[:closed], None


def remove_with_item(span: Span) -> list[Edit]:
    """Take a context manager away; the last one goes with its `with`, and the body moves out."""
    source = load(span.file)
    for node in source.chain(span.extent):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            places = [source.extent(item.context_expr) for item in node.items]
            if span.extent in places:
                return _without_item(source, node, places.index(span.extent))
    return []


def _without_item(source: SourceFile, node: ast.With | ast.AsyncWith, index: int) -> list[Edit]:
    item = node.items[index]
    if item.optional_vars is not None:
        return []
    if len(node.items) == 1:
        return _without_with(source, node)
    start, end = source.extent(item.context_expr)[:2], source.extent(item.context_expr)[2:]
    if index + 1 < len(node.items):
        end = source.extent(node.items[index + 1].context_expr)[:2]
    else:
        before = node.items[index - 1]
        start = source.extent(before.optional_vars or before.context_expr)[2:]
    return verified(source, [((*start, *end), "")], {item: []})


def _without_with(source: SourceFile, node: ast.With | ast.AsyncWith) -> list[Edit]:
    line, column = source.extent(node)[:2]
    body_line, body_column = first_line_of(node.body[0]), source.extent(node.body[0])[1]
    head_end = body_line - 1
    while head_end > line and _is_blank(source.line(head_end)):
        head_end -= 1  # comments before the body stay
    if source.line(body_line)[: body_column - 1].strip() or head_end < line:
        extent = (line, column, body_line, body_column)
        return verified(source, [(extent, "")], {node: list(node.body)})
    in_string = {
        number
        for part in ast.walk(node)
        if isinstance(part, (ast.Constant, ast.JoinedStr))
        for number in range(part.lineno + 1, (part.end_lineno or 0) + 1)
    }
    moved = [
        text if number in in_string else _dedented(text, body_column - column)
        for number in range(head_end + 1, (node.end_lineno or 0) + 1)
        for text in [source.line(number)]
    ]
    lines = source.plain_lines
    lines[line - 1 : node.end_lineno] = moved
    return changed_lines(source, lines, {node: list(node.body)})


def remove_decorator(span: Span) -> list[Edit]:
    source = load(span.file)
    for node in source.chain(span.extent):
        for decorator in node.decorator_list if isinstance(node, DEFINITIONS) else ():
            if source.extent(decorator) == span.extent:
                lines = source.plain_lines
                del lines[decorator.lineno - 1 : decorator.end_lineno]
                return changed_lines(source, lines, {decorator: []})
    return []


def delete_statement(span: Span) -> list[Edit]:
    """Delete a simple statement; a block that would be empty gets a `pass`."""
    source, statement = load(span.file), statement_at(span)
    return _delete(source, statement) if statement is not None else []


def replace_text(span: Span, new: str) -> list[Edit]:
    source = load(span.file)
    return changed_lines(source, apply(source, [(span.extent, new)]), None)


def _replace(
    source: SourceFile, node: ast.expr, new: ast.expr, attempts: list[list[Change]]
) -> list[Edit]:
    """Put one expression for another; delete the statement if that leaves it without effect."""
    match source.parents.get(node):
        case ast.Assign(targets=[target]) as statement if same_syntax(target, new):
            return _delete(source, statement)
        case ast.Expr() as statement if not any(isinstance(n, EFFECTS) for n in ast.walk(new)):
            return _delete(source, statement)
    replaced: Replaced = {node: [new]}
    return next(filter(None, (verified(source, attempt, replaced) for attempt in attempts)), [])


def _delete(source: SourceFile, statement: ast.stmt) -> list[Edit]:
    if hasattr(statement, "body") or isinstance(statement, ast.Match):
        return []
    extent = source.extent(statement)
    before = source.line(extent[0])[: extent[1] - 1]
    after = source.line(extent[2])[extent[3] - 1 :]
    if before.strip() or not _is_blank(after):
        return verified(source, [(extent, "pass")], {statement: [ast.Pass()]})
    lines = source.plain_lines
    alone = _is_alone(source, statement)
    lines[extent[0] - 1 : extent[2]] = [f"{before}pass"] if alone else []
    return changed_lines(source, lines, {statement: [ast.Pass()] if alone else []})


def _is_alone(source: SourceFile, statement: ast.stmt) -> bool:
    parent = source.parents[statement]
    blocks = (value for _, value in ast.iter_fields(parent) if isinstance(value, list))
    return not isinstance(parent, ast.Module) and any(block == [statement] for block in blocks)


def _is_blank(text: str) -> bool:
    return not text.strip() or text.lstrip().startswith("#")


def _dedented(text: str, columns: int) -> str:
    return text[min(columns, len(text) - len(text.lstrip())) :]


def _advance(start: tuple[int, int], text: str) -> tuple[int, int]:
    """The place behind a text that starts at a place."""
    line, column = start
    breaks = text.count("\n")
    return line + breaks, len(text) - text.rfind("\n") if breaks else column + len(text)
