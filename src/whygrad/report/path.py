"""The path block: parameters, the operations between them and the loss, and the cut."""

from __future__ import annotations

from whygrad.report.path_rows import Row, path_rows, remarks
from whygrad.report.pen import Pen
from whygrad.report.text import cells, clip, clip_start, pad
from whygrad.session import Finding, FlowState

INDENT = 3
OP_WIDTH = 24
TEXT_WIDTH = 24  # with less than this for expressions the bracket moves to the left
CUT_COLUMN = 20
SHORTEST_TEXT = 8

_LEGEND: dict[FlowState, str] = {
    "live": "carries gradient",
    "values": "carries values only",
    "off": "wants no gradient",
}


def draw_path(finding: Finding, pen: Pen) -> list[str]:
    if not finding.path:
        return []
    title = f"{pen.paint('strong', 'path:')} {_start(finding, pen)} to loss"
    body = _Layout(path_rows(finding, pen), remarks(finding), pen).draw()
    legend = _legend(finding, pen)
    return [title, "", *body, *(["", *legend] if legend else [])]


def _start(finding: Finding, pen: Pen) -> str:
    parameters = sum(step.kind == "parameter" for step in finding.path)
    if parameters:
        return "parameters" if parameters > 1 else "parameter"
    sources = [step.name for step in finding.path if step.kind == "source"]
    return pen.clean(f"`{sources[0]}`") if sources else "operations"


def _legend(finding: Finding, pen: Pen) -> list[str]:
    seen = {step.state for step in finding.path if step.kind == "op" or step.state == "off"}
    parts = [
        (pen.symbol(state), state, f" {meaning}")
        for state, meaning in _LEGEND.items()
        if state in seen
    ]
    if hidden := finding.hidden_operations:
        parts.append(("", "off", f"{hidden} side operation{'s' if hidden > 1 else ''} hidden"))
    lines: list[str] = []
    used = pen.width
    for symbol, state, meaning in parts:
        width = cells(symbol + meaning)
        text = pen.paint(state, symbol) + meaning
        if used + 3 + width > pen.width:
            lines.append(" " * INDENT + text)
            used = INDENT + width
        else:
            lines[-1] += "   " + text
            used += 3 + width
    return lines


class _Layout:
    """Columns that all rows share: name, shape, bracket, place, expression."""

    def __init__(self, rows: list[Row], notes: list[str], pen: Pen) -> None:
        self.rows, self.notes, self.pen = rows, notes, pen
        ops = [row for row in rows if row.kind == "op"]
        leaves = [row for row in rows if row.kind in ("parameter", "more")]
        shapes = max((len(row.shape) for row in leaves), default=0)
        self.longest_name = pen.width - INDENT - 4 - shapes - 2
        self.shows_state = any(row.state != "live" for row in leaves)
        self.op_width = max((cells(self._op_name(row)) for row in ops), default=0)
        self.leaf_width = max((cells(self._leaf_name(r)) for r in leaves if r.shape), default=0)
        self.place_width = max((cells(row.place) for row in rows), default=0)
        self.cut_column = max([CUT_COLUMN, *(cells(r.text) for r in ops if r.state == "cut")])

        op_end = max((INDENT + cells(self._op_text(row)) for row in ops), default=0)
        leaf_end = max((INDENT + cells(self._leaf_text(row)) for row in leaves), default=0)
        self.bracket = max(op_end + 3, leaf_end + 2)
        # Long names would push a bracket on the right so far that no expression fits beside it.
        room = pen.width - self.bracket - 3 - self.place_width - 2
        self.bracket_is_left = room < TEXT_WIDTH
        self.detail = self.bracket + 3 if leaves and not self.bracket_is_left else op_end + 2

    def draw(self) -> list[str]:
        lines: list[str] = []
        notes = list(self.notes)
        above = 0  # how many parameters stand directly above
        for row in self.rows:
            if row.kind in ("parameter", "more"):
                note = notes.pop(0) if notes and not self.bracket_is_left else ""
                lines.append(self._leaf_row(row, above == 0, note))
                above += 1
                continue
            if notes:
                through = self.pen.paint("dim", self.pen.symbol("through"))
                room = self.pen.width - INDENT - 2
                for line in self.pen.wrap(" ".join(notes), room):
                    lines.append(f"{' ' * INDENT}{through} {line}")
                notes.clear()
            lines.append(self._gap_row(row) if row.kind == "gap" else self._op_row(row, above > 0))
            above = 0
        return [line.rstrip() for line in lines]

    def _op_name(self, row: Row) -> str:
        return clip(row.name(self.pen.ellipsis), OP_WIDTH, self.pen.ellipsis)

    def _op_text(self, row: Row) -> str:
        return f"{self.pen.symbol(row.state)} {pad(self._op_name(row), self.op_width)}  {row.shape}"

    def _leaf_name(self, row: Row) -> str:
        return clip_start(row.names[0], self.longest_name, self.pen.ellipsis)

    def _leaf_text(self, row: Row) -> str:
        state = f"{self.pen.symbol(row.state)} " if row.kind == "parameter" else "  "
        lead = state if self.shows_state else ""
        name = self._leaf_name(row)
        return f"{lead}{pad(name, self.leaf_width)}  {row.shape}" if row.shape else lead + name

    def _leaf_row(self, row: Row, is_first: bool, note: str) -> str:
        pen = self.pen
        text = self._leaf_text(row)
        note = note or "  ".join(part for part in (row.place, row.text) if part)
        if self.bracket_is_left:
            side = pen.paint("dim", pen.symbol("top" if is_first else "side"))
            note = clip(note, pen.width - INDENT - cells(text) - 4, pen.ellipsis)
            return f"{' ' * INDENT}{side} {text}  {note}"
        fill = pen.symbol("line") * (self.bracket - INDENT - cells(text) - 1)
        line = pen.paint("dim", fill + pen.symbol("corner" if is_first else "branch"))
        note = clip(note, pen.width - self.detail, pen.ellipsis)
        return f"{' ' * INDENT}{text} {line}  {note}"

    def _gap_row(self, row: Row) -> str:
        return " " * INDENT + self.pen.paint("dim", row.names[0])

    def _op_row(self, row: Row, is_entered: bool) -> str:
        pen = self.pen
        symbol, text = pen.symbol(row.state), self._op_text(row)
        used = INDENT + cells(text)
        line = " " * INDENT + pen.paint(row.state, symbol) + text[len(symbol) :]
        if is_entered and not self.bracket_is_left:
            fill = pen.symbol("line") * (self.bracket - used - 2)
            line += " " + pen.paint("dim", pen.symbol("arrow") + fill + pen.symbol("join"))
            used = self.bracket + 1
        return line + " " * (self.detail - used) + self._detail(row)

    def _detail(self, row: Row) -> str:
        """Place and expression, as far as they fit, and the word at the cut."""
        pen = self.pen
        cut = f"{pen.symbol('arrow')} CUT" if row.state == "cut" else ""
        room = pen.width - self.detail - self.place_width
        if room < 0:
            return pen.paint("cut", cut) if self.detail + len(cut) <= pen.width else ""
        place = pad(row.place, self.place_width)
        text_room = room - 2 - (len(cut) + 2 if cut else 0)
        if text_room < SHORTEST_TEXT:
            return f"{place}  {pen.paint('cut', cut)}" if cut and room > len(cut) + 1 else place
        text = clip(row.text, text_room, pen.ellipsis)
        place = f"{place}  " if self.place_width else ""
        if not cut:
            return place + text
        return f"{place}{pad(text, min(self.cut_column, text_room))}  {pen.paint('cut', cut)}"
