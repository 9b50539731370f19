"""Which names an expression reads, what a write changes, and whose values these are."""

from __future__ import annotations

import ast

from whygrad.source.bindings import dotted_name, pairs
from whygrad.source.files import load
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, full_name, function_at, is_method_call, statement_at

_MODULES = ("torch", "numpy", "math")


def values_used(span: Span) -> list[str]:
    """The names, dotted ones whole, that are read as values: not what is called."""
    node: ast.AST | None = expression_at(span)
    if node is None:
        node = statement_at(span)
    return values_in(node, span.file)


def values_in(node: ast.AST | None, file: str) -> list[str]:
    """The same for a piece of syntax."""
    found: list[str] = []
    _collect(node, file, found)
    return list(dict.fromkeys(found))


def _collect(node: ast.AST | None, file: str, found: list[str]) -> None:
    match node:
        case None | ast.Lambda():
            return
        case ast.Call(
            func=ast.Name(id="getattr"),
            args=[ast.Name(id=owner), ast.Constant(value=str(attribute)), *_],
        ):
            found.append(f"{owner}.{attribute}")
        case ast.Name(id="self" | "cls"):
            return
        case ast.Call(func=func, args=args, keywords=keywords):
            source = load(file)
            if isinstance(func, ast.Attribute) and is_method_call(source, node):
                if not _is_own_member(func):
                    _collect(func.value, file, found)
            elif not isinstance(func, (ast.Name, ast.Attribute)):
                _collect(func, file, found)
            for part in (*args, *(keyword.value for keyword in keywords)):
                _collect(part, file, found)
        case ast.Name(id=name) if isinstance(node.ctx, ast.Load):
            found.append(name)
        case ast.Name(id=name) if isinstance(load(file).parents.get(node), ast.AugAssign):
            found.append(name)
        case ast.Attribute():
            dotted = dotted_name(node)
            if dotted is None:
                _collect(node.value, file, found)
            elif not (full_name(load(file), node) or "").startswith(_MODULES):
                found.append(dotted)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            inner: list[str] = []
            for child in ast.iter_child_nodes(node):
                _collect(child, file, inner)
            targets = [n for g in node.generators for n in ast.walk(g.target)]
            own = {n.id for n in targets if isinstance(n, ast.Name)}
            found += [name for name in inner if name.partition(".")[0] not in own]
        case _:
            for child in ast.iter_child_nodes(node):
                _collect(child, file, found)


def _is_own_member(func: ast.Attribute) -> bool:
    """`self.layer(x)`: what is called is a part, not a value."""
    return isinstance(func.value, ast.Name) and func.value.id in ("self", "cls")


def is_parameter(span: Span, name: str) -> bool:
    """Whether a name is an argument of the function around a span: the caller's value."""
    function = function_at(span)
    if function is None:
        return False
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    others = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    root = name.partition(".")[0]
    if root in ("self", "cls") and "." in name:
        return False
    return any(argument.arg == root for argument in (*listed, *others))


def names_set(span: Span) -> list[str]:
    """The names, dotted ones whole, that the assignment around a span sets; no parts of things."""
    statement = statement_at(span)
    targets = list(statement.targets) if isinstance(statement, ast.Assign) else []
    leaves = [leaf for target in targets for leaf, _ in pairs(target, target)]
    return [name for leaf in leaves if (name := dotted_name(leaf))]


def is_value(span: Span) -> bool:
    """Whether the result of the call at a span is used: it is more than a statement."""
    node = expression_at(span)
    return isinstance(node, ast.Call) and not isinstance(
        load(span.file).parents.get(node), ast.Expr
    )


def is_iterated(span: Span) -> bool:
    """Whether a `for` goes through what is at a span."""
    node = expression_at(span)
    around = load(span.file).parents.get(node) if node is not None else None
    return isinstance(around, (ast.For, ast.comprehension)) and around.iter is node


def callee_text(span: Span) -> str | None:
    """What is called at a span, as it is written: `self.encoder`."""
    node = expression_at(span)
    return dotted_name(node.func) if isinstance(node, ast.Call) else None


def is_object_call(span: Span, op: str) -> bool:
    """Whether an object is called here that is neither torch's function `op` nor its method."""
    node = expression_at(span)
    name = full_name(load(span.file), node.func) if isinstance(node, ast.Call) else None
    if name is None or name.startswith(_MODULES):
        return False
    return name.rpartition(".")[2].strip("_") != op.strip("_")


def written_name(span: Span, op: str = "") -> str | None:
    """What an in-place write changes, as the source calls it: `pred` for `pred[..., 0] = x`."""
    statement, node = statement_at(span), expression_at(span)
    target: ast.AST | None = None
    match node, statement:
        case ast.Call(func=ast.Attribute(value=value, attr=method)), _ if (
            method.strip("_") == op.strip("_") or method.endswith("_")
        ) and is_method_call(load(span.file), node):
            target = value
        case ast.Call(keywords=keywords, args=args), _:
            out = next((k.value for k in keywords if k.arg == "out"), None)
            target = out or next(iter(args), None)
        case _, ast.AugAssign(target=changed):
            target = changed
        case _, ast.Assign(targets=[ast.Subscript() as changed]):
            target = changed
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute) and target.attr == "data":
        target = target.value
    return dotted_name(target) if target is not None else None


def augmented_operator(span: Span) -> str | None:
    """The operator of the augmented assignment at a span: `+=`."""
    statement = statement_at(span)
    if not isinstance(statement, ast.AugAssign) or expression_at(span) is not None:
        return None
    return _OPERATORS.get(type(statement.op))


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+=",
    ast.Sub: "-=",
    ast.Mult: "*=",
    ast.Div: "/=",
    ast.FloorDiv: "//=",
    ast.Mod: "%=",
    ast.Pow: "**=",
    ast.MatMult: "@=",
    ast.BitAnd: "&=",
    ast.BitOr: "|=",
    ast.BitXor: "^=",
}
