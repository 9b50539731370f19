"""Where a transform such as `vmap(f)` is made, and what the function that it runs returns."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from whygrad.source.bindings import Names, dotted_name, names_of
from whygrad.source.callees import callee
from whygrad.source.files import FunctionNode, SourceFile, load
from whygrad.source.reaching import origins
from whygrad.source.spans import Span, line_span
from whygrad.source.tree import expression_at, full_name, node_span

_MAX_HOPS = 6
_MODULES = ("torch", "functorch")


def made_at(spans: Iterable[Span], wanted: frozenset[str]) -> Span | None:
    """The call that makes the transform which the innermost of these spans runs.

    Where the source does not lead there, the one such call in the spans' files.
    """
    spans = list(spans)
    for span in spans[:1]:
        node, source = expression_at(span), load(span.file)
        names = names_of(source)
        if isinstance(node, ast.Call) and names is not None:
            found = next(_Search(source, names, wanted).makers(node.func, _MAX_HOPS), None)
            found = found or (node if _is_wanted(source, node.func, wanted) else None)
            if found is not None:
                return node_span(source, found)
    calls = [call for file in dict.fromkeys(s.file for s in spans) for call in _all(file, wanted)]
    return calls[0] if len(calls) == 1 else None


def _all(file: str, wanted: frozenset[str]) -> list[Span]:
    source = load(file)
    nodes = ast.walk(source.tree) if source.tree is not None else ()
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return [node_span(source, call) for call in calls if _is_wanted(source, call.func, wanted)]


def _is_wanted(source: SourceFile, callee: ast.expr, wanted: frozenset[str]) -> bool:
    module, _, name = (full_name(source, callee) or "").rpartition(".")
    return name in wanted and module.startswith(_MODULES)


class _Search:
    """Follows a callable through names, nested transforms and functions that return it."""

    def __init__(self, source: SourceFile, names: Names, wanted: frozenset[str]) -> None:
        self.source, self.names, self.wanted = source, names, wanted

    def makers(self, node: ast.expr, hops: int) -> Iterator[ast.expr]:
        if hops == 0:
            return
        match node:
            case ast.Call():
                yield from self._made_by(node, hops)
            case ast.Name() | ast.Attribute():
                name = dotted_name(node) or ""
                for definition in origins(self.names, name, node).definitions:
                    for value in definition.values:
                        yield from self.makers(value, hops - 1)
                defined = self.names.defined(name, node) if isinstance(node, ast.Name) else None
                for decorator in getattr(defined, "decorator_list", ()):
                    yield from self._decorator(decorator)
            case ast.IfExp(body=body, orelse=otherwise):
                yield from self.makers(body, hops - 1)
                yield from self.makers(otherwise, hops - 1)

    def _made_by(self, call: ast.Call, hops: int) -> Iterator[ast.expr]:
        if _is_wanted(self.source, call.func, self.wanted):
            yield call
            return
        function = callee(self.names, call)
        if function is not None:
            for value in _given_back(self.names, function):
                yield from self.makers(value, hops - 1)
            return
        for argument in call.args[:1]:  # another transform around it: torch.compile(vmap(f))
            yield from self.makers(argument, hops - 1)

    def _decorator(self, node: ast.expr) -> Iterator[ast.expr]:
        """`@vmap`, or `@partial(vmap, in_dims=1)`."""
        inner = node.args[:1] if isinstance(node, ast.Call) else []
        func = node.func if isinstance(node, ast.Call) else node
        if any(_is_wanted(self.source, part, self.wanted) for part in (func, *inner)):
            yield node


def returned(file: str, first_line: int, follow: bool = True) -> list[Span]:
    """The expressions whose value a function returns, followed through names and helpers.

    A function without any gives back the line that it starts on.
    """
    source = load(file)
    names = names_of(source)
    functions = source.functions.get(first_line, [])
    if names is None or len(functions) != 1:
        return []
    values = _given_back(names, functions[0])
    if not values:
        name_line = getattr(functions[0], "lineno", first_line)
        return [line_span(file, name_line)]
    found: dict[ast.expr, None] = {}
    for value in values:
        found |= dict.fromkeys(_written(names, value, _MAX_HOPS if follow else 0))
    return [node_span(source, node) for node in found]


def _written(names: Names, node: ast.expr, hops: int) -> Iterator[ast.expr]:
    """Where a value is written down: behind variables, and behind calls of own functions."""
    behind: list[ast.expr] = []
    if isinstance(node, ast.Name):
        definitions = origins(names, node.id, node).definitions
        if definitions and all(d.replaces for d in definitions):
            behind = [value for d in definitions for value in d.values]
    elif isinstance(node, ast.Call):
        function = callee(names, node)
        behind = _given_back(names, function) if function is not None else []
    elif isinstance(node, ast.IfExp):
        behind = [node.body, node.orelse]
    if not behind or hops == 0:
        yield node
    for value in behind if hops else ():
        yield from _written(names, value, hops - 1)


def _given_back(names: Names, function: FunctionNode) -> list[ast.expr]:
    if isinstance(function, ast.Lambda):
        return [function.body]
    own = [node for node in ast.walk(function) if names.scope_at(node) is names.scopes[function]]
    return [n.value for n in own if isinstance(n, ast.Return) and n.value is not None]


def definition_line(file: str, first_line: int, of_class: bool = False) -> Span:
    """The `def` line of what starts on a line, behind its decorators; or its class's."""
    source = load(file)
    for function in source.functions.get(first_line, ()):
        node: ast.AST = function
        if of_class and isinstance(source.parents.get(function), ast.ClassDef):
            node = source.parents[function]
        return line_span(file, getattr(node, "lineno", first_line))
    return line_span(file, first_line)
