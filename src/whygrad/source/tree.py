"""From spans to syntax: the expression, statement and names at a place."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

from whygrad.source.bindings import Names, base_name, dotted_name, first_part, names_of, pairs
from whygrad.source.files import (
    FUNCTIONS,
    FunctionNode,
    SourceFile,
    has_place,
    load,
    runs_inside,
    scopes_in,
)
from whygrad.source.spans import Span

# Modules that a notebook's cell uses although another cell imported them.
USUAL_ALIASES = {
    "torch": "torch",
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "optim": "torch.optim",
    "np": "numpy",
    "numpy": "numpy",
    "math": "math",
}


def expression_at(span: Span) -> ast.expr | None:
    """The innermost expression that has exactly this span."""
    nodes = load(span.file).nodes.get(span.extent, ())
    return next((node for node in reversed(nodes) if isinstance(node, ast.expr)), None)


def statement_at(span: Span) -> ast.stmt | None:
    """The innermost statement around a span."""
    chain = load(span.file).chain(span.extent)
    return next((node for node in reversed(chain) if isinstance(node, ast.stmt)), None)


def function_at(span: Span) -> FunctionNode | None:
    """The function or lambda whose body a span lies in."""
    scopes = scopes_in(load(span.file).chain(span.extent))
    return next((node for node in reversed(scopes) if isinstance(node, FunctionNode)), None)


def node_span(source: SourceFile, node: ast.AST) -> Span:
    extent = source.extent(node)
    return Span(source.name, *extent, *source.scope(extent))


def text_of(node: ast.AST, file: str) -> str:
    """A node's source text; empty if it has none."""
    source = load(file)
    return source.text(source.extent(node)) if has_place(node) else ""


def receiver_text(span: Span) -> str | None:
    """The text of what is worked on: a method's object, a function's first argument."""
    node: ast.AST | None = expression_at(span)
    if node is None and isinstance(statement := statement_at(span), ast.AugAssign):
        node = statement
    subject = receiver(load(span.file), node)
    return text_of(subject, span.file) if subject is not None else None


def receiver(source: SourceFile, node: ast.AST | None) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Attribute(value=value)) if is_method_call(source, node):
            return value
        case ast.Call(args=[ast.Starred(value=value), *_]) | ast.Call(args=[value, *_]):
            return value
        case ast.Call(keywords=[ast.keyword(value=value), *_]):
            return value
        case ast.Attribute(value=value) | ast.Subscript(value=value):
            return value
        case ast.AugAssign(target=target):
            return target
    return None


def is_method_call(source: SourceFile, call: ast.Call) -> bool:
    """Whether a call is on an object, not on a module or class."""
    return (full_name(source, call.func) or "").startswith(".")


def _imported(names: Names, dotted: str, node: ast.AST) -> str | None:
    found = names.imported(dotted, node)
    if found is not None:
        return found
    root, dot, rest = dotted.partition(".")
    owner, _ = names.owner(root, names.scope_at(node))
    bound = root in owner.bound or root in owner.parameters
    return USUAL_ALIASES[root] + dot + rest if root in USUAL_ALIASES and not bound else None


def assigned_names(span: Span) -> list[str]:
    """The names that the statement around a span gives a value to."""
    chain = load(span.file).chain(span.extent)
    innermost = max((i for i, n in enumerate(chain) if isinstance(n, ast.stmt)), default=0)
    targets: list[ast.expr] = []
    match chain[innermost] if chain else None:
        case ast.Assign(targets=found):
            targets += found
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            targets.append(target)
        case ast.For(target=target) | ast.AsyncFor(target=target):
            targets.append(target)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            targets += [item.optional_vars for item in items if item.optional_vars is not None]
    targets += [node.target for node in chain[innermost:] if isinstance(node, ast.NamedExpr)]
    leaves = [leaf for target in targets for leaf, _ in pairs(target, target)]
    return list(dict.fromkeys(name for leaf in leaves if (name := base_name(leaf))))


