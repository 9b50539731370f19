"""What a custom Function's methods do: to their context, to their inputs, and what they call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from whygrad.source.bindings import dotted_name, pairs
from whygrad.source.files import SourceFile, load
from whygrad.source.methods import Place, argument_names, function_at, own_nodes
from whygrad.source.spans import Span
from whygrad.source.tree import node_span, text_of

_FACTS = frozenset("shape size dim ndim dtype device layout numel is_cuda requires_grad".split())


def _nodes(place: Place) -> Iterator[ast.AST]:
    function = function_at(place)
    return iter(()) if function is None else own_nodes(function)


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None) or ""


def calls_of(place: Place, method: str) -> list[tuple[Span, ast.Call]]:
    """The calls `ctx.method(...)` in a function, in the order of the source."""
    source = load(place[0])
    return [
        (node_span(source, node), node)
        for node in _nodes(place)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
    ]


def calls_named(place: Place, names: Iterable[str]) -> list[Span]:
    """The calls in a function of something with such a name."""
    source, wanted = load(place[0]), set(names)
    nodes = [n for n in _nodes(place) if isinstance(n, ast.Call) and _called(n) in wanted]
    return [node_span(source, node) for node in nodes]


def kept_on_context(place: Place) -> list[tuple[str, str, Span]]:
    """(attribute, what is kept there, where) for each `ctx.attribute = value` in a function."""
    source, context = load(place[0]), argument_names(place, 0)[:1]
    found = []
    for node in _nodes(place):
        if not isinstance(node, ast.Assign):
            continue
        for leaf, value in [pair for target in node.targets for pair in pairs(target, node.value)]:
            if isinstance(leaf, ast.Attribute) and [dotted_name(leaf.value)] == context:
                found.append((leaf.attr, text_of(value, place[0]), node_span(source, node)))
    return found


def reads_attribute(place: Place, attribute: str) -> list[Span]:
    """Where a function reads the values of `ctx.attribute`, not just its shape or type."""
    source, context = load(place[0]), argument_names(place, 0)[:1]
    return [
        node_span(source, node)
        for node in _nodes(place)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and node.attr == attribute
        and [dotted_name(node.value)] == context
        and not _is_about(source.parents.get(node))
    ]


def computes_with(place: Place, names: list[str]) -> bool:
    """Whether a function uses the values of some of its names, not just their shape or type."""
    source = load(place[0])
    return any(
        isinstance(node, ast.Name)
        and node.id in names
        and isinstance(node.ctx, ast.Load)
        and not _is_handed_on(source, node)
        and not _is_about(source.parents.get(node))
        for node in _nodes(place)
    )


def _is_handed_on(source: SourceFile, node: ast.AST) -> bool:
    """Whether a value just gets another name, alone or with others: `ctx.x = x`."""
    outer = source.parents.get(node)
    beyond = source.parents.get(outer) if isinstance(outer, ast.Tuple) else outer
    return isinstance(beyond, ast.Assign)


def _is_about(around: ast.AST | None) -> bool:
    """Whether the values are not read: `x.shape`, `zeros_like(x)`, `out=x`."""
    match around:
        case ast.keyword(arg="out"):
            return True
        case ast.Attribute(attr=attribute):
            return attribute in _FACTS or attribute.startswith("new_")
        case ast.Call():
            return _called(around).endswith("_like")
    return False


def writes_to(place: Place, name: str) -> list[Span]:
    """Where a function changes one of its variables in place."""
    source = load(place[0])
    return [node_span(source, node) for node in _nodes(place) if _written(node) == name]


def _written(node: ast.AST) -> str:
    target: ast.expr | None = None
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=method)):
            target = value if method.endswith("_") and not method.endswith("__") else None
        case ast.AugAssign(target=changed) | ast.Assign(targets=[ast.Subscript() as changed]):
            target = changed
    while isinstance(target, (ast.Subscript, ast.Call, ast.Attribute)):
        # `x[0]`, `x.data`, and `x.mul_(2).add_(1)`
        target = target.func if isinstance(target, ast.Call) else target.value
    return target.id if isinstance(target, ast.Name) else ""


def schema_of(file: str, operator: str) -> Span | None:
    """The call that defines an operator by its schema: `lib.define("scale(Tensor x) ...")`."""
    source = load(file)
    begins = re.compile(rf"(\w+::)?{re.escape(operator)}\b")
    found = [
        node_span(source, node)
        for node in (ast.walk(source.tree) if source.tree is not None else ())
        if isinstance(node, ast.Call)
        and _called(node) == "define"
        and any(
            isinstance(a, ast.Constant) and isinstance(a.value, str) and begins.match(a.value)
            for a in node.args
        )
    ]
    return found[0] if len(found) == 1 else None
