"""`# whygrad: ignore[code]` comments."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from whygrad.source.files import SourceFile, first_line_of, load

COMMENT = re.compile(r"#\s*whygrad:\s*ignore\b(?:\[([^\]]*)\]|(?!\s*\[))")


def ignored_codes(file: str, line: int) -> frozenset[str]:
    """The codes silenced on a line or where its statement starts; `*` stands for all."""
    source = load(file)
    comments = {
        source.comments.get(line, ""),
        source.comments.get(_starts(source).get(line, 0), ""),
    }
    codes: set[str] = set()
    for comment in comments:
        for match in COMMENT.finditer(comment):
            listed = match[1]
            codes |= {"*"} if listed is None else {code.strip() for code in listed.split(",")}
    return frozenset(codes - {""})


@lru_cache(maxsize=64)
def _starts(source: SourceFile) -> dict[int, int]:
    """The line on which the innermost statement at each line starts."""
    starts: dict[int, int] = {}
    for node in ast.walk(source.tree) if source.tree else ():
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            # Of a compound statement only the head: the body has statements of its own.
            last = _first_line(body[0]) - 1 if body else node.end_lineno or node.lineno
            first = first_line_of(node)
            starts |= dict.fromkeys(range(first, max(last, node.lineno) + 1), node.lineno)
    return starts


def _first_line(node: ast.AST) -> int:
    return first_line_of(node.pattern) if isinstance(node, ast.match_case) else first_line_of(node)
