"""A method by the first line of its code: its class, its arguments, what it returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from whygrad.source.bindings import names_of, pairs
from whygrad.source.callees import callee
from whygrad.source.endings import falls_off
from whygrad.source.files import FUNCTIONS, FunctionNode, SourceFile, first_line_of, load
from whygrad.source.reaching import origins
from whygrad.source.spans import Span, line_span
from whygrad.source.tree import node_span, text_of

Place = tuple[str, int]  # file, first line of the code
_MAX_HELPERS = 3
_MAX_BASES = 4
_ARITHMETIC = (ast.BinOp, ast.UnaryOp)


@dataclass
class Return:
    """One `return`, and its values where the source tells how many these are."""

    span: Span
    values: list[ast.expr] | None
    node: ast.AST = field(repr=False)

    def text(self, index: int) -> str:
        """A value as it is written; empty if it is not known."""
        if self.values is None or not 0 <= index < len(self.values):
            return ""
        return text_of(self.values[index], self.span.file)


def function_at(place: Place) -> FunctionNode | None:
    """None if there is no source, or if two begin on that line."""
    found = load(place[0]).functions.get(place[1], [])
    return found[0] if len(found) == 1 else None


def head_span(place: Place) -> Span:
    """The line with the `def`, below its decorators."""
    function = function_at(place)
    return line_span(place[0], function.lineno if function is not None else place[1])


def class_span(place: Place) -> Span | None:
    """The first line of the class that a method stands in."""
    function = function_at(place)
    owner = load(place[0]).parents.get(function) if function is not None else None
    return line_span(place[0], owner.lineno) if isinstance(owner, ast.ClassDef) else None


def sibling(place: Place, *names: str) -> Place | None:
    """Another method of the class that a method stands in, or of one that it inherits from."""
    function, source = function_at(place), load(place[0])
    owner = source.parents.get(function) if function is not None else None
    scope = names_of(source)
    for _ in range(_MAX_BASES):
        if not isinstance(owner, ast.ClassDef) or scope is None:
            return None
        for node in owner.body:
            if isinstance(node, FUNCTIONS) and node.name in names:
                return place[0], first_line_of(node)
        bases = [base.id for base in owner.bases if isinstance(base, ast.Name)]
        owner = next(iter(scope.defined(base, owner) for base in bases), None)
    return None


def decorator_line(place: Place) -> Span:
    """The first line of a function, decorators included."""
    return line_span(*place)


def class_named(file: str, name: str) -> Span | None:
    """The first line of the one class of a file that has this name."""
    tree = load(file).tree
    nodes = ast.walk(tree) if tree is not None else ()
    found = [n for n in nodes if isinstance(n, ast.ClassDef) and n.name == name]
    return line_span(file, found[0].lineno) if len(found) == 1 else None


def argument_names(place: Place | None, skipped: int) -> list[str]:
    """The positional arguments of a function but for the first ones; none if it takes `*args`."""
    function = function_at(place) if place is not None else None
    if function is None or function.args.vararg is not None:
        return []
    listed = [*function.args.posonlyargs, *function.args.args]
    return [argument.arg for argument in listed][skipped:]


# --- what comes back --------------------------------------------------------------------------


def returns_of(place: Place) -> list[Return]:
    """Every `return` of a function, in the order of the source."""
    function, source = function_at(place), load(place[0])
    if function is None:
        return []
    if isinstance(function, ast.Lambda):
        return [_return(source, function.body, function.body, 0)]
    return [
        _return(source, node, node.value, 0)
        for node in own_nodes(function)
        if isinstance(node, ast.Return)
    ]


def end_of(place: Place) -> Return | None:
    """The end of a function, told by its `def`, if it can get there: without a `return`."""
    function = function_at(place)
    if function is None or isinstance(function, ast.Lambda) or not falls_off(function):
        return None
    return Return(head_span(place), [ast.Constant(None)], function)


def is_end(found: Return) -> bool:
    """Whether there is no `return` where the values come from."""
    return isinstance(found.node, FUNCTIONS)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs in a function itself, not in those that it defines."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            waiting[:0] = ast.iter_child_nodes(node)


def _return(source: SourceFile, node: ast.AST, value: ast.expr | None, depth: int) -> Return:
    if value is None:
        return Return(node_span(source, node), [ast.Constant(None)], node)
    found = _values(source, value)
    if found is None and depth < _MAX_HELPERS:
        helper = _from_helper(source, value, depth)
        if helper is not None:
            return helper
    return Return(node_span(source, node), found, node)


def _values(source: SourceFile, value: ast.expr) -> list[ast.expr] | None:
    """The values that an expression hands over as a tuple, itself if it is surely none."""
    names = names_of(source)
    match value:
        case ast.Tuple(elts=elements):
            return None if any(isinstance(e, ast.Starred) for e in elements) else list(elements)
        case ast.Name(id=name) if names is not None:
            found = origins(names, name, value)
            given = [
                v for d in found.definitions if d.name == name for v in _given(d.statement, name)
            ]
            if len(given) == 1 and isinstance(given[0], ast.Tuple):
                return _values(source, given[0])
            unknown = (ast.Call, ast.Name, ast.Subscript, ast.IfExp, ast.Attribute, ast.Starred)
            if given and not any(isinstance(g, (*unknown, ast.Tuple, ast.List)) for g in given):
                return [value]
            return [value] if not given and found.parameter_of is not None else None
        case ast.Call(func=ast.Name(id="float" | "int" | "bool")):
            return [value]
        case ast.Call(func=ast.Attribute(attr="item" | "numpy" | "tolist")):
            return [value]
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Constant():
            return [value]
    return None


def _given(statement: ast.stmt, name: str) -> Iterator[ast.expr]:
    """The expressions that a statement gives to a name."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                for leaf, part in pairs(target, value):
                    if isinstance(leaf, ast.Name) and leaf.id == name:
                        yield part
        case ast.AugAssign(target=ast.Name(id=own), value=value) if own == name:
            yield value
        case ast.AnnAssign(target=ast.Name(id=own), value=ast.expr() as value) if own == name:
            yield value


