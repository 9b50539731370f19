"""Where attributes are set, and which line makes a thing, as far as the source tells."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from whygrad.source.bindings import COLLECTORS, pairs
from whygrad.source.files import DEFINITIONS, FunctionNode, load
from whygrad.source.spans import Span
from whygrad.source.tree import assigned_names, expression_at, function_at, node_span, statement_at
from whygrad.source.uses import values_in

_SETTERS = {"setattr", "register_buffer", "register_parameter", "add_module", "register_module"}


def store_of(spans: Sequence[Span], attribute: str) -> ast.stmt | None:
    """The statement that sets an attribute, in the functions of these calls, innermost first."""
    for span in spans:
        own, in_class = statement_at(span), function_at(span) is None and class_at(span) is not None
        found = [s for s in _statements(span) if _sets(s, attribute, in_class)]
        if own in found:
            return own
        filled = [s for s in found if _value(s) is not None]
        if found:
            return (filled or found)[0]
    return None


def filling(spans: Sequence[Span], attribute: str) -> ast.stmt | None:
    """The statement around one of these calls that puts something into an attribute's list."""
    for span in spans:
        statement = statement_at(span)
        if statement is not None and fills(statement, attribute):
            return statement
    return None


def statement_span(span: Span, statement: ast.stmt) -> Span:
    """A statement, or its first part if it is long."""
    source = load(span.file)
    whole = node_span(source, statement)
    if whole.line == whole.end_line:
        return whole
    match statement:
        case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
            return node_span(source, target)
        case ast.Expr(value=ast.Call(func=func)):
            return node_span(source, func)
    return whole


def _sets(statement: ast.stmt, attribute: str, in_class: bool) -> bool:
    """Whether a statement gives an attribute, or a name in a class's body, a value."""
    match statement:
        case ast.Assign(targets=targets):
            leaves = [leaf for target in targets for leaf, _ in pairs(target, target)]
            return any(_is_attribute(leaf, attribute, in_class) for leaf in leaves)
        case ast.AnnAssign(target=target, value=ast.expr()):
            return _is_attribute(target, attribute, in_class)
        case ast.Expr(value=ast.Call(func=func, args=args)):
            called = getattr(func, "attr", None) or getattr(func, "id", None)
            named = (a.value for a in args[:2] if isinstance(a, ast.Constant))
            return called in _SETTERS and attribute in named
    return False


def _is_attribute(node: ast.expr, attribute: str, in_class: bool) -> bool:
    match node:
        case ast.Attribute(attr=name):
            return name == attribute
        case ast.Name(id=name):
            return in_class and name == attribute
    return False


def _value(statement: ast.stmt) -> ast.expr | None:
    """What is set, unless it is just None."""
    value = getattr(statement, "value", None)
    return None if isinstance(value, ast.Constant) and value.value is None else value


def fills(statement: ast.stmt, attribute: str) -> bool:
    """Whether a statement puts something into what an attribute holds."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=holder, attr=method))):
            return method in COLLECTORS and _is_below(holder, attribute)
        case ast.Assign(targets=[ast.Subscript(value=holder)]) | ast.AugAssign(target=holder):
            return _is_below(holder, attribute)
    return False


def _is_below(node: ast.expr, attribute: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == attribute


def _statements(span: Span) -> Iterator[ast.stmt]:
    """The statements of the function, or of the class's body or module, around a span."""
    scope: ast.AST | None = function_at(span) or class_at(span) or load(span.file).tree
    waiting: list[ast.AST] = list(ast.iter_child_nodes(scope)) if scope is not None else []
    found = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            found.append(node)
        if not isinstance(node, (*DEFINITIONS, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return iter(sorted(found, key=lambda statement: statement.lineno))


def class_at(span: Span) -> ast.ClassDef | None:
    """The class whose definition a span lies in."""
    chain = load(span.file).chain(span.extent)
    return next((node for node in reversed(chain) if isinstance(node, ast.ClassDef)), None)


def is_own_init(span: Span, classes: Iterable[str]) -> bool:
    """Whether a span lies in the `__init__` of a module: of one of these classes, or by its bases.

    Other objects make modules in their `__init__` too, but are not made of them.
    """
    function, owner = function_at(span), class_at(span)
    if owner is None or getattr(function, "name", "") != "__init__":
        return False
    bases = [getattr(base, "attr", None) or getattr(base, "id", "") for base in owner.bases]
    return owner.name in set(classes) or any(str(base).endswith("Module") for base in bases)


def hands_up(span: Span) -> bool:
    """Whether the function around a span returns what the statement there makes."""
    function, statement = function_at(span), statement_at(span)
    if function is None or isinstance(function, ast.Lambda):
        return function is not None
    if _is_called(span):
        return False
    if isinstance(statement, ast.Return):
        return True
    names = {name for name in assigned_names(span) if "." not in name}
    if statement is None or not names:
        return False
    returned = (n.value for n in _own_nodes(function) if isinstance(n, (ast.Return, ast.Yield)))
    return any(names & set(values_in(value, span.file)) for value in returned)


def _is_called(span: Span) -> bool:
    """Whether what is made is called on the spot, or a method of it: only the result remains."""
    source, node = load(span.file), expression_at(span)
    while isinstance(node, ast.expr):
        around = source.parents.get(node)
        if isinstance(around, ast.Call) and around.func is node:
            return True
        node = around if isinstance(around, ast.expr) else None
    return False


def _own_nodes(function: FunctionNode) -> Iterator[ast.AST]:
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*DEFINITIONS, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
