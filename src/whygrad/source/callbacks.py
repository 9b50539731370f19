"""Where a function that others call keeps what it is given: a hook that stores a layer's output."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from whygrad.source.bindings import COLLECTORS, dotted_name, pairs
from whygrad.source.files import FUNCTIONS, SourceFile, load
from whygrad.source.spans import Span
from whygrad.source.storing import holder
from whygrad.source.tree import expression_at, node_span, receiver, text_of
from whygrad.source.written import origin_of

_OWN = frozenset(["self", "cls"])
_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


@dataclass(frozen=True, slots=True)
class Stored:
    """A place that keeps an argument of the function around it."""

    where: Span
    value: str  # as it is called there
    function: str  # empty for a lambda
    line: int  # at which that function begins


def stored_argument(read: Span) -> Stored | None:
    """The one place in the file that puts an argument where an attribute is read from here.

    `read` is the whole of `self.hidden.grad`, `taps["fc"].grad` or `out.grad`.
    """
    source = load(read.file)
    subject = receiver(source, expression_at(read))
    container = _container(source, subject) if subject is not None else None
    name = dotted_name(container) if container is not None else None
    if name is None:
        return None
    found = list(_storings(source, name))
    return found[0] if len(found) == 1 else None


def _container(source: SourceFile, node: ast.expr) -> ast.expr | None:
    """What holds a value: the list of a loop's variable, the attribute that a name was set from."""
    if isinstance(node, ast.Name):
        looped = _gone_through(source, node)
        node = looped if looped is not None else origin_of(node, source.name)
    return holder(node)


def _gone_through(source: SourceFile, name: ast.Name) -> ast.expr | None:
    """What a loop goes through that gives a variable its values."""
    around = source.parents.get(name)
    while around is not None and not isinstance(around, FUNCTIONS):
        loops: list[ast.AST] = [around]
        if isinstance(around, _COMPREHENSIONS):
            loops = [*around.generators]
        for loop in loops:
            if isinstance(loop, _LOOPS) and any(
                isinstance(n, ast.Name) and n.id == name.id for n in ast.walk(loop.target)
            ):
                return loop.iter
        around = source.parents.get(around)
    return None


def _storings(source: SourceFile, name: str) -> Iterator[Stored]:
    for node in ast.walk(source.tree) if source.tree is not None else ():
        for container, value in _puts(node):
            held = holder(container)
            function = _function(source, node)
            if held is None or function is None or not _is_same(held, name):
                continue
            if _root(value) in _parameters(function) - _OWN:
                line = getattr(function, "lineno", 0)
                called = getattr(function, "name", "")
                where = node_span(source, node)
                yield Stored(where, text_of(value, source.name), called, line)


def _puts(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                for leaf, part in pairs(target, value):
                    if isinstance(leaf, (ast.Attribute, ast.Subscript)):
                        yield leaf, part
        case ast.Call(func=ast.Attribute(value=held, attr=name), args=args, keywords=keywords):
            if name in COLLECTORS or name == "__setitem__":
                for value in [*args, *(keyword.value for keyword in keywords)]:
                    yield from ((held, part) for part in _parts(value))


def _parts(value: ast.expr) -> list[ast.expr]:
    match value:
        case ast.Dict(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            return parts
    return [value]


def _is_same(held: ast.expr, name: str) -> bool:
    own = dotted_name(held) or ""
    if "." in name and "." in own:
        return own.rpartition(".")[2] == name.rpartition(".")[2]
    return own == name


def _root(value: ast.expr) -> str:
    """The name that a value is, or is a part of: `output` for `output[0]`."""
    while isinstance(value, (ast.Subscript, ast.Attribute)):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def _function(source: SourceFile, node: ast.AST) -> ast.AST | None:
    around = source.parents.get(node)
    while around is not None and not isinstance(around, (*FUNCTIONS, ast.Lambda)):
        around = source.parents.get(around)
    return around


def _parameters(function: ast.AST) -> set[str]:
    given = getattr(function, "args", None)
    if not isinstance(given, ast.arguments):
        return set()
    return {arg.arg for arg in [*given.posonlyargs, *given.args, *given.kwonlyargs]}
