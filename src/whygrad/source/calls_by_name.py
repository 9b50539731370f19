"""Calls of a certain function, wherever they are in some files."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from whygrad.source.files import load
from whygrad.source.spans import Span
from whygrad.source.tree import full_name, node_span


def calls_of(files: Iterable[str], name: str) -> list[Span]:
    """The calls of a function by its full name, `torch.use_deterministic_algorithms`."""
    found = []
    for file in files:
        source = load(file)
        for node in ast.walk(source.tree) if source.tree is not None else ():
            if isinstance(node, ast.Call) and full_name(source, node.func) == name:
                found.append(node_span(source, node))
    return found
