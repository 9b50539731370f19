"""Handlers that catch an exception, tell of it, and put nothing in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from whygrad.source.bindings import base_name, parameter_names
from whygrad.source.files import FunctionNode, load
from whygrad.source.handled import Caught, catcher
from whygrad.source.spans import Span, line_span
from whygrad.source.tree import expression_at, full_name, function_at

# Calls that tell of trouble, and calls that tell of anything: these must mention the exception.
_ALARMS = {"warning", "warn", "error", "exception", "critical", "print_exc", "print_exception"}
_TELLS = {"print", "info", "log", "write", "echo", "secho"}
_KEEPS = {"append", "add"}
_EXITS = {"sys.exit", "exit", "quit", "os._exit"}
_TRACES = {"traceback", "exc_info", "format_exc"}
_TEXTS = {"str", "repr", "type"}
_NOT_A_NUMBER = {"nan", "NaN", "inf"}
_LEAVING = (ast.Return, ast.Continue, ast.Break)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def reporting_handler(spans: Sequence[Span], error: str) -> Span | None:
    """The handler that an exception ends in, if all that it does is to tell of it.

    `spans` are the calls that led to it, innermost first. Whatever else a program does about an
    exception, or may do in a place that cannot be seen, it does on purpose.
    """
    for place, span in enumerate(spans):
        caught = catcher(span, error)
        if caught is None:
            continue
        if caught.handler is None or not isinstance(caught.attempt, ast.Try):
            return None
        if _passes_on(caught.handler):
            continue
        swallowed = _Attempt(caught, caught.attempt, caught.handler, span)
        tells = swallowed.only_tells(place == 0, spans[place + 1 :])
        return line_span(span.file, caught.handler.lineno) if tells else None
    return None


class _Attempt:
    """A `try` and the handler that caught."""

    def __init__(
        self, caught: Caught, attempt: ast.Try, handler: ast.ExceptHandler, span: Span
    ) -> None:
        self.source, self.attempt, self.handler = caught.source, attempt, handler
        self.span = span
        self.scope: ast.AST = function_at(span) or caught.source.tree or attempt
        self.told = False  # something in the handler tells of the exception

    def only_tells(self, in_sight: bool, callers: Sequence[Span]) -> bool:
        plain = all(self._is_plain(statement) for statement in self.handler.body)
        if not plain or not self.told or self._is_trial(in_sight) or self._is_replaced():
            return False
        last = self.handler.body[-1]
        if isinstance(last, ast.Return) or self._ends_function():
            return not _result_is_tested(callers)
        return True

    # --- the handler --------------------------------------------------------------------------

    def _is_plain(self, statement: ast.stmt) -> bool:
        """Whether a statement tells of the exception, or says that there is no result."""
        match statement:
            case ast.Pass() | ast.Continue() | ast.Break() | ast.Import() | ast.ImportFrom():
                return True
            case ast.Return(value=None):
                return True
            case ast.Return(value=ast.expr() as value):
                return self._is_default(value)
            case ast.Assign(targets=targets, value=value):
                names = {target.id for target in targets if isinstance(target, ast.Name)}
                only_names = all(isinstance(target, ast.Name) for target in targets)
                return only_names and self._is_default(value) and not _tested(self.scope, names)
            case ast.AugAssign(value=ast.Constant()):
                return True
            case ast.Expr(value=ast.Constant()):
                return True
            case ast.Expr(value=ast.Call() as call):
                return self._is_plain_call(call)
            case ast.If(test=test):
                branches = [*statement.body, *statement.orelse]
                return not self._mentions(test) and all(map(self._is_plain, branches))
            case ast.Raise(exc=ast.Call(func=ast.Name(id="SystemExit"))):
                return True
        return False

    def _is_plain_call(self, call: ast.Call) -> bool:
        name = full_name(self.source, call.func) or ""
        last = name.rpartition(".")[2]
        if name in _EXITS or last == "debug":
            return True
        if last in _ALARMS or (last in _TELLS and self._mentions(call)):
            self.told = True
            return True
        if last in _KEEPS and isinstance(call.func, ast.Attribute):
            kept = base_name(call.func.value)
            return kept is not None and not _tested(self.scope, {kept}, loops=True)
        return last in _TELLS

    def _is_default(self, value: ast.expr) -> bool:
        """Whether a value stands for none: a constant, or the exception's own words."""
        match value:
            case ast.Constant(value=bool()):
                return False
            case ast.Constant():
                return True
            case ast.UnaryOp(operand=ast.Constant()):
                return True
            case ast.Attribute(attr=attr) if attr in _NOT_A_NUMBER:
                self.told = True
                return True
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant()]):
                self.told = True
                return True
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return all(map(self._is_default, parts))
            case ast.Dict(keys=[]):
                return True
        words = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        if self.handler.name not in words:
            return False
        if isinstance(value, ast.JoinedStr) or words <= {self.handler.name, *_TEXTS}:
            self.told = True
            return True
        return False

    def _mentions(self, node: ast.AST) -> bool:
        words = {self.handler.name, *_TRACES}
        return any(
            getattr(part, "id", None) in words
            or getattr(part, "attr", None) in _TRACES
            or getattr(part, "arg", None) in _TRACES
            for part in ast.walk(node)
        )

    # --- what is tried ------------------------------------------------------------------------

    def _is_trial(self, in_sight: bool) -> bool:
        """Whether the code tries something to see whether it fails: nobody wants the result."""
        attempt = self.attempt
        if any(isinstance(s, (ast.Raise, ast.Assert)) for s in (*attempt.body, *attempt.orelse)):
            return True
        if len(attempt.body) != 1:
            return False
        value = getattr(attempt.body[0], "value", None)
        if not isinstance(value, ast.Call):
            return False
        arguments = parameter_names(self.scope.args) if isinstance(self.scope, FunctionNode) else ()
        if isinstance(value.func, ast.Name) and value.func.id in arguments:
            return True  # a helper that runs what it is given
        if not in_sight or not isinstance(attempt.body[0], ast.Expr):
            return False
        failing = expression_at(self.span)
        shown = isinstance(value.func, ast.Name) and value.func.id == "print"
        return failing is value or (shown and failing in value.args)

    # --- what comes instead -------------------------------------------------------------------

    def _is_replaced(self) -> bool:
        """Whether the program goes another way, or tries again, after the handler."""
        body = [*self.attempt.body, *self.attempt.orelse]
        around = list(self._around())
        in_loop = any(isinstance(node, _LOOPS) for node in around)
        ways_out = [n for s in body for n in ast.walk(s) if isinstance(n, (ast.Return, ast.Break))]
        if in_loop and ways_out:
            return True
        last = self.handler.body[-1]
        if isinstance(last, _LEAVING):
            return False
        if isinstance(body[-1], _LEAVING) and not all(map(self._is_end, self._following())):
            return True
        names = {name for statement in body for name in _stored(statement)}
        return _tested(self.scope, names) or self._had_value(names)

    def _around(self) -> Iterator[ast.AST]:
        """The statements of the same function around the `try`, innermost first."""
        node = self.source.parents.get(self.attempt)
        while node is not None and node is not self.scope:
            yield node
            node = self.source.parents.get(node)

    def _following(self) -> Iterator[ast.stmt]:
        """What the function runs after the `try`."""
        node: ast.AST = self.attempt
        for parent in (*self._around(), self.scope):
            for part in ("body", "orelse", "handlers", "finalbody"):
                listed = getattr(parent, part, ())
                if isinstance(listed, list) and node in listed:
                    yield from listed[listed.index(node) + 1 :]
            node = parent

    def _is_end(self, statement: ast.stmt) -> bool:
        value = getattr(statement, "value", None)
        return isinstance(statement, ast.Return) and isinstance(value, (ast.Constant, type(None)))

    def _ends_function(self) -> bool:
        """Whether the function gives no result after the handler, although it can give one."""
        returns = any(isinstance(n, ast.Return) and n.value for n in ast.walk(self.scope))
        return returns and all(map(self._is_end, self._following()))

    def _had_value(self, names: set[str]) -> bool:
        """Whether what the `try` was to set has been computed in another way."""
        inside = {id(node) for node in ast.walk(self.attempt)}
        for node in ast.walk(self.scope):
            if isinstance(node, ast.Assign) and id(node) not in inside:
                stored = {name for target in node.targets for name in _stored(target)}
                if stored & names and not isinstance(node.value, (ast.Constant, ast.UnaryOp)):
                    return True
        return False


