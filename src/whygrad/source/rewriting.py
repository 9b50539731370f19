"""Changed source text, compared with the syntax tree it was meant to have."""

from __future__ import annotations

import ast

from whygrad.session import Edit
from whygrad.source.files import Extent, SourceFile, parse

Change = tuple[Extent, str]
Replaced = dict[ast.AST, list[ast.AST]]  # what stands for a node in the new tree


def verified(source: SourceFile, changes: list[Change], replaced: Replaced) -> list[Edit]:
    return changed_lines(source, apply(source, changes), replaced)


def apply(source: SourceFile, changes: list[Change]) -> list[str]:
    """The file's lines with the text at some extents replaced."""
    lines = source.plain_lines
    for (line, column, end_line, end_column), new in sorted(changes, reverse=True):
        if not 0 < line <= end_line <= len(lines) or end_column - 1 > len(lines[end_line - 1]):
            return []
        text = lines[line - 1][: column - 1] + new + lines[end_line - 1][end_column - 1 :]
        lines[line - 1 : end_line] = text.split("\n")
    return lines


def changed_lines(source: SourceFile, lines: list[str], replaced: Replaced | None) -> list[Edit]:
    """The edit that leads to these lines, if they mean what they should."""
    tree = parse("\n".join(lines) + "\n", source.name) if lines else None
    if source.tree is None or tree is None:
        return []
    if replaced is not None and not _is_expected(source, tree, replaced):
        return []
    old = source.plain_lines
    first, end = 0, 0
    while first < min(len(old), len(lines)) and old[first] == lines[first]:
        first += 1
    while end < min(len(old), len(lines)) - first and old[-1 - end] == lines[-1 - end]:
        end += 1
    if first == len(old) == len(lines):
        return []
    if first == len(old) - end and first > 0:  # pure insertion: show the line it follows
        first -= 1
    before, after = old[first : len(old) - end], lines[first : len(lines) - end]
    return [Edit(source.name, first + 1, before, after)]


def same_syntax(one: object, other: object, replaced: Replaced | None = None) -> bool:
    """Whether two trees, or lists of them, are equal once nodes of the first are replaced."""
    try:
        return _form(one, replaced or {}) == _form(other, {})
    except RecursionError:
        return False


def _is_expected(source: SourceFile, new: ast.Module, replaced: Replaced) -> bool:
    """Compare the top-level statement that was changed; the text of the others is the same."""
    node = next(iter(replaced))
    while not isinstance(source.parents[node], ast.Module):
        node = source.parents[node]
    old = source.tree.body if source.tree else []
    index = next(i for i, statement in enumerate(old) if statement is node)
    after = len(old) - index - 1
    return same_syntax([node], new.body[index : len(new.body) - after], replaced)


def _form(value: object, replaced: Replaced) -> object:
    """A tree as nested tuples, without places and contexts."""
    if isinstance(value, list):
        items = [r for item in value for r in replaced.get(item, [item])]
        return tuple(_form(item, replaced) for item in items)
    if not isinstance(value, ast.AST):
        return type(value).__name__, repr(value)
    if value in replaced:
        return _form(replaced[value][0], replaced)
    fields = (name for name in value._fields if name not in ("ctx", "kind", "type_comment"))
    return type(value).__name__, *(_form(getattr(value, n, None), replaced) for n in fields)