def callee_name(span: Span) -> str | None:
    """The full name of what is called at a span; `.item` for a method of something unknown."""
    node = expression_at(span)
    if isinstance(node, ast.Call):
        return full_name(load(span.file), node.func)
    statement = statement_at(span)
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) and node in statement.decorator_list:
        return full_name(load(span.file), node)
    return None


def full_name(source: SourceFile, node: ast.AST | None) -> str | None:
    """The dotted name of a callable with imports resolved."""
    names, dotted = names_of(source), dotted_name(node) if node is not None else None
    if node is None or names is None or dotted is None:
        return f".{node.attr}" if isinstance(node, ast.Attribute) else None
    imported = _imported(names, dotted, node)
    if imported is not None or "." not in dotted:
        return imported or dotted
    known = isinstance(names.defined(first_part(dotted), node), ast.ClassDef)
    return dotted if known else "." + dotted.rpartition(".")[2]


def enclosing_with(span: Span, names: set[str]) -> Span | None:
    """The context expression around a span, or decorator of its function, with such a name.

    A `with` around the function's definition is not in force when the function runs.
    """
    source = load(span.file)
    chain = source.chain(span.extent)
    for child, node in zip(chain[:0:-1], chain[-2::-1], strict=True):
        if isinstance(node, (ast.With, ast.AsyncWith)) and child in node.body:
            for item in reversed(node.items):
                if _is_called(source, item.context_expr, names):
                    return node_span(source, item.context_expr)
        elif isinstance(node, FunctionNode) and runs_inside(child, node):
            return _decorator(source, node, names)
    return None


def decorator_span(file: str, first_line: int, names: set[str]) -> Span | None:
    """The decorator with such a name on the function whose code starts at a line."""
    source = load(file)
    for function in source.functions.get(first_line, ()):
        found = _decorator(source, function, names)
        if found is not None:
            return found
    return None


def _decorator(source: SourceFile, function: FunctionNode, names: set[str]) -> Span | None:
    decorators = list(getattr(function, "decorator_list", ()))
    around = source.parents.get(function)
    if isinstance(around, ast.Call) and function in around.args:
        decorators.append(around.func)  # torch.no_grad()(lambda x: ...)
    for decorator in decorators:
        if _is_called(source, decorator, names):
            return node_span(source, decorator)
    return None


def _is_called(source: SourceFile, node: ast.expr, names: set[str]) -> bool:
    """Whether an expression is, or chooses between, calls of something with such a name."""
    if isinstance(node, ast.IfExp):
        return any(_is_called(source, branch, names) for branch in (node.body, node.orelse))
    func = node.func if isinstance(node, ast.Call) else node
    written = getattr(func, "attr", None) or getattr(func, "id", None)
    resolved = full_name(source, func) or ""
    return written in names or resolved.rpartition(".")[2] in names


def shorten(text: str, width: int) -> str:
    """Source text on one line; where it is too long, arguments of calls become `…`."""
    text = " ".join(_without_comments(text).split())
    while len(text) > width:
        groups = [group for group in _arguments(text) if group[1] - group[0] > 1]
        if not groups:
            return text[: max(width - 1, 0)] + "…"
        start, end = max(groups, key=lambda group: group[1] - group[0])
        text = text[:start] + "…" + text[end:]
    return text


def _without_comments(text: str) -> str:
    if "#" not in text:
        return text
    lines = text.splitlines()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                lines[line - 1] = lines[line - 1][:column]
    except (tokenize.TokenError, SyntaxError):
        pass  # a fragment may end in the middle
    return "\n".join(lines)


def _arguments(text: str) -> Iterator[tuple[int, int]]:
    """Where the outermost argument lists of calls are, without their parentheses."""
    quote, depth, start = "", 0, 0
    for index, character in enumerate(text):
        if quote:
            if character == quote and text[index - 1] != "\\":
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            is_call = character == "(" and text[index - 1 : index].isidentifier()
            if depth or is_call:
                depth += 1
                start = index + 1 if depth == 1 else start
        elif character in ")]}" and depth:
            depth -= 1
            if depth == 0:
                yield start, index
