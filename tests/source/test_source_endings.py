"""Functions that come to their end without a `return`, and those that cannot."""

from __future__ import annotations

import ast

import pytest

from whygrad.source.endings import falls_off

REACHED = [
    "x = 1",
    "if a:\n    return 1",
    "for a in b:\n    return a",
    "while True:\n    if a:\n        break",
    "while a:\n    return 1",
    "try:\n    return 1\nexcept ValueError:\n    pass",
    "match a:\n    case 1:\n        return 1",
    "match a:\n    case _ if b:\n        return 1",
    "def inner():\n    return 1",
]
UNREACHED = [
    "return 1",
    "raise ValueError",
    "assert False",
    "if a:\n    return 1\nelse:\n    raise ValueError",
    "while True:\n    for b in a:\n        break",
    "for a in b:\n    pass\nelse:\n    return 1",
    "with a:\n    return 1",
    "try:\n    a()\nfinally:\n    return 1",
    "match a:\n    case 1:\n        return 1\n    case _:\n        return 2",
]


def _function(body: str) -> ast.AST:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return ast.parse(f"def f(a, b):\n{lines}").body[0]


@pytest.mark.parametrize("body", REACHED)
def test_the_end_can_be_reached(body: str) -> None:
    assert falls_off(_function(body))


@pytest.mark.parametrize("body", UNREACHED)
def test_the_end_cannot_be_reached(body: str) -> None:
    assert not falls_off(_function(body))