def _passes_on(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _stored(node: ast.AST) -> set[str]:
    """The names that a statement gives a value to."""
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _tested(scope: ast.AST, names: set[str], loops: bool = False) -> bool:
    """Whether the code in a scope decides something by one of these names."""
    return bool(names) and any(
        isinstance(part, ast.Name) and part.id in names
        for node in ast.walk(scope)
        for test in _tests(node, loops)
        for part in ast.walk(test)
    )


def _tests(node: ast.AST, loops: bool) -> Iterable[ast.AST]:
    match node:
        case (
            ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test)
        ):
            return [test]
        case ast.BoolOp() | ast.Compare():
            return [node]
        case ast.comprehension(iter=values, ifs=conditions):
            return [*conditions, values] if loops else conditions
        case ast.For(iter=values) | ast.AsyncFor(iter=values) if loops:
            return [values]
        case ast.Match(subject=subject):
            return [subject]
    return []


def _result_is_tested(callers: Sequence[Span]) -> bool:
    """Whether who called looks at what came back before going on with it."""
    for span in callers:
        source, node = load(span.file), expression_at(span)
        if node is None:
            return True
        statement: ast.AST = node
        while not isinstance(statement, ast.stmt):
            parent = source.parents.get(statement)
            if parent is None or isinstance(parent, (ast.NamedExpr, ast.comprehension)):
                return True
            if statement in _tests(parent, False) or isinstance(parent, (ast.BoolOp, ast.Compare)):
                return True
            statement = parent
        if not isinstance(statement, ast.Return) or statement.value is not node:
            names = _stored(statement)
            scope = function_at(span) or source.tree
            return scope is None or (isinstance(statement, ast.Assign) and _tested(scope, names))
    return False
