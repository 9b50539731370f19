"""Whether a function can come to its end without a `return`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from whygrad.source.files import DEFINITIONS
from whygrad.source.reaching import LOOPS


def falls_off(function: ast.AST) -> bool:
    """Whether a way leads past the last statement: then the function gives `None`."""
    body = getattr(function, "body", None)
    return isinstance(body, list) and _goes_on(body)


def _goes_on(statements: Sequence[ast.stmt]) -> bool:
    return all(_passes(statement) for statement in statements)


def _passes(statement: ast.stmt) -> bool:
    """Whether what follows a statement may run; where that is not plain, it may."""
    match statement:
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            return False
        case ast.Assert(test=test):
            return _constant(test) is not False
        case ast.If(body=body, orelse=orelse):
            return _goes_on(body) or _goes_on(orelse)
        case ast.While(test=test):
            return _is_left(statement) or (not _constant(test) and _goes_on(statement.orelse))
        case ast.For() | ast.AsyncFor():
            return _is_left(statement) or _goes_on(statement.orelse)
        case ast.With(body=body) | ast.AsyncWith(body=body):
            return _goes_on(body)
        case ast.Try() | ast.TryStar():
            ways = [[*statement.body, *statement.orelse], *(h.body for h in statement.handlers)]
            return _goes_on(statement.finalbody) and any(map(_goes_on, ways))
        case ast.Match(cases=cases):
            complete = any(_takes_all(c) for c in cases)
            return not complete or any(_goes_on(c.body) for c in cases)
    return True


def _constant(test: ast.expr) -> object:
    return test.value if isinstance(test, ast.Constant) else None


def _is_left(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether a `break` belongs to this loop."""
    return any(isinstance(node, ast.Break) for node in _of_loop(loop.body))


def _of_loop(statements: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in statements:
        yield node
        if isinstance(node, LOOPS):
            yield from _of_loop(node.orelse)
        elif not isinstance(node, DEFINITIONS):
            yield from _of_loop(list(ast.iter_child_nodes(node)))


def _takes_all(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and not case.pattern.pattern
