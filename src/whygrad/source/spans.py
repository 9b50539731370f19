"""From a frame's (code, last instruction) to a span of source text."""

from __future__ import annotations

import ast
import dis
import types
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from whygrad.session import Location
from whygrad.source.files import Extent, Position, SourceFile, load, reload

OWN_CODE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
ITERATION = ("GET_ITER", "FOR_ITER", "GET_AITER", "GET_ANEXT")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of source text: 1-based character columns, `end_column` exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str = ""
    first_line: int = 0  # co_firstlineno of the code it belongs to

    @property
    def extent(self) -> Extent:
        return self.line, self.column, self.end_line, self.end_column


def span_of(code: types.CodeType, lasti: int) -> Span | None:
    """What the instruction at `lasti` evaluates.

    Without its source the span is what the code object itself says. None means that the
    instruction has no place, or that the file on disk is not what this code was made from.
    """
    # Equal code objects can come from different files, so the file is part of the key.
    return _span_of(code, code.co_filename, lasti)


@lru_cache(maxsize=4096)
def _span_of(code: types.CodeType, file: str, lasti: int) -> Span | None:
    position = next(islice(code.co_positions(), lasti // 2, None), None) if lasti >= 0 else None
    if position is None or position[0] is None:
        return None
    extent = _extent(load(file), code, lasti, position)
    if extent is None:
        extent = _extent(reload(file), code, lasti, position)
    if extent is None:
        return None
    function = code.co_qualname.replace("<locals>.", "")
    return Span(file, *extent, function, code.co_firstlineno)


def _extent(
    source: SourceFile, code: types.CodeType, lasti: int, position: Position
) -> Extent | None:
    line = position[0] or 0
    if source.lines and not source.knows(code, position):
        return None
    match position:
        case (int(), int(end_line), int(offset), int(end_offset)):
            end = end_line, source.column(end_line, end_offset)
            return _evaluated(source, code, lasti, (line, source.column(line, offset), *end))
    return source.line_extent(line)


def _evaluated(source: SourceFile, code: types.CodeType, lasti: int, extent: Extent) -> Extent:
    """Narrow a statement or comprehension to the expression that runs at this instruction.

    Older Pythons give the whole `with` or `for`, body included, as the place of the
    instructions in its head.
    """
    operation = dis.opname[code.co_code[lasti]]
    for node in source.nodes.get(extent, ()):
        match node:
            case ast.With(items=items) | ast.AsyncWith(items=items):
                heads = [source.extent(item.context_expr) for item in items]
                if operation in ("BEFORE_WITH", "BEFORE_ASYNC_WITH"):
                    return heads[min(_repetition(code, lasti), len(heads) - 1)]
                return *heads[0][:2], *heads[-1][2:]
            case ast.For(iter=head) | ast.AsyncFor(iter=head) | ast.Match(subject=head):
                return source.extent(head)
            case ast.If(test=head) | ast.While(test=head):
                return source.extent(head)
            case ast.Assert(test=head) | ast.IfExp(test=head) if "JUMP" in operation:
                return source.extent(head)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Try():
                return source.line_extent(extent[0])
            case (
                ast.ListComp(generators=loops)
                | ast.SetComp(generators=loops)
                | ast.DictComp(generators=loops)
                | ast.GeneratorExp(generators=loops)
            ) if operation in ITERATION:
                # The first iterator is made outside the comprehension's own code.
                made_outside = code.co_name in OWN_CODE and operation.startswith("GET_")
                index = _repetition(code, lasti) + made_outside
                return source.extent(loops[min(index, len(loops) - 1)].iter)
    return extent


def _repetition(code: types.CodeType, lasti: int) -> int:
    """How many equal instructions with the same place come before this one."""
    positions = list(code.co_positions())
    here = positions[lasti // 2]
    return sum(
        code.co_code[offset] == code.co_code[lasti] and positions[offset // 2] == here
        for offset in range(0, lasti, 2)
    )


def line_span(file: str, line: int) -> Span:
    """A whole line, without its indentation."""
    source = load(file)
    extent = source.line_extent(line)
    return Span(file, *extent, *source.scope(extent))


def location(span: Span) -> Location:
    text = load(span.file).line(span.line).strip()
    return Location(span.file, *span.extent, span.function, text)


def source_lines(file: str, first: int, last: int) -> dict[int, str]:
    """The lines of a range that exist, without line ends."""
    source = load(file)
    numbers = range(max(first, 1), min(last, len(source.lines)) + 1)
    return {number: source.line(number) for number in numbers}
