"""The path block's content: which rows stand between the parameters and the loss."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from whygrad.report.pen import Pen
from whygrad.report.places import short_names
from whygrad.report.text import cells
from whygrad.session import Finding, FlowState, PathStep

MOST_PARAMETERS = 6
MOST_ROWS = 14
ENDS = 3  # rows kept at either end of a shortened path
AROUND_CUT = 2
NAMES_WIDTH = 24


@dataclass
class Row:
    """One drawn row. `more` and `gap` stand for parameters and operations left out."""

    kind: Literal["parameter", "more", "op", "gap"]
    names: list[str]
    state: FlowState = "live"
    shape: str = ""
    place: str = ""
    text: str = ""
    entered: bool = False  # parameters stand directly above
    operations: int = 1

    def name(self, ellipsis: str) -> str:
        whole = ", ".join(self.names)
        if cells(whole) <= NAMES_WIDTH or len(self.names) < 3:
            return whole
        return f"{self.names[0]}, {ellipsis}, {self.names[-1]}"


def path_rows(finding: Finding, pen: Pen) -> list[Row]:
    rows = _merged(finding.path, pen)
    return rows if pen.verbose else _shortened(rows, pen)


def _merged(path: list[PathStep], pen: Pen) -> list[Row]:
    """One row per step, but one for all operations of a source line."""
    files = short_names({step.file for step in path if step.file})
    rows: list[Row] = []
    for step in path:
        row = Row(
            kind="op" if step.kind == "op" else "parameter",
            names=[pen.clean(step.name) or "?"],
            state=step.state,
            shape="" if step.shape is None else str(list(step.shape)),
            place=pen.clean(f"{files[step.file]}:{step.line}") if step.file else "",
            text=pen.clean(step.text),
        )
        previous = rows[-1] if rows else row
        row.entered = row.kind == "op" and previous.kind == "parameter"
        if not rows or not _same_line(previous, row):
            rows.append(row)
            continue
        previous.names += [name for name in row.names if name not in previous.names]
        previous.operations += 1
        previous.shape = row.shape or previous.shape
        previous.text = row.text or previous.text
    return rows


def _same_line(previous: Row, row: Row) -> bool:
    if previous.kind != "op" or row.kind != "op" or not row.place:
        return False
    if (previous.place, previous.state) != (row.place, row.state):
        return False
    # Where parameters enter, the expression that takes them is worth its own row.
    return not previous.entered or previous.text == row.text


def _shortened(rows: list[Row], pen: Pen) -> list[Row]:
    """Long runs of parameters or operations give way to a count."""
    dropped = _dropped_operations(rows) | _dropped_parameters(rows)
    numbered = enumerate(rows)
    result: list[Row] = []
    for (_, is_dropped), group in groupby(numbered, lambda at: (at[1].kind, at[0] in dropped)):
        run = [row for _, row in group]
        # A count in place of a single row would save nothing.
        result += [_stand_in(run, pen)] if is_dropped and len(run) > 1 else run
    return result


def _dropped_operations(rows: list[Row]) -> set[int]:
    ops = [index for index, row in enumerate(rows) if row.kind == "op"]
    if len(ops) <= MOST_ROWS:
        return set()
    kept = {*range(ENDS), *range(len(ops) - ENDS, len(ops))}
    for at, index in enumerate(ops):
        if rows[index].state == "cut":
            kept.update(range(at - AROUND_CUT, at + AROUND_CUT + 1))
    return {index for at, index in enumerate(ops) if at not in kept and not rows[index].entered}


def _dropped_parameters(rows: list[Row]) -> set[int]:
    dropped: set[int] = set()
    run = 0
    for index, row in enumerate(rows):
        run = run + 1 if row.kind == "parameter" else 0
        if run > MOST_PARAMETERS:
            dropped.add(index)
    return dropped


def _stand_in(run: list[Row], pen: Pen) -> Row:
    dots = pen.ellipsis
    if run[0].kind == "parameter":
        return Row("more", [f"{dots} and {len(run)} more (-v)"])
    operations = sum(row.operations for row in run)
    return Row("gap", [f"{dots} {operations} operations (-v) {dots}"])


def remarks(finding: Finding) -> list[str]:
    """What the parameters at the top have in common, where the path proves it."""
    top: list[PathStep] = []
    for step in finding.path:
        if step.kind == "op":
            break
        top.append(step)
    starved = all(step.state == "live" and step.name in finding.parameters for step in top)
    if not top or not starved or all(step.state != "cut" for step in finding.path):
        return []
    if len(top) == 1:
        return ["wants a gradient, cannot get one"]
    if len(top) == 2:
        return ["both want a gradient,", "neither can get one"]
    return [f"all {len(top)} want a gradient,", "none can get one"]
