"""Layers that are built to write in place, by their class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from whygrad.source.files import load
from whygrad.source.inplace_calls import layer_flag
from whygrad.source.spans import Span
from whygrad.source.tree import full_name, node_span


def made_to_write(files: Iterable[str], kind: str) -> list[Span]:
    """Where layers of a class, or for an operation, are made with `inplace=True`.

    `LeakyReLU` and `leaky_relu` are the same kind.
    """
    found = []
    for file in dict.fromkeys(files):
        source = load(file)
        for node in ast.walk(source.tree) if source.tree is not None else ():
            if isinstance(node, ast.Call) and layer_flag(source, node) is not None:
                name = (full_name(source, node.func) or "").rpartition(".")[2]
                if _letters(name) == _letters(kind):
                    found.append(node_span(source, node))
    return found


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
