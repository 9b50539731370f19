"""Where attributes are read, and whether all elements of a list are used alike."""

from __future__ import annotations

import ast

from whygrad.source.attributes import fills
from whygrad.source.files import FUNCTIONS, SourceFile, load

Loop = ast.For | ast.AsyncFor | ast.comprehension

_PASSING_ON = ("zip", "enumerate", "reversed", "list", "tuple", "iter")
_LEAVING = (ast.Continue, ast.Break, ast.Try)


def reads_of(file: str, attribute: str) -> list[ast.expr]:
    """Where a file reads an attribute of this name, or may do so by a name that it makes up."""
    source = load(file)
    found: list[ast.expr] = []
    for node in ast.walk(source.tree) if source.tree is not None else ():
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) if name == attribute:
                found.append(node)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]):
                found += [node] if name == attribute else []
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id="self"), *_]):
                found.append(node)
    return [node for node in found if not (_is_filling(source, node) or _in_init(source, node))]


def is_mentioned(file: str, name: str) -> bool:
    """Whether a file has this name, as an attribute or a text."""
    tree = load(file).tree
    return any(
        (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.Constant) and node.value == name)
        for node in (ast.walk(tree) if tree is not None else ())
    )


def is_conditional(file: str, read: ast.expr) -> bool:
    """Whether a condition decides about a place in a function: it may be true another time."""
    source = load(file)
    inner: ast.AST = read
    around = source.parents.get(inner)
    while around is not None and not isinstance(around, (ast.FunctionDef, ast.Lambda)):
        deciding = isinstance(around, (ast.If, ast.IfExp, ast.While)) and inner is not around.test
        if deciding or isinstance(around, (ast.match_case, ast.BoolOp, ast.ExceptHandler)):
            return True
        inner, around = around, source.parents.get(around)
    return isinstance(around, ast.FunctionDef) and _may_return_before(around, inner)


def _may_return_before(function: ast.FunctionDef, last: ast.AST) -> bool:
    """Whether a function can end before one of its statements."""
    places = [place for place, statement in enumerate(function.body) if statement is last]
    before = function.body[: places[0]] if places else []
    return any(isinstance(node, ast.Return) for earlier in before for node in ast.walk(earlier))


def goes_through_all(file: str, attribute: str) -> bool:
    """Whether a file uses every element of a list of modules alike, without choosing.

    Then one that was left out was left out by mistake. Where it chooses, the time of that one
    may still come: an expert that no example was sent to, the head of another task.
    """
    source, uses = load(file), reads_of(file, attribute)
    return bool(uses) and all(_goes_through(source, node) for node in uses)


def _is_filling(source: SourceFile, node: ast.expr) -> bool:
    """`self.layers.append(...)` and `self.layers[0] = ...` only fill what they read."""
    around: ast.AST | None = node
    while around is not None and not isinstance(around, ast.stmt):
        around = source.parents.get(around)
    name = getattr(node, "attr", "")
    return isinstance(around, ast.stmt) and bool(name) and fills(around, name)


def _in_init(source: SourceFile, node: ast.AST) -> bool:
    around: ast.AST | None = node
    while around is not None and not isinstance(around, FUNCTIONS):
        around = source.parents.get(around)
    return isinstance(around, FUNCTIONS) and around.name == "__init__"


def _goes_through(source: SourceFile, node: ast.expr) -> bool:
    """Whether a read belongs to a loop over all elements, or takes one by a fixed number."""
    match source.parents.get(node):
        case ast.Call(func=ast.Name(id="len")):
            return True
        case ast.Call(func=ast.Name(id=name)) as call if name in _PASSING_ON:
            return _goes_through(source, call)
        case ast.Attribute(attr="values" | "items") as method:
            made = source.parents.get(method)
            return isinstance(made, ast.Call) and _goes_through(source, made)
        case ast.Subscript(value=value, slice=ast.Slice()) as part if value is node:
            return _goes_through(source, part)
        case ast.Subscript(slice=ast.Constant() | ast.UnaryOp(operand=ast.Constant())):
            return True
        case ast.Subscript(slice=ast.Name(id=index)) as element:
            loop = _counting_loop(source, element, index)
            return loop is not None and not _chooses(loop, {index})
        case (ast.For() | ast.AsyncFor() | ast.comprehension()) as loop if loop.iter is node:
            return not _chooses(loop, _targets(loop))
    return False


def _counting_loop(source: SourceFile, node: ast.AST, index: str) -> Loop | None:
    """The loop around a node that counts with this name."""
    around: ast.AST | None = node
    while around is not None and not isinstance(around, FUNCTIONS):
        loops: list[Loop] = list(getattr(around, "generators", ()))
        loops += [around] if isinstance(around, ast.For) else []
        for loop in loops:
            called = getattr(getattr(loop.iter, "func", None), "id", "")
            if index in _targets(loop) and called in ("range", "enumerate"):
                return loop
        around = source.parents.get(around)
    return None


def _targets(loop: Loop) -> set[str]:
    return {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}


def _chooses(loop: Loop, names: set[str]) -> bool:
    """Whether a loop may pass over an element: it leaves early, or uses it under a condition."""
    if isinstance(loop, ast.comprehension):
        return bool(loop.ifs)
    for node in [node for statement in loop.body for node in ast.walk(statement)]:
        if isinstance(node, _LEAVING):
            return True
        if isinstance(node, (ast.If, ast.IfExp)):
            inside = set(ast.walk(node)) - set(ast.walk(node.test))
            if any(_calls_one_of(part, names) for part in inside):
                return True
    return False


def _calls_one_of(node: ast.AST, names: set[str]) -> bool:
    """`layer(x)` or `self.layers[i](x)`."""
    if not isinstance(node, ast.Call):
        return False
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node.func))
