"""Powers as they are written."""

from __future__ import annotations

import ast

from whygrad.source.spans import Span
from whygrad.source.tree import expression_at


def is_whole_power(where: Span) -> bool:
    """`x ** 2`, `x.pow(2)`, `x.square()`: what has a derivative everywhere."""
    match expression_at(where):
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int() | float() as power)):
            return power >= 1
        case ast.Call(args=[*_, ast.Constant(value=int() | float() as power)]):
            return power >= 1
        case ast.Call(func=ast.Attribute(attr="square")):
            return True
    return False
