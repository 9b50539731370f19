"""What an excerpt shows: places that belong together, their spans and the lines around them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from whygrad.report.places import SourceBook, span_end
from whygrad.session import Finding, Location

BEFORE, AFTER = 2, 1  # context lines around the primary span
NEAR = 10  # places at most this many lines apart share an excerpt
BRIDGE = 3  # gaps up to this many lines are shown rather than elided

_COMMENT = re.compile(r"\s+#[^'\"]*$")


@dataclass
class Mark:
    """One underlined place. `spans` holds character ranges by line; the label follows the last."""

    location: Location
    label: str
    role: str = ""  # empty for the finding's own location
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_primary(self) -> bool:
        return not self.role


@dataclass
class Excerpt:
    """Marks that are drawn together, with the source lines around them."""

    marks: list[Mark]
    lines: dict[int, str] = field(default_factory=dict)

    @property
    def head(self) -> Mark:
        """The mark that the excerpt's header names."""
        order = {"": 0, "surfaced": 1, "via": 3}
        return min(self.marks, key=lambda mark: order.get(mark.role, 2))


def excerpts(finding: Finding, book: SourceBook) -> list[Excerpt]:
    """The finding's own excerpt first, then those of its related places in their order."""
    result = [Excerpt([Mark(finding.location, finding.label)])] if finding.location.file else []
    for related in finding.related:
        if not related.location.file:
            continue
        mark = Mark(related.location, related.label, related.role or "related")
        near = (e for e in result if any(_near(mark, other) for other in e.marks))
        home = next(near, None)
        if home is None:
            result.append(Excerpt([mark]))
        else:
            home.marks.append(mark)
    for excerpt in result:
        _find_lines(excerpt, book)
    return result


def _near(mark: Mark, other: Mark) -> bool:
    a, b = mark.location, other.location
    return a.file == b.file and abs(a.line - b.line) <= NEAR


def _find_lines(excerpt: Excerpt, book: SourceBook) -> None:
    wanted: set[int] = set()
    for mark in excerpt.marks:
        at = mark.location
        first = book.line(at, at.line)
        if first is None:
            # The statement's text is known though its file is not.
            if at.text and at.line > 0:
                excerpt.lines.setdefault(at.line, at.text)
                mark.spans = {at.line: (0, len(at.text))}
            continue
        mark.spans = _spans(at, first, book)
        end_line, _ = span_end(at)
        last = end_line if end_line - at.line <= BRIDGE else max(mark.spans)
        wanted |= {at.line, last, *mark.spans}
        if mark.is_primary:
            wanted.update(range(at.line - BEFORE, at.line), range(last + 1, last + AFTER + 1))
    for low, high in pairwise(sorted(wanted)):
        if high - low - 1 <= BRIDGE:
            wanted.update(range(low, high))
    for number in wanted:
        text = book.line(excerpt.marks[0].location, number)
        if text is not None:
            excerpt.lines.setdefault(number, text)
    _trim_blank_edges(excerpt)


def _trim_blank_edges(excerpt: Excerpt) -> None:
    marked = {line for mark in excerpt.marks for line in mark.spans}
    for in_reverse in (False, True):
        for number in sorted(excerpt.lines, reverse=in_reverse):
            if number in marked or excerpt.lines[number].strip():
                break
            del excerpt.lines[number]


def _spans(at: Location, first: str, book: SourceBook) -> dict[int, tuple[int, int]]:
    end_line, end_column = span_end(at)
    start = max(at.column - 1, 0)
    if end_line == at.line:
        if end_column > at.column:
            return {at.line: (start, end_column - 1)}
        # No columns are known: the whole line, unless at least its start is.
        return {at.line: (start, start + 1) if at.column > 1 else _ink(first)}
    head = first[start:]
    if sum(map(head.count, "([{")) > sum(map(head.count, ")]}")):
        # A call that opens here: its head names it, the arguments below would be noise.
        return {at.line: (start, start + len(_COMMENT.sub("", head).rstrip()))}
    # A chain or an expression: what matters may be on its last line.
    numbers = range(at.line, end_line + 1) if end_line - at.line < 3 else (at.line, end_line)
    spans: dict[int, tuple[int, int]] = {}
    for number in numbers:
        low, high = _ink(book.line(at, number) or "")
        low = start if number == at.line else low
        high = end_column - 1 if number == end_line else high
        if high > low:
            spans[number] = (low, high)
    return spans or {at.line: (start, start + 1)}


def _ink(line: str) -> tuple[int, int]:
    """The range of a line that is not white space."""
    return len(line) - len(line.lstrip()), max(len(line.rstrip()), 1)
