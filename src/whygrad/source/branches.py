"""What in the source decides that one run of a function does something and another does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.source.bindings import dotted_name
from whygrad.source.files import FUNCTIONS, SourceFile, load
from whygrad.source.spans import Span
from whygrad.source.tree import node_span, statement_at, text_of

_LEAVES = (ast.Return, ast.Break, ast.Continue, ast.Raise)
_WRITERS = frozenset(
    """
    append extend insert pop popleft appendleft clear update add remove setdefault discard
    """.split()
)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BUILTINS = frozenset(["len", "self", "int", "float", "bool", "range", "torch", "any", "all"])


def decision(one: Span | None, other: Span | None) -> Span | None:
    """The condition, or the loop's collection, that led to one place and not to the other.

    Both lie in the same function. None for `other` means that it was left before.
    """
    for here, there in ((one, other), (other, one)):
        found = _around(here, there) if here is not None else None
        if found is not None:
            return found
    left = one if other is None else other if one is None else None
    return _early_exit(left) if left is not None else None


def _around(here: Span, there: Span | None) -> Span | None:
    source = load(here.file)
    chain = source.chain(here.extent)
    other = source.chain(there.extent) if there is not None and there.file == here.file else []
    start = max(
        (i for i, n in enumerate(chain) if isinstance(n, (*FUNCTIONS, ast.Lambda))), default=-1
    )
    for index in range(start + 1, len(chain) - 1):
        node, child = chain[index], chain[index + 1]
        head = _head(node)
        if head is None or _holds(head, child):
            continue
        if _arm(node, child) != _arm_in(node, other):
            skipping = _skips(node, here.line) if isinstance(node, _LOOPS) else None
            return node_span(source, skipping or head)
    return None


def _skips(loop: ast.AST, line: int) -> ast.expr | None:
    """The condition under which a round of a loop, or its rest, is left out before a line."""
    found = [
        node.test
        for node in ast.walk(loop)
        if isinstance(node, ast.If)
        and node.lineno <= line
        and any(isinstance(part, (ast.Continue, ast.Break)) for part in ast.walk(node))
    ]
    return found[-1] if found else None


def _head(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.If(test=head) | ast.While(test=head) | ast.IfExp(test=head):
            return head
        case ast.For(iter=head) | ast.AsyncFor(iter=head) | ast.Match(subject=head):
            return head
        case (
            ast.ListComp(generators=[loop, *_])
            | ast.SetComp(generators=[loop, *_])
            | ast.GeneratorExp(generators=[loop, *_])
        ):
            return loop.iter
    return None


def _holds(head: ast.expr, child: ast.AST) -> bool:
    return child is head


def _arm(node: ast.AST, child: ast.AST) -> str:
    """Which part of a node a child belongs to."""
    for name, value in ast.iter_fields(node):
        if value is child or (isinstance(value, list) and child in value):
            return name
    return ""


def _arm_in(node: ast.AST, chain: list[ast.AST]) -> str | None:
    """The part of a node in which another chain goes on; None if it does not come there."""
    if node not in chain or chain.index(node) + 1 >= len(chain):
        return None
    return _arm(node, chain[chain.index(node) + 1])


def _early_exit(span: Span) -> Span | None:
    """The nearest condition before a place under which the function, or the loop, is left."""
    source = load(span.file)
    chain = source.chain(span.extent)
    scope = next((n for n in reversed(chain) if isinstance(n, FUNCTIONS)), None)
    if scope is None:
        return None
    found = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.If)
        and (node.end_lineno or 0) < span.line
        and any(isinstance(part, _LEAVES) for part in ast.walk(node))
    ]
    return node_span(source, max(found, key=lambda n: n.lineno).test) if found else None


def origin(span: Span) -> Span:
    """For a condition that is a variable: what it was last set to before, in the same function."""
    source = load(span.file)
    chain = source.chain(span.extent)
    names = {n.id for n in ast.walk(chain[-1]) if isinstance(n, ast.Name)} if chain else set()
    scope = next((n for n in reversed(chain) if isinstance(n, FUNCTIONS)), None)
    if scope is None or len(names) != 1:
        return span
    name = names.pop()
    found = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and node.lineno < span.line
        and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]
    return node_span(source, found[-1].value) if len(found) == 1 else span


def state_read(span: Span) -> set[str]:
    """The names and attributes that an expression looks at: `calls`, `self.step`."""
    source = load(span.file)
    chain = source.chain(span.extent)
    if not chain:
        return set()
    found = set()
    for node in ast.walk(chain[-1]):
        name = dotted_name(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if name and name not in _BUILTINS and isinstance(getattr(node, "ctx", None), ast.Load):
            found.add(name)
    return {n for n in found if not any(o.startswith(n + ".") for o in found)}


def state_behind(span: Span) -> dict[str, Span]:
    """What an expression depends on beside arguments, and where it is read.

    Variables of the function stand for what they were set from.
    """
    source = load(span.file)
    scopes = [n for n in source.chain(span.extent) if isinstance(n, (*FUNCTIONS, ast.Lambda))]
    given, own = _local_names(scopes[-1]) if scopes else (set(), {})
    found: dict[str, Span] = {}
    waiting, done = [(name, span) for name in sorted(state_read(span))], set()
    while waiting:
        name, read = waiting.pop(0)
        root = name.partition(".")[0]
        if root in own and root not in given:
            if root not in done:
                done.add(root)
                for value in own[root]:
                    place = node_span(source, value)
                    waiting += [(other, place) for other in sorted(state_read(place))]
        elif root not in given or "." in name:
            found.setdefault(name, read)
    return found


def _local_names(scope: ast.AST) -> tuple[set[str], dict[str, list[ast.expr]]]:
    """The parameters of a function, and its own variables with what they are set from."""
    arguments = getattr(scope, "args", None)
    given = {a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)} if arguments else set()
    outer = {
        name
        for node in ast.walk(scope)
        if isinstance(node, (ast.Global, ast.Nonlocal))
        for name in node.names
    }
    own: dict[str, list[ast.expr]] = {}
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=targets, value=value):
                written = [n for target in targets for n in ast.walk(target)]
            case ast.AugAssign(target=target, value=value) | ast.For(target=target, iter=value):
                written = list(ast.walk(target))
            case _:
                continue
        for part in written:
            stored = isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            if isinstance(part, ast.Name) and stored and part.id not in outer:
                own.setdefault(part.id, []).append(value)
    return given, own


def conditions_around(span: Span) -> list[Span]:
    """The conditions and loops by which a function comes to a place, the nearest first."""
    source = load(span.file)
    chain = source.chain(span.extent)
    kinds = (*FUNCTIONS, ast.Lambda)
    start = max((i for i, n in enumerate(chain) if isinstance(n, kinds)), default=-1)
    found = [
        head
        for node, child in zip(chain[start + 1 :], chain[start + 2 :], strict=False)
        if isinstance(node, (ast.If, ast.IfExp, *_LOOPS))
        and (head := _head(node)) is not None
        and not _holds(head, child)
    ]
    spans = [node_span(source, head) for head in reversed(found)]
    left = _early_exit(span)
    return [*spans, left] if left is not None else spans


def changes(file: str, names: set[str], *, within: tuple[int, int] | None = None) -> list[Span]:
    """Where a file changes a variable or an attribute with such a name, `within` some lines."""
    source = load(file)
    wanted = {name.rpartition(".")[2] if "." in name else name for name in names}
    plain = {name for name in names if "." not in name}
    found = []
    for node in ast.walk(source.tree) if source.tree is not None else ():
        line = getattr(node, "lineno", 0)
        if within is not None and not within[0] <= line <= within[1]:
            continue
        if any(_is_same(target, wanted, plain) for target in _changed(node)):
            found.append(node_span(source, node))
    return sorted(found, key=lambda span: span.line)


def _is_same(target: ast.expr, attributes: set[str], plain: set[str]) -> bool:
    match target:
        case ast.Name(id=name):
            return name in plain
        case ast.Attribute(attr=name):
            return name in attributes - plain
        case ast.Subscript(value=value):
            return _is_same(value, attributes, plain)
    return False


def _changed(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=targets):
            for target in targets:
                yield from target.elts if isinstance(target, ast.Tuple) else [target]
        case ast.AugAssign(target=target):
            yield target
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _WRITERS:
            yield value


def calls_between(file: str, first: int, last: int, methods: frozenset[str]) -> list[Span]:
    """Calls of methods with such a name on the lines between two others."""
    source = load(file)
    return [
        node_span(source, node)
        for node in (ast.walk(source.tree) if source.tree is not None else ())
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
        and first < node.lineno < last
    ]


def function_lines(span: Span) -> tuple[int, int]:
    """The first and the last line of the function around a place."""
    source: SourceFile = load(span.file)
    scopes = [n for n in source.chain(span.extent) if isinstance(n, (*FUNCTIONS, ast.Lambda))]
    if not scopes:
        return 1, len(source.lines)
    return scopes[-1].lineno, scopes[-1].end_lineno or scopes[-1].lineno


def in_constructor(span: Span) -> bool:
    return span.function.rpartition(".")[2] == "__init__" or statement_at(span) is None


def short_text(span: Span, width: int = 40) -> str:
    """The text of a place, if it is short enough to be quoted."""
    chain = load(span.file).chain(span.extent)
    text = text_of(chain[-1], span.file) if chain else ""
    return text if len(text) <= width and "\n" not in text else ""
