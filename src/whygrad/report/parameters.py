"""The parameters of a session: counted in a line, or as a table with one row for each."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from whygrad.report.pen import Pen
from whygrad.report.text import cells, clip, clip_start
from whygrad.session import Finding, ParameterState

MOST_ROWS = 40  # longer tables leave out what is plain
FEWEST_OF_A_KIND = 3
EXAMPLES = 10  # where all are plain
INDENT = 2
GAP = 2
SHORTEST_NAME = 16

_HEADS = ("parameter", "shape", "max |grad|", "optimizer", "moved", "why")
_NAME, _SHAPE, _GRADIENT, _OPTIMIZER, _MOVED, _WHY = range(len(_HEADS))
_STYLES = {"flows": "live", "frozen": "off", "none": "warning", "zero": "warning"}


def draw_parameters(states: list[ParameterState], pen: Pen) -> list[str]:
    """The table; of a long one only the rows that say something, unless verbose."""
    if not states:
        return []
    if pen.verbose or len(states) <= MOST_ROWS:
        entries: list[ParameterState | str] = list(states)
    else:
        entries = _shortened(states, pen)
    rows = [_Row.of(entry, pen) for entry in entries if isinstance(entry, ParameterState)]
    table = _Table(rows, pen)
    lines = [table.head]
    drawn = iter(map(table.line, rows))
    for entry in entries:
        if isinstance(entry, ParameterState):
            lines.append(next(drawn))
        else:
            count = clip(pen.clean(f"{pen.ellipsis} {entry}"), pen.width - INDENT, pen.ellipsis)
            lines.append(" " * INDENT + pen.paint("dim", count))
    return lines


def counts(states: list[ParameterState]) -> str:
    """12 get a gradient, 3 get none; 2 are in no optimizer."""
    having = Counter[str](state.gradient for state in states)
    gradients = [
        _counted(having["none"], "gets none", "get none"),
        _counted(having["zero"], "gets only zeros", "get only zeros"),
        _counted(having["non-finite"], "gets NaN or inf", "get NaN or inf"),
        _counted(having["frozen"], "is frozen", "are frozen"),
    ]
    flowing = _counted(having["flows"], "gets a gradient", "get a gradient")
    asking = [state for state in states if state.requires_grad]
    unheld = sum(not s.optimizer for s in asking) if any(s.optimizer for s in states) else 0
    unmoved = sum(s.gradient == "flows" and s.moved is False for s in asking if s.optimizer)
    said = (
        ", ".join(filter(None, [flowing or "0 get a gradient", *gradients])),
        _counted(unheld, "is in no optimizer", "are in no optimizer"),
        _counted(unmoved, "does not move", "do not move"),
    )
    return "; ".join(filter(None, said))


def something_is_wrong(states: list[ParameterState], findings: list[Finding]) -> bool:
    """Whether a silent finding names some that do not get what they need in order to train."""
    silent = [f for f in findings if f.severity != "info" and f.symptom != "raises"]
    named = {name for finding in silent for name in finding.parameters}
    return any(
        state.gradient != "flows" or not state.optimizer or state.moved is False
        for state in states
        if state.name in named
    )


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}" if number else ""


def _shortened(states: list[ParameterState], pen: Pen) -> list[ParameterState | str]:
    """What is not plain comes first, the like together; counts stand for the rest."""
    plain = [state for state in states if state.is_plain]
    kinds: dict[tuple[object, ...], list[ParameterState]] = {}
    for state in states:
        if not state.is_plain:
            kinds.setdefault(_kind(state), []).append(state)
    notable = len(states) - len(plain)
    fits = notable <= MOST_ROWS
    room = notable if fits else max(FEWEST_OF_A_KIND, MOST_ROWS // len(kinds))
    entries: list[ParameterState | str] = []
    for kind in kinds.values():
        # A count in place of a single row would save nothing.
        shown = kind if len(kind) <= room + 1 else kind[:room]
        entries += shown
        if rest := len(kind) - len(shown):
            entries.append(f"and {rest} more: {_in_common(kind[0])}")
    if not notable:
        entries, plain = [*plain[:EXAMPLES]], plain[EXAMPLES:]
    frozen = sum(state.gradient == "frozen" for state in plain)
    if len(plain) > frozen:
        entries.append(f"and {len(plain) - frozen} more with gradient")
    if frozen:
        entries.append(f"and {frozen} frozen")
    return entries


def _kind(state: ParameterState) -> tuple[object, ...]:
    return state.reason, state.gradient, state.optimizer, state.moved


def _in_common(state: ParameterState) -> str:
    gradient = {"flows": "with gradient", "none": "no gradient"}.get(state.gradient)
    unmoved = "not moved" if state.gradient == "flows" and state.moved is False else ""
    return ", ".join(filter(None, (gradient or _gradient(state), unmoved, state.reason)))


def _gradient(state: ParameterState) -> str:
    norm = state.norm
    match state.gradient:
        case "flows":
            return "yes" if norm is None else f"{norm:.3g}"
        case "zero":
            return "all zero"
        case "non-finite":
            return "NaN" if norm is not None and math.isnan(norm) else "inf"
    return state.gradient


@dataclass
class _Row:
    """The cells of a row, and how its gradient is painted."""

    cells: list[str]
    style: str

    @classmethod
    def of(cls, state: ParameterState, pen: Pen) -> _Row:
        gradient = _gradient(state)
        reason = "" if state.reason == gradient else state.reason
        moved = {True: "yes", False: "no", None: ""}[state.moved]
        content = (state.name or "?", str(state.shape), gradient, state.optimizer, moved, reason)
        return cls([pen.clean(cell) for cell in content], _STYLES.get(state.gradient, "error"))


class _Table:
    """Columns that all rows share. Empty ones are left out, and what does not fit."""

    def __init__(self, rows: list[_Row], pen: Pen) -> None:
        self._pen = pen
        self._widths = {
            column: max(cells(head), *(cells(row.cells[column]) for row in rows))
            for column, head in enumerate(_HEADS)
            if any(row.cells[column] for row in rows)
        }
        self._fit([row.cells[_NAME] for row in rows])

    def _fit(self, names: list[str]) -> None:
        """Names and reasons matter most; they are shortened when nothing else is left to drop."""
        widths = self._widths
        wanted = min(widths[_NAME], SHORTEST_NAME)
        for column in (_SHAPE, _OPTIMIZER, _MOVED):
            room = self._room_for_names()
            # Names are cut off at their beginning, and should still be told apart.
            if room < wanted or len(self._clipped(names, room)) < len(set(names)):
                widths.pop(column, None)
        lacking = wanted - self._room_for_names()
        if lacking > 0 and _WHY in widths:
            widths[_WHY] = max(widths[_WHY] - lacking, cells(_HEADS[_WHY]))
        self._name_room = max(self._room_for_names(), cells(_HEADS[_NAME]))
        shown = self._clipped(names, self._name_room)
        widths[_NAME] = max(cells(_HEADS[_NAME]), *map(cells, shown))

    def _clipped(self, names: list[str], room: int) -> set[str]:
        return {clip_start(name, room, self._pen.ellipsis) for name in names}

    def _room_for_names(self) -> int:
        others = [width + GAP for column, width in self._widths.items() if column != _NAME]
        return self._pen.width - INDENT - sum(others)

    @property
    def head(self) -> str:
        return self._line([(head, "dim") for head in _HEADS])

    def line(self, row: _Row) -> str:
        return self._line(
            [(cell, row.style if at == _GRADIENT else "") for at, cell in enumerate(row.cells)]
        )

    def _line(self, parts: list[tuple[str, str]]) -> str:
        line = ""
        for column, width in self._widths.items():
            content, style = parts[column]
            if column == _NAME:
                content = clip_start(content, self._name_room, self._pen.ellipsis)
            else:
                content = clip(content, width, self._pen.ellipsis)
            line += self._pen.paint(style, content) + " " * (width - cells(content) + GAP)
        return (" " * INDENT + line).rstrip()
