"""Source excerpts: numbered lines with the spans underlined and labelled."""

from __future__ import annotations

from dataclasses import dataclass

from whygrad.report.marks import Excerpt, Mark
from whygrad.report.pen import Pen
from whygrad.report.places import place
from whygrad.report.text import cells, pieces

MOST_EXCERPTS = 6
LABEL_LINES = 6
LABEL_WIDTH = 30  # a label gets at least this much room, or moves below its underline
NARROW_LABEL = 24  # and there it stays under its span if that leaves this much

ROLES = {
    "surfaced": "where it surfaced",
    "via": "on the way there",
    "cut": "a further cut",
    "exit": "where the value leaves torch",
    "return": "where the value comes back",
    "created": "where it was created",
    "written": "where it was written",
    "saved": "where it was saved for backward",
    "freed": "where it was freed",
    "used": "where it is used",
    "optimizer": "where the optimizer is made",
    "operation": "the operation concerned",
    "library": "inside the library",
}


def draw_excerpts(found: list[Excerpt], pen: Pen, digits: int, severity: str) -> list[str]:
    limit = len(found) if pen.verbose else MOST_EXCERPTS
    bar = " " * digits + " " + pen.paint("dim", "|")
    rows: list[str] = []
    for index, excerpt in enumerate(found[:limit]):
        if index:
            rows.append(bar)
        rows.append(_header(excerpt, pen, digits))
        rows += _body(excerpt, pen, digits, severity)
    if len(found) > limit:
        more = f"{pen.ellipsis} and {len(found) - limit} more places (-v)"
        rows += [bar, " " * digits + " " + pen.paint("dim", more)]
    return rows


def _header(excerpt: Excerpt, pen: Pen, digits: int) -> str:
    head = excerpt.head
    where = pen.clean(place(head.location))
    if head.is_primary:
        arrow, function = "-->", head.location.function
        note = f" in {pen.clean(function)}" if function not in ("", "<module>") else ""
    else:
        arrow, note = ":::", " " + pen.clean(ROLES.get(head.role, head.role))
    return " " * digits + pen.paint("dim", arrow) + f" {where}{note}"


def _body(excerpt: Excerpt, pen: Pen, digits: int, severity: str) -> list[str]:
    rows: list[str] = []
    bar = " " * digits + " " + pen.paint("dim", "|")
    previous = 0
    for number in sorted(excerpt.lines):
        if previous and number > previous + 1:
            rows.append(pen.paint("dim", "..."))
        previous = number
        marks = _marks_on(number, excerpt)
        view = _View.of(excerpt.lines[number], [m.spans[number] for m, _ in marks], pen, digits)
        rows.append(f"{pen.paint('dim', f'{number:>{digits}} |')} {view.text}".rstrip())
        for mark, labels in marks:
            glyph, style = ("^", severity) if mark.is_primary else ("-", "second")
            under = view.underlined(mark.spans[number], labels, glyph, style)
            rows += [f"{bar} {row}" for row in under]
    if rows:
        return [bar, *rows]
    for mark in excerpt.marks:
        lines = pen.wrap(_label(mark, excerpt), pen.text_width - digits - 3)
        for index, line in enumerate(lines):
            rows.append(" " * digits + (" = " if index == 0 else "   ") + line)
    return rows


def _label(mark: Mark, excerpt: Excerpt) -> str:
    """The mark's own words; its role where neither they nor the header say what it is."""
    if mark.label or mark is excerpt.head:
        return mark.label
    return ROLES.get(mark.role, mark.role)


def _marks_on(number: int, excerpt: Excerpt) -> list[tuple[Mark, list[str]]]:
    """The line's marks with their labels, primary first; equal spans share one underline."""
    result: list[tuple[Mark, list[str]]] = []
    here = [mark for mark in excerpt.marks if number in mark.spans]
    for mark in sorted(here, key=lambda m: (not m.is_primary, m.spans[number])):
        labels = [_label(mark, excerpt)] if number == max(mark.spans) else []
        for other, known in result:
            if other.spans[number] == mark.spans[number]:
                known += labels
                break
        else:
            result.append((mark, labels))
    return result


@dataclass(frozen=True)
class _View:
    """A source line as drawn: cropped to the room there is, each character at its cell."""

    pen: Pen
    text: str
    edges: list[int]  # the cell where each character begins, then the end of the line
    room: int

    @classmethod
    def of(cls, line: str, spans: list[tuple[int, int]], pen: Pen, digits: int) -> _View:
        room = pen.width - digits - 3
        shown = pieces(line.rstrip(), unicode=pen.unicode)
        edges = [0]
        for piece in shown:
            edges.append(edges[-1] + cells(piece))
        if edges[-1] <= room:
            return cls(pen, "".join(shown), edges, room)
        dots = cells(pen.ellipsis)
        first = _first_shown(edges, spans[0], room - 2 * dots) if spans else 0
        lead = pen.ellipsis if first else ""
        shift = edges[first] - cells(lead)
        last, tail = len(shown), ""
        while edges[last] - shift + cells(tail) > room:
            last, tail = last - 1, pen.ellipsis
        text = lead + "".join(shown[first:last]) + tail
        stop = edges[last] - shift
        return cls(pen, text, [min(max(edge - shift, 0), stop) for edge in edges], room)

    def underlined(
        self, span: tuple[int, int], labels: list[str], glyph: str, style: str
    ) -> list[str]:
        """The row under the line, and the rows that its labels take."""
        last = len(self.edges) - 1
        start, end = (self.edges[min(at, last)] for at in span)
        end = max(end, start + 1)
        paint = self.pen.paint
        underline = " " * start + paint(style, glyph * (end - start))
        lines, indent = self._placed(labels, start, end + 1)
        rows = [" " * indent + paint(style, line) for line in lines]
        if indent == end + 1 and lines:
            return [f"{underline} {paint(style, lines[0])}", *rows[1:]]
        return [underline, *rows]

    def _placed(self, labels: list[str], start: int, beside: int) -> tuple[list[str], int]:
        """The labels' lines and their column: beside the underline if that reads well."""
        text_room = self.room - 2
        lines = self._wrapped(labels, max(text_room - beside, 1))
        if text_room - beside >= LABEL_WIDTH or len(lines) <= 1:
            return lines, beside
        indent = max(0, min(start, text_room - NARROW_LABEL))
        return self._wrapped(labels, text_room - indent), indent

    def _wrapped(self, labels: list[str], width: int) -> list[str]:
        lines = [line for label in labels for line in self.pen.wrap(label, width)]
        if len(lines) > LABEL_LINES and not self.pen.verbose:
            return [*lines[: LABEL_LINES - 1], f"{lines[LABEL_LINES - 1]} {self.pen.ellipsis}"]
        return lines


def _first_shown(edges: list[int], span: tuple[int, int], room: int) -> int:
    """Where to begin a line too long to show, so that the span is seen with room for a label."""
    start, end = (min(at, len(edges) - 1) for at in span)
    if edges[end] <= room:
        return 0
    if edges[end] - edges[start] > room:
        return 0 if edges[start] <= room // 2 else start
    wanted = max(room - LABEL_WIDTH - 3, edges[end] - edges[start])
    return next(at for at in range(start + 1) if edges[end] - edges[at] <= wanted)
