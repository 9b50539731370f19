"""Which names an expression takes its values from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.source.bindings import dotted_name

# These tell about a tensor's form. What is computed from them carries none of its values.
FORM_ATTRIBUTES = {"shape", "dtype", "device", "ndim", "layout", "itemsize", "nbytes"}
FORM_ATTRIBUTES |= {"requires_grad", "is_leaf", "is_cuda", "grad_fn", "__class__", "__name__"}
FORM_METHODS = {"size", "dim", "numel", "nelement", "ndimension", "stride", "element_size"}
FORM_METHODS |= {"get_device", "is_floating_point", "is_complex", "is_contiguous", "is_tensor"}
FORM_FUNCTIONS = {"len", "type", "isinstance", "issubclass", "id", "hasattr", "callable"}
FORM_OF_ARGUMENT = {"view_as", "expand_as", "reshape_as", "type_as"}
FORM_OF_RECEIVER = {"new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"}


def reads(*expressions: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    """The dotted names whose values flow into the expressions, each with its node."""
    waiting: list[ast.AST] = list(expressions)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Name, ast.Attribute)):
            name = dotted_name(node)
            if name is None and isinstance(node, ast.Attribute):
                waiting += [] if node.attr in FORM_ATTRIBUTES else [node.value]
            elif name is not None and FORM_ATTRIBUTES.isdisjoint(name.split(".")[1:]):
                yield name, node
        else:
            waiting += _parts(node)


def _parts(node: ast.AST) -> list[ast.AST]:
    """The parts of an expression from which its value is made."""
    match node:
        case ast.Call():
            return _parts_of_call(node)
        case ast.IfExp(body=body, orelse=otherwise):
            return [body, otherwise]
        case ast.Subscript(value=value) | ast.NamedExpr(value=value) | ast.Lambda(body=value):
            return [value]
        case ast.ListComp(elt=value) | ast.SetComp(elt=value) | ast.GeneratorExp(elt=value):
            return [value]
        case ast.DictComp(value=value):
            return [value]
        case ast.JoinedStr() | ast.Constant():
            return []
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def _parts_of_call(call: ast.Call) -> list[ast.AST]:
    arguments: list[ast.AST] = [*call.args, *(k.value for k in call.keywords)]
    match call.func:
        case ast.Name(id=name):
            if name in FORM_FUNCTIONS:
                return []
            return arguments[1:] if name.endswith("_like") else [call.func, *arguments]
        case ast.Attribute(attr=name, value=receiver):
            if name in FORM_METHODS or (name == "type" and not arguments):
                return []
            if name in FORM_OF_ARGUMENT:
                return [receiver]
            if name in FORM_OF_RECEIVER:
                return arguments
            if name.endswith("_like"):
                return arguments[1:]
    return [call.func, *arguments]
