"""Methods by name (`step`, `zero_grad`, `backward`) in the code that a stack went through."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from whygrad.source.bindings import base_name, dotted_name, pairs
from whygrad.source.files import SourceFile, load, runs_inside
from whygrad.source.reaching import LOOPS
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, function_at, node_span, statement_at, text_of

_COUNTING = ("range", "len", "print", "min", "max", "int", "tqdm")
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class MethodUse:
    """`optimizer.step()`, or `optimizer.step` where the parentheses were forgotten."""

    span: Span
    receiver: str
    called: bool


def method_uses(spans: Iterable[Span], method: str) -> list[MethodUse]:
    """A method's uses in the functions, or loops of a module, that some places lie in."""
    found: dict[tuple[str, object], MethodUse] = {}
    for span in spans:
        source = load(span.file)
        for node in _own_nodes(_surroundings(source, span)):
            use = _use(source, node, method)
            if use is not None:
                found.setdefault((span.file, use.span.extent), use)
    return list(found.values())


def _surroundings(source: SourceFile, span: Span) -> Sequence[ast.AST]:
    """The body of the function around a place; of a module only the outermost loop."""
    function = function_at(span)
    if function is not None:
        return function.body if isinstance(function.body, list) else []
    chain = source.chain(span.extent)
    return [node for node in chain if isinstance(node, LOOPS)][:1]


def _own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nodes in the order of the source, without those of inner functions and classes."""
    for node in nodes:
        yield node
        if not isinstance(node, SCOPES):
            yield from _own_nodes(ast.iter_child_nodes(node))


def _use(source: SourceFile, node: ast.AST, method: str) -> MethodUse | None:
    match node:
        case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr == method:
            return MethodUse(node_span(source, node), text_of(value, source.name), called=True)
        case ast.Expr(value=ast.Attribute(attr=attr, value=value) as bare) if attr == method:
            return MethodUse(node_span(source, bare), text_of(value, source.name), called=False)
    return None


def gradient_resets(spans: Iterable[Span]) -> list[Span]:
    """`p.grad = None` and `p.grad.zero_()` in the functions that some places lie in."""
    found: dict[tuple[str, object], Span] = {}
    for span in spans:
        source = load(span.file)
        for node in _own_nodes(_surroundings(source, span)):
            if _resets_gradient(node):
                place = node_span(source, node)
                found.setdefault((place.file, place.extent), place)
    return list(found.values())


def _resets_gradient(node: ast.AST) -> bool:
    match node:
        case ast.Assign(targets=[ast.Attribute(attr="grad")], value=ast.Constant(value=None)):
            return True
        case ast.Call(func=ast.Attribute(attr="zero_", value=value)):
            return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(value))
    return False


def called_method(span: Span) -> tuple[str, str, tuple[str, ...]] | None:
    """(receiver, method, arguments) of the method call at a place, as source text."""
    match expression_at(span):
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            return text_of(value, span.file), attr, call_arguments(span)
    return None


def call_arguments(span: Span) -> tuple[str, ...]:
    """The arguments of the call at a place, as source text."""
    match expression_at(span):
        case ast.Call(args=args, keywords=keywords):
            given = (*args, *(keyword.value for keyword in keywords))
            return tuple(text_of(argument, span.file) for argument in given)
    return ()


def assigned_name(span: Span) -> str:
    """The name that gets the value computed at a place: `b` for `y` in `a, b = x, y`."""
    statement = statement_at(span)
    match statement:
        case ast.Assign(targets=targets, value=ast.expr() as value):
            bound = [pair for target in targets for pair in pairs(target, value)]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            bound = [(target, value)]
        case _:
            return ""
    extent = load(span.file).extent
    found = [base_name(target) for target, part in bound if extent(part) == span.extent]
    return (found[0] or "") if found else ""


def is_returned(span: Span) -> bool:
    """Whether a function gives back what is computed at a place."""
    statement = statement_at(span)
    return isinstance(statement, ast.Return) and statement.value is expression_at(span)


def is_name(text: str) -> bool:
    """Whether a text is a name or a chain of attributes, short enough to be quoted."""
    return len(text) <= 40 and all(part.isidentifier() for part in text.split("."))


def short_text(span: Span, width: int = 40) -> str:
    """What is written at a place, if it is short enough to be quoted."""
    text = load(span.file).text(span.extent)
    return text if len(text) <= width and "\n" not in text else ""


Order = Literal["before", "after"]


def order_in_source(one: Span, other: Span) -> Order | None:
    """How two places of one function follow each other; None across functions."""
    if one.file != other.file or function_at(one) is not function_at(other):
        return None
    return "before" if one.extent[:2] < other.extent[:2] else "after"


def common_loop(one: Span, other: Span) -> Span | None:
    """The innermost loop of a function in whose body both places lie."""
    if order_in_source(one, other) is None:
        return None
    source = load(one.file)
    inside = set(_loops_around(source, one)) & set(_loops_around(source, other))
    innermost = max(inside, key=lambda loop: loop.lineno, default=None)
    return node_span(source, innermost) if innermost is not None else None


def _loops_around(source: SourceFile, span: Span) -> Iterator[ast.stmt]:
    """Loops in whose body a place is evaluated, as far as the function around it."""
    chain = source.chain(span.extent)
    for child, node in zip(chain[:0:-1], chain[-2::-1], strict=True):
        if isinstance(node, SCOPES) and runs_inside(child, node):
            return
        if isinstance(node, LOOPS) and child in node.body:
            yield node


def is_wound_forward(span: Span) -> bool:
    """Whether a loop does nothing for training but what is called at a place: to resume."""
    source = load(span.file)
    loop = next(_loops_around(source, span), None)
    if loop is None:
        return False
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
    others = [call for call in calls if source.extent(call) != span.extent]
    return all(dotted_name(call.func) in _COUNTING for call in others)


def same_block(one: Span, other: Span) -> bool:
    """Whether the statements at two places stand in one block, and so run equally often."""
    source, first, second = load(one.file), statement_at(one), statement_at(other)
    if one.file != other.file or first is None or second is None:
        return False
    return any(
        first in block and second in block
        for _, block in ast.iter_fields(source.parents[first])
        if isinstance(block, list)
    )


def same_name(one: str, other: str) -> bool:
    """Whether two names may stand for the same thing: `self.optimizer` and `optimizer`."""
    return one.rpartition(".")[2] == other.rpartition(".")[2]


def names_optimizer(receiver: str) -> bool:
    """Whether a receiver of `step` is written like an optimizer."""
    return "opt" in receiver.rpartition(".")[2].lower()


def is_infinite(text: str) -> bool:
    """Whether an argument is written as an infinity: `float("inf")`, `math.inf`."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    match node:
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(value))]):
            return value.lower().lstrip("+").startswith("inf")
    return (dotted_name(node) or "").rpartition(".")[2].lower() in ("inf", "infinity")
