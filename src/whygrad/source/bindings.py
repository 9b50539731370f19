"""The scopes of a file and everything in them that may define a name.

Names are dotted (`batch.x`); an attribute of the instance is always `self.…`, whatever the
method calls its first parameter, and belongs to the class.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from whygrad.source.files import (
    DEFINITIONS,
    FUNCTIONS,
    ScopeNode,
    SourceFile,
    qualified_name,
    runs_inside,
)

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Methods that put their arguments into the object. So do all that end in an underscore.
COLLECTORS = {"add", "append", "appendleft", "extend", "extendleft", "insert", "push", "put"}
COLLECTORS |= {"setdefault", "update"}


@dataclass(eq=False)
class Scope:
    """A module, class, function or lambda."""

    node: ast.Module | ScopeNode
    parent: Scope | None
    parameters: tuple[str, ...] = ()
    instance: str | None = None  # what a method calls its object
    bound: set[str] = field(default_factory=set)
    in_module: set[str] = field(default_factory=set)  # declared global
    outside: set[str] = field(default_factory=set)  # declared nonlocal
    imports: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, list[Definition]] = field(default_factory=dict)  # by first part

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def qualified_name(self) -> str:
        """Empty for the module."""
        scopes, current = [], self
        while current.parent is not None and not isinstance(current.node, ast.Module):
            scopes.append(current.node)
            current = current.parent
        return qualified_name(scopes[::-1]) if scopes else ""


@dataclass(eq=False)
class Definition:
    """A place where a name may get (`replaces`) or take in a value."""

    name: str
    values: tuple[ast.expr, ...]  # what flows in
    pieces: tuple[ast.AST, ...]  # the source text that belongs to it
    statement: ast.stmt
    scope: Scope  # where it runs, not necessarily where the name lives
    replaces: bool = False


class Names:
    """All scopes and definitions of one file."""

    def __init__(self, source: SourceFile, tree: ast.Module) -> None:
        self.parents = source.parents
        self.module = Scope(tree, None)
        self.scopes: dict[ast.AST, Scope] = {tree: self.module}
        self.of_comprehension: dict[ast.AST, list[Definition]] = {}
        self.blocks: dict[ast.stmt, tuple[int, int]] = {}  # which block, where in it
        self._found: list[Definition] = []
        self._collect(tree)
        for definition in self._found:
            owner, definition.name = self.owner(definition.name, definition.scope)
            owner.definitions.setdefault(first_part(definition.name), []).append(definition)

    def owner(self, name: str, scope: Scope) -> tuple[Scope, str]:
        """The scope in which a name lives, seen from another, and its name there."""
        root, _, rest = name.partition(".")
        current: Scope | None = scope
        while current is not None and current is not self.module:
            if root in current.in_module:
                break
            if current.is_class:
                if current is scope and root in current.bound:
                    return current, f"self.{name}"
            elif root not in current.outside and (
                root in current.bound or root in current.parameters
            ):
                if root == current.instance and current.parent is not None:
                    return current.parent, f"self.{rest}" if rest else "self"
                return current, name
            current = current.parent
        return self.module, name

    def scope_at(self, node: ast.AST) -> Scope:
        """The scope in which a node is evaluated."""
        child, parent = node, self.parents.get(node)
        while parent is not None:
            scope = self.scopes.get(parent)
            if scope is not None and (
                isinstance(scope.node, ast.Module) or runs_inside(child, scope.node)
            ):
                return scope
            child, parent = parent, self.parents.get(parent)
        return self.module

    def imported(self, name: str, node: ast.AST) -> str | None:
        """The full name of an imported thing, as seen from a node; None if it is not one."""
        root, dot, rest = name.partition(".")
        owner, _ = self.owner(root, self.scope_at(node))
        return owner.imports[root] + dot + rest if root in owner.imports else None

    def defined(self, name: str, node: ast.AST) -> ScopeNode | None:
        """The function or class statement that a plain name refers to, as seen from a node."""
        owner, _ = self.owner(name, self.scope_at(node))
        for scope in self.scopes.values():
            if scope.parent is owner and getattr(scope.node, "name", None) == name:
                return None if isinstance(scope.node, ast.Module) else scope.node
        return None

    def _collect(self, tree: ast.Module) -> None:
        waiting: list[tuple[ast.AST, Scope, ast.stmt | None]] = [(tree, self.module, None)]
        while waiting:
            node, scope, statement = waiting.pop()
            if isinstance(node, ast.stmt):
                statement = node
            inner = self._open(node, scope)
            if statement is not None:
                self._bind(node, scope, statement)
            for child in ast.iter_child_nodes(node):
                inside = isinstance(node, ScopeNode) and runs_inside(child, node)
                waiting.append((child, inner if inside else scope, statement))
            for _, block in ast.iter_fields(node):
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    self.blocks |= {s: (id(block), index) for index, s in enumerate(block)}

    def _open(self, node: ast.AST, scope: Scope) -> Scope:
        """The scope that a node's body has: a new one for functions, lambdas and classes."""
        if isinstance(node, DEFINITIONS):
            scope.bound.add(node.name)
        if not isinstance(node, ScopeNode):
            return scope
        parameters = () if isinstance(node, ast.ClassDef) else parameter_names(node.args)
        inner = self.scopes[node] = Scope(node, scope, parameters)
        if scope.is_class and isinstance(node, FUNCTIONS) and parameters and not is_static(node):
            inner.instance = parameters[0]
        return inner

    def _bind(self, node: ast.AST, scope: Scope, statement: ast.stmt) -> None:
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    root = first_part(alias.name)
                    scope.imports[alias.asname or root] = alias.name if alias.asname else root
                scope.bound |= {alias.asname or first_part(alias.name) for alias in aliases}
            case ast.ImportFrom(module=module, names=aliases):
                prefix = f"{module}." if module else ""
                scope.imports |= {a.asname or a.name: prefix + a.name for a in aliases}
                scope.bound |= {a.asname or a.name for a in aliases}
            case ast.Global(names=declared):
                scope.in_module |= set(declared)
            case ast.Nonlocal(names=declared):
                scope.outside |= set(declared)
            case ast.ExceptHandler(name=str(name)):
                scope.bound.add(name)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(pairs(target, value), scope, statement)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(pairs(target, value), scope, statement)
            case ast.AugAssign(target=target, value=value):
                self._bind_name(target, scope)
                self._define(base_name(target), (value,), (node,), scope, statement)
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                self._assign(iteration_pairs(target, value), scope, statement)
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._assign(pairs(target, value), scope, statement)
            case ast.NamedExpr(target=target, value=value):
                self._bind_name(target, scope)
                self._define(target.id, (value,), (value,), scope, statement)
            case ast.Match(subject=value, cases=cases):
                for name in captured_names(cases):
                    scope.bound.add(name)
                    self._define(name, (value,), (value,), scope, statement)
            case ast.Call():
                self._mutate(node, scope, statement)
            case _ if isinstance(node, COMPREHENSIONS):
                self.of_comprehension[node] = [
                    Definition(bound, (value,), (value,), statement, scope, replaces=True)
                    for loop in node.generators
                    for target, value in iteration_pairs(loop.target, loop.iter)
                    if (bound := base_name(target))
                ]

    def _assign(
        self, bindings: Iterator[tuple[ast.expr, ast.expr]], scope: Scope, statement: ast.stmt
    ) -> None:
        for target, value in bindings:
            self._bind_name(target, scope)
            whole = dotted_name(target) is not None
            pieces = (value,) if whole else (target, value)  # writing an element is an operation
            self._define(base_name(target), (value,), pieces, scope, statement, whole)

    def _mutate(self, call: ast.Call, scope: Scope, statement: ast.stmt) -> None:
        values = tuple(_argument(a) for a in call.args) + tuple(k.value for k in call.keywords)
        if isinstance(call.func, ast.Attribute):
            method, receiver = call.func.attr, base_name(call.func.value)
            if method in COLLECTORS:
                self._define(receiver, values, values, scope, statement)
            elif method.endswith("_") and not method.endswith("__"):
                self._define(receiver, values, (call,), scope, statement)
        for keyword in call.keywords:
            if keyword.arg == "out":
                self._define(base_name(keyword.value), values, (call,), scope, statement)

    def _bind_name(self, target: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.bound.add(target.id)

    def _define(
        self,
        name: str | None,
        values: tuple[ast.expr, ...],
        pieces: tuple[ast.AST, ...],
        scope: Scope,
        statement: ast.stmt,
        replaces: bool = False,
    ) -> None:
        if name is not None:
            self._found.append(Definition(name, values, pieces, statement, scope, replaces))


@lru_cache(maxsize=64)
def names_of(source: SourceFile) -> Names | None:
    return Names(source, source.tree) if source.tree is not None else None


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with the expression it gets its value from."""
    if isinstance(target, ast.Starred):
        yield from pairs(target.value, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        starred = any(isinstance(e, ast.Starred) for e in [*target.elts, *parts])
        if starred or len(parts) != len(target.elts):
            parts = [value] * len(target.elts)
        for element, part in zip(target.elts, parts, strict=True):
            yield from pairs(element, part)
    else:
        yield target, value


def iteration_pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The same for a loop; `zip`, `enumerate` and `items` are looked into."""
    match target, value:
        case (
            (ast.Tuple(elts=elements) | ast.List(elts=elements)),
            ast.Call(func=ast.Name(id="zip"), args=arguments),
        ) if len(elements) == len(arguments):
            for element, argument in zip(elements, arguments, strict=True):
                yield from iteration_pairs(element, argument)
        case ast.Tuple(elts=[_, element]), ast.Call(
            func=ast.Name(id="enumerate"), args=[inner, *_]
        ):
            yield from iteration_pairs(element, inner)
        case ast.Tuple(elts=[_, element]), ast.Call(func=ast.Attribute(value=inner, attr="items")):
            yield from pairs(element, inner)
        case _:
            yield from pairs(target, value)


def captured_names(cases: list[ast.match_case]) -> Iterator[str]:
    for case in cases:
        for node in ast.walk(case.pattern):
            match node:
                case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                    yield name
                case ast.MatchMapping(rest=str(name)):
                    yield name


def parameter_names(arguments: ast.arguments) -> tuple[str, ...]:
    """All of them, positional ones first."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return tuple(a.arg for a in [*named, arguments.vararg, arguments.kwarg] if a is not None)


def is_static(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(dotted_name(d) == "staticmethod" for d in function.decorator_list)


def dotted_name(node: ast.AST) -> str | None:
    """`a.b.c` for a name or a chain of attributes on one."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def base_name(node: ast.AST) -> str | None:
    """The dotted name of what holds an assignment's target: `batch` for `batch["x"][0]`."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    if isinstance(node, ast.Attribute):
        holder = base_name(node.value)
        held_whole = dotted_name(node.value) is not None
        return f"{holder}.{node.attr}" if holder and held_whole else holder
    return node.id if isinstance(node, ast.Name) else None


def first_part(name: str) -> str:
    return name.partition(".")[0]


def _argument(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node
