"""Statements that put a value into an object or a collection, anywhere in a file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.source.attributes import fills, statement_span
from whygrad.source.bindings import COLLECTORS, dotted_name, pairs
from whygrad.source.files import SourceFile, load
from whygrad.source.spans import Span
from whygrad.source.tree import node_span


def into_attribute(file: str, attribute: str, owner: str) -> list[Span]:
    """The statements that set or fill an attribute: in the class of this name, or else at all."""
    source = load(file)
    found = [
        statement
        for statement in _statements(source)
        if fills(statement, attribute) or attribute in _attributes_set(statement)
    ]
    own = [statement for statement in found if _class_of(source, statement) == owner]
    return [_span(source, statement) for statement in own or found]


def into_collection(file: str, name: str) -> list[Span]:
    """The statements that add something to the collection of this (dotted) name."""
    source = load(file)
    return [_span(source, s) for s in _statements(source) if name in _filled_names(s)]


def _statements(source: SourceFile) -> Iterator[ast.stmt]:
    walk = ast.walk(source.tree) if source.tree is not None else ()
    found = [node for node in walk if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    return iter(sorted(found, key=lambda statement: statement.lineno))


def _attributes_set(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Assign(targets=targets):
            leaves = [leaf for target in targets for leaf, _ in pairs(target, target)]
        case ast.AnnAssign(target=target, value=ast.expr()) | ast.AugAssign(target=target):
            leaves = [target]
        case ast.Expr(
            value=ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=name), *_])
        ):
            return {str(name)}
        case _:
            return set()
    empty = isinstance(statement.value, ast.Constant)
    return {leaf.attr for leaf in leaves if isinstance(leaf, ast.Attribute) and not empty}


def _filled_names(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=holder, attr=method))):
            holders = [holder] if method in COLLECTORS else []
        case ast.Assign(targets=targets):
            holders = [target.value for target in targets if isinstance(target, ast.Subscript)]
        case ast.AugAssign(target=target):
            holders = [target]
        case _:
            return set()
    return {name for holder in holders if (name := dotted_name(_bare(holder)))}


def _bare(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _class_of(source: SourceFile, node: ast.AST) -> str:
    around: ast.AST | None = node
    while around is not None and not isinstance(around, ast.ClassDef):
        around = source.parents.get(around)
    return around.name if around is not None else ""


def _span(source: SourceFile, statement: ast.stmt) -> Span:
    return statement_span(node_span(source, statement), statement)
