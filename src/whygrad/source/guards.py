"""Reads that only ask whether something is there."""

from __future__ import annotations

import ast

from whygrad.source.files import load
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at


def asks_for_none(span: Span) -> bool:
    """Whether what is at a span is only compared with None, or taken as true or false."""
    node = expression_at(span)
    around = load(span.file).parents.get(node) if node is not None else None
    match around:
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return True
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return test is node
        case ast.UnaryOp(op=ast.Not()):
            return True
    return False
