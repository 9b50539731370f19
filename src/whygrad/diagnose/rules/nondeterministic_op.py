"""Deterministic mode is on, and an operation has no implementation that is deterministic."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, failing
from whygrad.diagnose.case import Case
from whygrad.session import Finding, Related
from whygrad.source.calls_by_name import calls_of
from whygrad.source.spans import location

CODE = "nondeterministic-op"

_SWITCH = "torch.use_deterministic_algorithms"


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    inside = any(".backward" in call or "autograd" in call for call in said.complaint.calls)
    node = failing.operation(case, said.complaint) if inside else None
    where = failing.span(case, node) or said.where
    said.words["operation"] = failing.shown(case, node) if node is not None else "this call"
    said.words["half"] = "the backward of " if inside else ""
    files = [span.file for span in case.places.spans(said.complaint.outer)]
    switches = calls_of(dict.fromkeys([where.file, *files]), _SWITCH)
    yield complaints.finding(
        case,
        said,
        where=where,
        related=[Related("operation", location(span), "asked for here") for span in switches[:1]],
    )
