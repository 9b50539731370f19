"""The truth about every parameter: its gradient, its optimizer, whether it moved, and why."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from whygrad.diagnose import owners
from whygrad.diagnose.case import Case, is_library
from whygrad.graph.flow import FlowGraph
from whygrad.graph.places import Places
from whygrad.record.events import Event, ParameterInfo, Question, Recording
from whygrad.session import Finding, ParameterState

MOST_ROWS = 20_000
_INPUTS = Event._fields.index("inputs")


def parameter_states(
    infos: list[ParameterInfo],
    findings: list[Finding],
    optimizer_names: dict[int, str],
    places: Places | None = None,
    limit: int = MOST_ROWS,
) -> list[ParameterState]:
    """One row per parameter, in their order; beyond the limit plain ones are left out first.

    `places` adds where each was made, and names for tensors that no module knows.
    """
    record = None if places is None else _Record(places)
    codes = _codes_by_name(findings)
    rows = [_state(info, codes, optimizer_names, record) for info in infos]
    if len(rows) <= limit:
        return rows
    by_need = sorted(range(len(rows)), key=lambda at: (rows[at].is_plain, at))
    return [rows[at] for at in sorted(by_need[:limit])]


def settled(infos: list[ParameterInfo], recording: Recording) -> Places:
    """Give a fresh census the names that findings use; the places to go with it."""
    places = Places(recording)
    owners.settle(Question("asked", (), (), 0, 0, parameters=infos), recording, places)
    return places


def _codes_by_name(findings: Iterable[Finding]) -> dict[str, str]:
    """Parameter -> code of the most important finding that names it."""
    codes: dict[str, str] = {}
    for finding in sorted(findings, key=lambda finding: finding.severity == "info"):
        for name in finding.parameters:
            codes.setdefault(name, finding.code)
    return codes


def _state(
    info: ParameterInfo,
    codes: dict[str, str],
    optimizer_names: dict[int, str],
    record: _Record | None,
) -> ParameterState:
    name = info.name or info.kept_as or (record.name(info.node) if record else "tensor")
    file, line = record.made_at(info.node) if record else ("", 0)
    held_by = optimizer_names.get(info.optimizer, "optimizer" if info.in_optimizer else "")
    state = ParameterState(
        name=name,
        shape=[int(size) for size in info.shape],
        requires_grad=info.requires_grad,
        gradient=info.gradient if info.requires_grad else "frozen",
        norm=info.norm,
        optimizer=held_by,
        moved=info.moved,
        file=file,
        line=line,
    )
    state.reason = codes.get(name) or _in_words(info, state, record, bool(optimizer_names))
    return state


def _in_words(
    info: ParameterInfo, state: ParameterState, record: _Record | None, has_optimizers: bool
) -> str:
    """What is plain without a finding."""
    if state.gradient == "frozen":
        return "frozen"
    if state.gradient == "none" and record is not None and record.is_unused(info.node):
        return "not used yet"
    return "in no optimizer" if has_optimizers and not state.optimizer else ""


class _Record:
    """What the record tells about parameters beyond their census."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._recording = places.recording
        # Leaves are named as in findings; the census has no name for those that are asked here.
        self._case = Case(Question("health", (), (), 0, 0), FlowGraph(self._recording), places)

    def name(self, node: int) -> str:
        return self._case.name(node)

    def made_at(self, node: int) -> tuple[str, int]:
        """The line of the program that made it, if that was seen and not only its first use."""
        source = self._recording.sources.get(node)
        if source is not None and not source.made_by:
            return "", 0
        for span in self._places.node_spans(node):
            if not is_library(span.file):
                return span.file, span.line
        return "", 0

    def is_unused(self, node: int) -> bool:
        """Certain only as long as nothing has been dropped from the record."""
        return self._recording.base == 0 and node not in self._used

    @cached_property
    def _used(self) -> set[int]:
        return {node for event in self._recording.events for node in event[_INPUTS]}
