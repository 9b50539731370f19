"""What a hook's source says: what it returns, and where hooks are put on autograd's nodes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from whygrad.source.bindings import names_of
from whygrad.source.files import FUNCTIONS, FunctionNode, SourceFile, load
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, node_span, text_of

_NODE_METHODS = ("register_hook", "register_prehook")
_OF_NODES = re.compile(r"grad_fn|next_functions|\bnode\b")
_ZEROS = ("zeros", "zeros_like", "zero_", "new_zeros")


def body_of(file: str, line: int, name: str = "", column: int = 0) -> FunctionNode | None:
    """The function or lambda that starts on a line; `column` is that of something in it."""
    source = load(file)
    found = source.functions.get(line, [])
    named = [f for f in found if getattr(f, "name", "<lambda>") == name] or found
    if len(named) > 1 and column:
        extents = {f: source.extent(f) for f in named}
        around = [f for f in named if extents[f][:2] <= (line, column) < extents[f][2:]]
        named = sorted(around, key=lambda f: extents[f][1], reverse=True) or named
    return named[0] if named else None


def given_back(function: FunctionNode) -> list[ast.expr]:
    """The expressions that a function may return, without None."""
    if isinstance(function, ast.Lambda):
        parts = [function.body]
    else:
        parts = [n.value for n in _own(function) if isinstance(n, ast.Return) and n.value]
    parts = [branch for part in parts for branch in _branches(part)]
    return [p for p in parts if not (isinstance(p, ast.Constant) and p.value is None)]


def _branches(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.IfExp):
        return [*_branches(node.body), *_branches(node.orelse)]
    return [node]


def _own(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's own body, without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


def may_replace(function: FunctionNode) -> bool:
    """Whether a hook may return something other than what it was given, or None."""
    parameters = _parameters(function)
    return any(
        not (isinstance(part, ast.Name) and part.id in parameters) or _is_reassigned(function, part)
        for part in given_back(function)
        if not _gives_none(part)
    )


def _gives_none(node: ast.expr) -> bool:
    """Calls that are made for their effect: `grads.append(g)`, `print(g)`."""
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
    return name in ("append", "extend", "add", "update", "print", "insert", "put")


def _is_reassigned(function: FunctionNode, name: ast.Name) -> bool:
    return bool(_assignments(function, name.id))


def _assignments(function: FunctionNode, name: str) -> list[ast.stmt]:
    """The statements of a function that give a variable its value, or change it."""
    if isinstance(function, ast.Lambda):
        return []
    found = []
    for node in _own(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        names = {part.id for t in targets for part in ast.walk(t) if isinstance(part, ast.Name)}
        if name in names and isinstance(node, ast.stmt):
            found.append(node)
    return sorted(found, key=lambda statement: statement.lineno)


def _makers(function: FunctionNode, name: ast.Name) -> list[ast.stmt]:
    """What made a returned variable, where it is the gradient itself or has no other use."""
    reads = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == name.id and isinstance(node.ctx, ast.Load)
    ]
    is_gradient = name.id in _parameters(function)
    return _assignments(function, name.id) if is_gradient or len(reads) == 1 else []


def _parameters(function: FunctionNode) -> set[str]:
    arguments = function.args
    return {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}


def to_blame(file: str, function: FunctionNode, likely: re.Pattern[str] | None = None) -> Span:
    """The expression that makes a hook's result what it is; `likely` says what it looks like.

    Then a variable that is returned stands for the one statement that made it so.
    """
    source = load(file)
    parts = given_back(function)
    if not parts:
        return node_span(source, function)
    untouched = _parameters(function)
    made = [
        p
        for p in parts
        if not (isinstance(p, ast.Name) and p.id in untouched and not _is_reassigned(function, p))
    ]
    candidates: list[ast.AST] = []
    for part in made or parts:
        steps = _makers(function, part) if isinstance(part, ast.Name) else []
        fitting = [s for s in steps if likely is not None and likely.search(text_of(s, file))]
        candidates.append(fitting[0] if len(fitting) == 1 else part)
    fitting_parts = [
        c for c in candidates if likely is not None and likely.search(text_of(c, file))
    ]
    chosen = (fitting_parts or candidates)[0]
    return _narrowed(source, chosen)


def _narrowed(source: SourceFile, node: ast.AST) -> Span:
    value = getattr(node, "value", None) if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    return node_span(source, value if isinstance(value, ast.expr) else node)


def fits(file: str, function: FunctionNode, likely: re.Pattern[str]) -> bool:
    """Whether what a hook returns looks like this."""
    return bool(likely.search(text_of(function, file)))


def is_plain_zero(function: FunctionNode) -> bool:
    """Whether a hook is written to return zeros: `g * 0`, `torch.zeros_like(g)`."""
    parts = given_back(function)
    return bool(parts) and all(_is_zero(part) for part in parts)


def _is_zero(node: ast.expr) -> bool:
    match node:
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return _is_zero(left) or _is_zero(right)
        case ast.Constant(value=value):
            return isinstance(value, (int, float)) and value == 0
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name in _ZEROS
    return False


def node_hooks(file: str) -> list[tuple[Span, FunctionNode | None]]:
    """Where a file puts hooks on autograd's nodes, each with its function if names tell."""
    source = load(file)
    found: list[tuple[Span, FunctionNode | None]] = []
    for node in ast.walk(source.tree) if source.tree is not None else ():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in _NODE_METHODS or not node.args:
            continue
        if _OF_NODES.search(text_of(node.func.value, file)):
            found.append((node_span(source, node), handed_over(file, node.args[0])))
    return found


def handed_over(file: str, node: ast.expr) -> FunctionNode | None:
    """The function that an argument is, if it is written there or defined in the file."""
    match node:
        case ast.Lambda():
            return node
        case ast.Call(
            func=ast.Name(id="partial") | ast.Attribute(attr="partial"), args=[inner, *_]
        ):
            return handed_over(file, inner)
        case ast.Name(id=name):
            names = names_of(load(file))
            defined = names.defined(name, node) if names is not None else None
            return defined if isinstance(defined, FUNCTIONS) else _assigned_lambda(file, name)
        case ast.Attribute(attr=name):
            methods = [
                part
                for part in ast.walk(load(file).tree or ast.Module([], []))
                if isinstance(part, FUNCTIONS) and part.name == name
            ]
            return methods[0] if len(methods) == 1 else None
    return None


def _assigned_lambda(file: str, name: str) -> FunctionNode | None:
    tree = load(file).tree
    found = [
        node.value
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Lambda)
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    return found[0] if len(found) == 1 else None


def first_match(file: str, function: FunctionNode, pattern: re.Pattern[str]) -> Span | None:
    """The first simple statement of a function, or the lambda's body, whose text matches."""
    if isinstance(function, ast.Lambda):
        parts: list[ast.AST] = [function.body]
    else:
        parts = [n for n in _own(function) if isinstance(n, ast.stmt) and not hasattr(n, "body")]
    parts.sort(key=lambda part: getattr(part, "lineno", 0))
    found = next((part for part in parts if pattern.search(text_of(part, file))), None)
    return node_span(load(file), found) if found is not None else None


def argument_function(span: Span, keyword: str) -> FunctionNode | None:
    """The function that the call at a span is given under a name, if the source shows it."""
    call = expression_at(span)
    given = (
        [k.value for k in call.keywords if k.arg == keyword] if isinstance(call, ast.Call) else []
    )
    return handed_over(span.file, given[0]) if given else None