def _from_helper(source: SourceFile, value: ast.expr, depth: int) -> Return | None:
    """What a helper returns whose result is handed on as it is, if it has one return."""
    names = names_of(source)
    function = callee(names, value) if names is not None and isinstance(value, ast.Call) else None
    if function is None:
        return None
    nodes = [node for node in own_nodes(function) if isinstance(node, ast.Return)]
    found = [_return(source, node, node.value, depth + 1) for node in nodes]
    return found[0] if len(found) == 1 and found[0].values is not None else None


def computed_at(found: Return, index: int) -> Span | None:
    """The one line that computes a returned value, where it has a name; None if there are more."""
    value = found.values[index] if found.values and 0 <= index < len(found.values) else None
    source = load(found.span.file)
    statement = _statement_of(source, value)
    return node_span(source, statement) if statement is not None else None


def formula_at(found: Return, index: int | None, incoming: list[str]) -> Span | None:
    """The line that computes a derivative, from where it is only multiplied by what comes in."""
    value = _handed_over(found, index)
    source, best = load(found.span.file), None
    for _ in range(_MAX_HELPERS):
        factor = _other_factor(value, incoming)
        named = factor if factor is not None else value
        statement = _statement_of(source, named)
        if statement is None or not isinstance(named, ast.Name):
            break
        parts = list(_given(statement, named.id))
        computing = _ARITHMETIC if factor is not None else (*_ARITHMETIC, ast.Call)
        if len(parts) != 1 or not isinstance(parts[0], computing):
            break
        best, value = node_span(source, statement), parts[0]
    return best


def _other_factor(value: ast.expr | None, incoming: list[str]) -> ast.expr | None:
    """`d` in `grad * d`."""
    match value:
        case ast.BinOp(left=ast.Name(id=name), op=ast.Mult(), right=other) if name in incoming:
            return other
        case ast.BinOp(left=other, op=ast.Mult(), right=ast.Name(id=name)) if name in incoming:
            return other
    return None


def _handed_over(found: Return, index: int | None) -> ast.expr | None:
    """A returned value, or the only one that is not `None`."""
    if found.values is None:
        return found.node.value if isinstance(found.node, ast.Return) else None
    if index is not None:
        return found.values[index] if 0 <= index < len(found.values) else None
    given = [value for value in found.values if not _is_none(value)]
    return given[0] if len(given) == 1 else None


def _statement_of(source: SourceFile, value: ast.expr | None) -> ast.stmt | None:
    """The one statement that gives a name its value."""
    names = names_of(source)
    if not isinstance(value, ast.Name) or names is None:
        return None
    definitions = [d for d in origins(names, value.id, value).definitions if d.name == value.id]
    statements = {
        d.statement
        for d in definitions
        if not all(_is_none(given) for given in _given(d.statement, value.id))
    }
    return statements.pop() if len(statements) == 1 else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_none(found: Return, index: int) -> bool:
    """Whether a returned value is written as `None`."""
    known = found.values is not None and 0 <= index < len(found.values)
    return known and found.values is not None and _is_none(found.values[index])
