"""Calls that write in place, and how each would be written out of place."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from whygrad.source.bindings import dotted_name
from whygrad.source.files import SourceFile
from whygrad.source.inplace_names import (
    FUNCTIONAL_POSITION,
    INPLACE_FUNCTIONS,
    INPLACE_METHODS,
    LAYER_POSITION,
)
from whygrad.source.rewriting import Change
from whygrad.source.tree import full_name

FUNCTIONAL = "torch.nn.functional"


@dataclass(frozen=True)
class Twin:
    """A call that writes into its subject, and the same call out of place."""

    call: ast.Call
    subject: ast.expr
    change: Change
    new: ast.Call


def twin_of(source: SourceFile, call: ast.AST | None) -> Twin | None:
    """None if the call does not write in place, or if nothing does the same out of place."""
    if not isinstance(call, ast.Call):
        return None
    name = full_name(source, call.func) or ""
    module, _, function = name.rpartition(".")
    first = _first_argument(call)
    if isinstance(call.func, ast.Attribute):
        if name.startswith(".") and function in INPLACE_METHODS:
            return _renamed(source, call, call.func, call.func.value)
        if module in ("torch", FUNCTIONAL) and function in INPLACE_FUNCTIONS and first:
            return _renamed(source, call, call.func, first)
    if not module.startswith("torch") or not function.islower():
        return None
    position = FUNCTIONAL_POSITION.get(function) if module == FUNCTIONAL else None
    flag = inplace_flag(call, position)
    if flag is not None and first is not None:
        return _without(source, call, flag, first)
    written = next((k for k in call.keywords if k.arg == "out"), None)
    return _without(source, call, written, written.value) if written is not None else None


def inplace_flag(call: ast.Call, position: int | None) -> ast.keyword | ast.expr | None:
    """The argument that asks for writing in place: `inplace=True`, a bare `True`, a variable."""
    named = (k for k in call.keywords if k.arg == "inplace" and _may_be_true(k.value))
    placed = call.args[position : position + 1] if position is not None else []
    return next(named, None) or next(filter(_may_be_true, placed), None)


def _may_be_true(node: ast.expr) -> bool:
    return node.value is True if isinstance(node, ast.Constant) else dotted_name(node) is not None


def _first_argument(call: ast.Call) -> ast.expr | None:
    named = [k.value for k in call.keywords if k.arg == "input"]
    first = next(iter([*call.args, *named]), None)
    return None if isinstance(first, ast.Starred) else first


def layer_flag(source: SourceFile, node: ast.AST | None) -> ast.keyword | ast.expr | None:
    """The same for a call that makes a layer."""
    if not isinstance(node, ast.Call) or isinstance(source.parents.get(node), ast.Expr):
        return None
    module, _, maker = (full_name(source, node.func) or "").rpartition(".")
    is_function = module.startswith("torch") and maker.islower()
    return None if is_function else inplace_flag(node, LAYER_POSITION.get(maker))


def _renamed(source: SourceFile, call: ast.Call, func: ast.Attribute, subject: ast.expr) -> Twin:
    line, column = source.extent(func)[2:]
    renamed = ast.Attribute(func.value, func.attr.removesuffix("_"), func.ctx)
    change: Change = (line, column - 1, line, column), ""
    return Twin(call, subject, change, ast.Call(renamed, call.args, call.keywords))


def _without(
    source: SourceFile, call: ast.Call, argument: ast.keyword | ast.expr, subject: ast.expr
) -> Twin:
    arguments = [a for a in call.args if a is not argument]
    keywords = [k for k in call.keywords if k is not argument]
    change = _removal(source, call, argument)
    return Twin(call, subject, change, ast.Call(call.func, arguments, keywords))


def _removal(source: SourceFile, call: ast.Call, argument: ast.AST) -> Change:
    """Take an argument out of a call, with its comma; comments stay."""
    line, column, end_line, end_column = source.extent(argument)
    places = sorted(source.extent(a) for a in [*call.args, *call.keywords])
    index = places.index((line, column, end_line, end_column))
    if index == 0:
        end = places[1][:2] if len(places) > 1 else (end_line, end_column)
        return (line, column, *end), ""
    start_line, start_column = places[index - 1][2:]
    gap = source.text((start_line, start_column, line, column))
    if "#" not in gap:
        comma = start_column + len(gap.partition(",")[0])
        return (start_line, comma, end_line, end_column), ""
    rest = source.line(end_line)[end_column - 1 :]
    if rest.strip() in ("", ","):
        return (line - 1, len(source.line(line - 1)) + 1, end_line, end_column + len(rest)), ""
    return (line, column, end_line, end_column), ""
