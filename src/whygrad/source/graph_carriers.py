"""Whether the value of an expression may carry a graph, as far as its text tells."""

from __future__ import annotations

import ast
from collections.abc import Callable

from whygrad.source.bindings import Definition, Names, Scope, dotted_name
from whygrad.source.callees import Function, callee, given_back
from whygrad.source.files import SourceFile, first_line_of
from whygrad.source.reaching import origins
from whygrad.source.tree import decorator_span, enclosing_with, full_name, node_span
from whygrad.source.values import FORM_ATTRIBUTES, FORM_FUNCTIONS, FORM_METHODS

WITHOUT_GRAPH_ATTRIBUTES = FORM_ATTRIBUTES | {"data", "grad"}
WITHOUT_GRAPH_METHODS = FORM_METHODS | {"item", "detach", "tolist", "numpy", "state_dict", "keys"}
WITHOUT_GRAPH_METHODS |= {"argmax", "argmin", "argsort", "eq", "ne", "lt", "gt", "le", "ge"}
WITHOUT_GRAPH_FUNCTIONS = FORM_FUNCTIONS | {"float", "int", "bool", "str", "repr", "range"}
# What these give carries a graph if what they are given does.
PASSING_ON = {"sum", "min", "max", "abs", "round", "list", "tuple", "dict", "set", "zip", "sorted"}
PASSING_ON |= {"reversed", "enumerate", "deque", "deepcopy", "copy", "map", "filter", "pow"}
OTHER_LIBRARIES = {"math", "numpy", "time", "random"}
GRADIENTS_OFF = {"no_grad", "inference_mode"}


def _any_parameter(scope: Scope, name: str) -> bool:
    return True


class GraphCarriers:
    """Answers for one file. A parameter may carry a graph unless the caller knows better."""

    def __init__(
        self,
        source: SourceFile,
        names: Names,
        parameter: Callable[[Scope, str], bool] = _any_parameter,
    ) -> None:
        self._source = source
        self._names = names
        self._parameter = parameter
        self._asked: set[Definition | Function] = set()

    def may_carry(self, node: ast.expr) -> bool:
        self._asked.clear()
        return self._carries(node)

    def _carries(self, node: ast.AST) -> bool:
        match node:
            case ast.Constant() | ast.JoinedStr() | ast.Compare() | ast.Lambda():
                return False
            case ast.UnaryOp(op=ast.Not()):
                return False
            case ast.Name() | ast.Attribute():
                return self._read(node)
            case ast.Call():
                return self._call(node) and not self.is_without_gradients(node)
            case ast.BinOp(left=left, right=right):
                return self._any(left, right) and not self.is_without_gradients(node)
            case ast.IfExp(body=body, orelse=otherwise):
                return self._any(body, otherwise)
            case (
                ast.Subscript(value=value) | ast.NamedExpr(value=value) | ast.DictComp(value=value)
            ):
                return self._carries(value)
            case ast.ListComp(elt=value) | ast.SetComp(elt=value) | ast.GeneratorExp(elt=value):
                return self._carries(value)
            case ast.Dict(values=values):
                return self._any(*values)
        return self._any(*ast.iter_child_nodes(node))

    def _any(self, *nodes: ast.AST) -> bool:
        return any(self._carries(node) for node in nodes)

    def _read(self, node: ast.Name | ast.Attribute) -> bool:
        if isinstance(node, ast.Attribute) and node.attr in WITHOUT_GRAPH_ATTRIBUTES:
            return False
        name = dotted_name(node)
        if name is None:
            return isinstance(node, ast.Attribute) and self._carries(node.value)
        if self._names.imported(name, node) is not None:
            return False
        found = origins(self._names, name, node)
        if found.parameter_of is not None and self._parameter(found.parameter_of, found.name):
            return True
        if not found.definitions:  # the counter of a loop has none
            return found.parameter_of is None and "." in name
        return any(self._first_time(d) and self._any(*d.values) for d in found.definitions)

    def _first_time(self, asked: Definition | Function) -> bool:
        is_new = asked not in self._asked
        self._asked.add(asked)
        return is_new

    def _call(self, call: ast.Call) -> bool:
        arguments = [*call.args, *(k.value for k in call.keywords)]
        name = full_name(self._source, call.func) or ""
        module, _, function = name.rpartition(".")
        if name in WITHOUT_GRAPH_FUNCTIONS or function in WITHOUT_GRAPH_METHODS:
            return False
        if name.partition(".")[0] in OTHER_LIBRARIES:
            return False
        known = callee(self._names, call)
        if known is not None:
            return self._returned(known)
        if name.startswith(".") and isinstance(call.func, ast.Attribute):
            return self._any(call.func.value, *arguments)
        return self._any(*arguments) if module or function in PASSING_ON else True

    def _returned(self, function: Function) -> bool:
        if decorator_span(self._source.name, first_line_of(function), GRADIENTS_OFF) is not None:
            return False
        return self._first_time(function) and self._any(*given_back(self._names, function))

    def is_without_gradients(self, node: ast.AST) -> bool:
        """Whether a node is evaluated where no graph is made."""
        return enclosing_with(node_span(self._source, node), GRADIENTS_OFF) is not None
