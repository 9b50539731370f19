"""Source files as syntax: read once, parsed once, compiled once, all on demand.

Nothing here raises for a source that is missing, unreadable or no longer Python: such a file
has no lines, or lines and no tree. Columns are 1-based characters with an exclusive end.
"""

from __future__ import annotations

import ast
import inspect
import io
import linecache
import re
import tokenize
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import cast

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
ScopeNode = FunctionNode | ast.ClassDef

MAX_FILES = 256
MAX_CHARACTERS = 4_000_000

Extent = tuple[int, int, int, int]  # line, column, end line, end column
Position = tuple[int | None, int | None, int | None, int | None]  # as in co_positions()

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
NOT_PARSED = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


class SourceFile:
    """One version of a file's text, with what can be derived from it."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name = name
        self.lines = lines

    @cached_property
    def tree(self) -> ast.Module | None:
        return parse("".join(self.lines), self.name)

    @property
    def plain_lines(self) -> list[str]:
        """All lines without their ends, as a list of one's own."""
        return [line.rstrip("\n") for line in self.lines]

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        if self.tree is None:
            return {}
        return {c: node for node in ast.walk(self.tree) for c in ast.iter_child_nodes(node)}

    @cached_property
    def nodes(self) -> dict[Extent, list[ast.AST]]:
        """The nodes that have exactly this extent, outer ones first."""
        found: dict[Extent, list[ast.AST]] = {}
        for node in ast.walk(self.tree) if self.tree else ():
            if has_place(node):
                for extent in {self.extent(node), *self._attribute_extents(node)}:
                    found.setdefault(extent, []).append(node)
        return found

    def _attribute_extents(self, node: ast.AST) -> Iterator[Extent]:
        # The compiler lets an attribute whose object ends on another line start at its name,
        # so that a traceback through a long method chain names the right line.
        attribute = node.func if isinstance(node, ast.Call) else node
        if isinstance(attribute, ast.Attribute) and attribute.lineno != attribute.end_lineno:
            line, column = self.attribute_name_start(attribute)
            yield (line, column, *self.extent(node)[2:])

    def attribute_name_start(self, attribute: ast.Attribute) -> tuple[int, int]:
        _, _, line, end = self.extent(attribute)
        return line, end - len(attribute.attr)

    def column(self, line: int, offset: int) -> int:
        """A 0-based offset in UTF-8 bytes, as Python counts, as a 1-based column."""
        text = self.line(line)
        if not text.isascii():
            offset = len(text.encode("utf-8", "replace")[:offset].decode("utf-8", "ignore"))
        return offset + 1

    def extent(self, node: ast.AST) -> Extent:
        line, offset, end_line, end_offset = byte_extent(node)
        return line, self.column(line, offset), end_line, self.column(end_line, end_offset)

    def line(self, number: int) -> str:
        """The text of a line without its end; empty when there is no such line."""
        return self.lines[number - 1].rstrip("\n") if 0 < number <= len(self.lines) else ""

    def line_extent(self, number: int) -> Extent:
        """The code on a line: without indentation, and without a comment behind it."""
        text = self.line(number)
        code = text.removesuffix(self.comments.get(number, "")).rstrip("; \t") or text.rstrip()
        start = len(text) - len(text.lstrip())
        return number, start + 1, number, max(len(code), start) + 1

    def text(self, extent: Extent) -> str:
        line, column, end_line, end_column = extent
        if line == end_line:
            return self.line(line)[column - 1 : end_column - 1]
        middle = [self.line(number) for number in range(line + 1, end_line)]
        first, last = self.line(line)[column - 1 :], self.line(end_line)[: end_column - 1]
        return "\n".join([first, *middle, last])

    def chain(self, extent: Extent) -> list[ast.AST]:
        """The nodes around an extent, from the module to the innermost."""
        if self.tree is None:
            return []
        chain: list[ast.AST] = [self.tree]
        inner: ast.AST | None = self.tree
        while inner is not None:
            covering = (c for c in _placed_children(inner) if self._covers(c, extent))
            inner = next(covering, None)
            if inner is not None:
                chain.append(inner)
        return chain

    def _covers(self, node: ast.AST, extent: Extent) -> bool:
        own = self.extent(node)
        start = own[:2]
        if isinstance(node, DEFINITIONS) and node.decorator_list:
            start = (node.decorator_list[0].lineno, 1)
        return start <= extent[:2] and extent[2:] <= own[2:]

    def scope(self, extent: Extent) -> tuple[str, int]:
        """Qualified name and first line of the code that runs at an extent."""
        scopes = scopes_in(self.chain(extent))
        return qualified_name(scopes), first_line_of(scopes[-1]) if scopes else 1

    @cached_property
    def functions(self) -> dict[int, list[FunctionNode]]:
        """Functions and lambdas by the first line of their code."""
        found: dict[int, list[FunctionNode]] = {}
        for node in ast.walk(self.tree) if self.tree else ():
            if isinstance(node, FunctionNode):
                found.setdefault(first_line_of(node), []).append(node)
        return found

    @cached_property
    def comments(self) -> dict[int, str]:
        """The comment on each line that has one."""
        found = {}
        try:
            for token in tokenize.generate_tokens(io.StringIO("".join(self.lines)).readline):
                if token.type == tokenize.COMMENT:
                    found[token.start[0]] = token.string
        except (tokenize.TokenError, *NOT_PARSED):
            pass  # what came before the trouble still holds
        return found

    @cached_property
    def _compiled(self) -> dict[int, list[types.CodeType]]:
        """The file's code objects by their first line."""
        found: dict[int, list[types.CodeType]] = {}
        if self.tree is None:
            return found
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # notebooks have it
        try:
            with _quiet(self.name):
                waiting = [compile(self.tree, self.name, "exec", flags, dont_inherit=True)]
        except NOT_PARSED:
            return found
        while waiting:
            code = waiting.pop()
            found.setdefault(code.co_firstlineno, []).append(code)
            waiting += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        return found

    def knows(self, code: types.CodeType, position: Position) -> bool:
        """Whether this text compiles to an instruction at this position."""
        return any(
            position in candidate.co_positions()
            for candidate in self._compiled.get(code.co_firstlineno, ())
            # Names may differ (notebooks rename modules), but a function stays a function.
            if not (candidate.co_flags ^ code.co_flags) & inspect.CO_OPTIMIZED
        )


