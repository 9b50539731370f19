"""Whether the program is prepared for an exception at a line."""

from __future__ import annotations

import ast
import builtins
from typing import NamedTuple

from whygrad.source.files import FUNCTIONS, FunctionNode, SourceFile, load, runs_inside
from whygrad.source.spans import Span
from whygrad.source.tree import full_name

_BROAD = {"Exception", "BaseException"}


class Caught(NamedTuple):
    """A place where an exception stops; without a handler it is not known whether it does."""

    source: SourceFile
    attempt: ast.AST
    handler: ast.ExceptHandler | None


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


def catcher(span: Span, error: str) -> Caught | None:
    """What stops an exception of this class on its way out of the code around a span."""
    source = load(span.file)
    chain = source.chain(span.extent)
    if not chain:
        return Caught(source, ast.Pass(), None)
    for child, node in zip(chain[:0:-1], chain[-2::-1], strict=True):
        if isinstance(node, FunctionNode) and runs_inside(child, node):
            return None
        if isinstance(node, (ast.With, ast.AsyncWith)) and child in node.body:
            if not all(_lets_pass(source, item.context_expr) for item in node.items):
                return Caught(source, node, None)
        elif isinstance(node, ast.TryStar) and child in node.body:
            return Caught(source, node, None)
        elif isinstance(node, ast.Try) and child in node.body:
            for handler in node.handlers:
                match = _would_catch(source, handler, error)
                if match is not False:
                    return Caught(source, node, handler if match else None)
    return None


def _would_catch(source: SourceFile, handler: ast.ExceptHandler, error: str) -> bool | None:
    """Whether a handler is for this class of exceptions; None if that is not to be seen."""
    if handler.type is None:
        return True
    listed = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    # Torch's own classes of errors are runtime errors.
    classes = _builtin(error) or {error, "RuntimeError", *_BROAD}
    names = [full_name(source, part) or "" for part in listed]
    if any(name.rpartition(".")[2] in classes for name in names):
        return True
    others = all(name.startswith("torch.") or _builtin(name) for name in names)
    return False if others else None


def _builtin(error: str) -> set[str]:
    """The names of one of Python's own exceptions and of what it is one of."""
    known = getattr(builtins, error, None)
    if isinstance(known, type) and issubclass(known, BaseException):
        return {kind.__name__ for kind in known.__mro__}
    return set()


def _lets_pass(source: SourceFile, context: ast.expr) -> bool:
    """Whether a `with` is of a kind that stops no exceptions."""
    func = context.func if isinstance(context, ast.Call) else context
    name = full_name(source, func) or ""
    known = name.startswith(("torch.", "whygrad.")) and ".testing" not in name
    return known or name == "open"
