"""Whether the program is prepared for an exception at a line."""

from __future__ import annotations

import ast

from whygrad.source.files import FUNCTIONS, load
from whygrad.source.spans import Span
from whygrad.source.tree import full_name

_BROAD = {"Exception", "BaseException"}


def is_expected(span: Span, *kinds: str) -> bool:
    """Whether a `try` around a span catches one of these exceptions and goes on without it."""
    source = load(span.file)
    chain = source.chain(span.extent)
    for child, node in zip(chain[:0:-1], chain[-2::-1], strict=True):
        if isinstance(node, FUNCTIONS):
            return False
        if isinstance(node, ast.Try) and child in node.body:
            caught = [h for h in node.handlers if _catches(source.name, h, kinds)]
            if caught:
                return not any(isinstance(n, ast.Raise) for n in ast.walk(caught[0]))
    return False


def _catches(file: str, handler: ast.ExceptHandler, kinds: tuple[str, ...]) -> bool:
    if handler.type is None:
        return True
    listed = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {(full_name(load(file), part) or "").rpartition(".")[2] for part in listed}
    return bool(names & (_BROAD | set(kinds)))
