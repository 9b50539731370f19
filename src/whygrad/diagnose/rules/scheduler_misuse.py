"""A learning-rate scheduler that is called too often, or in an outdated way."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding
from whygrad.source.spans import Span
from whygrad.source.step_calls import called_method

CODE = "scheduler-misuse"

_AT_ITS_MAKING = ("lr-scheduler-total-steps", "lr-scheduler-step-overridden")


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    call = called_method(said.where)
    if said.message.id == "lr-scheduler-epoch" and call is not None and not call[2]:
        return  # one scheduler tells another the epoch: nothing to change in the program
    where = _made(case, said) if said.message.id in _AT_ITS_MAKING else None
    yield complaints.finding(case, said, where=where)


def _made(case: Case, said: Said) -> Span | None:
    stacks = [made.stack for made in said.complaint.made if made.kind == "scheduler" and made.stack]
    return case.user_span(stacks[0]) if stacks else None