_files: dict[str, SourceFile] = {}


def load(name: str) -> SourceFile:
    """The file as it was when it was first asked for."""
    known = _files.get(name)
    return known if known is not None else _remember(SourceFile(name, _read(name)))


def reload(name: str) -> SourceFile:
    """The file as it is now, for code that does not fit the version first read."""
    linecache.checkcache(name)
    lines = _read(name)
    known = _files.get(name)
    return known if known and known.lines == lines else _remember(SourceFile(name, lines))


def _remember(source: SourceFile) -> SourceFile:
    if source.lines:  # a source that is not there yet may come later (doctest, notebooks)
        while len(_files) >= MAX_FILES:
            _files.pop(next(iter(_files)), None)
        _files[source.name] = source
    return source


def _read(name: str) -> list[str]:
    try:
        return linecache.getlines(name)
    except Exception:  # doctest, notebooks and others put functions of their own here
        return []


def parse(text: str, name: str) -> ast.Module | None:
    """The syntax tree, or None where there is none to have."""
    if not text or len(text) > MAX_CHARACTERS:
        return None
    try:
        with _quiet(name):
            return ast.parse(text, name)
    except NOT_PARSED:
        return None


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silence the compiler's warnings about one file, and nothing else.

    `warnings.catch_warnings` would make Python forget which warnings the program has already
    shown, and these would then be shown again.
    """
    module = re.compile(re.escape(name.removesuffix(".py")) + r"\Z")
    added = [("ignore", None, kind, module, 0) for kind in (SyntaxWarning, DeprecationWarning)]
    active = cast("list[object]", warnings.filters)
    active[:0] = added
    try:
        yield
    finally:
        for entry in added:
            if entry in active:
                active.remove(entry)


def has_place(node: ast.AST) -> bool:
    return getattr(node, "end_col_offset", None) is not None


def byte_extent(node: ast.AST) -> Extent:
    """A node's place as Python counts it: 1-based lines, 0-based UTF-8 offsets."""
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def first_line_of(node: ast.AST) -> int:
    """What `co_firstlineno` is for the code of this function, lambda or class."""
    if isinstance(node, DEFINITIONS) and node.decorator_list:
        return node.decorator_list[0].lineno
    return getattr(node, "lineno", 1)


def qualified_name(scopes: list[ScopeNode]) -> str:
    names = ("<lambda>" if isinstance(scope, ast.Lambda) else scope.name for scope in scopes)
    return ".".join(names) or "<module>"


def runs_inside(child: ast.AST, scope: ScopeNode) -> bool:
    """Whether a child belongs to the scope's body, and not to its decorators or defaults."""
    return child is scope.body if isinstance(scope, ast.Lambda) else child in scope.body


def scopes_in(chain: list[ast.AST]) -> list[ScopeNode]:
    """The scopes in whose bodies the end of a chain lies, outer ones first."""
    return [
        node
        for node, child in pairwise(chain)
        if isinstance(node, (*DEFINITIONS, ast.Lambda)) and runs_inside(child, node)
    ]


def _placed_children(node: ast.AST) -> Iterator[ast.AST]:
    """The nearest descendants that have a place; `arguments`, `withitem` and such have none."""
    for child in ast.iter_child_nodes(node):
        if has_place(child):
            yield child
        else:
            yield from _placed_children(child)
