"""Findings for a missing gradient that an error of Python's own tripped over."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad import catalogue
from whygrad.diagnose import complaints, results, words
from whygrad.diagnose.absences import Absence
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.graph.consumers import Consumers
from whygrad.session import Finding, Fix
from whygrad.source.spans import Span
from whygrad.source.tree import receiver_text

_LONG = 40


def said(case: Case) -> Said | None:
    complaint = case.question.complaint
    message = catalogue.by_id(complaint.message) if complaint is not None else None
    if complaint is None or message is None:
        return None
    return complaints.read(case, message, complaint)


def unused(case: Case, code: str) -> Iterator[Finding]:
    """Nothing has worked on it."""
    absence, told = case.absence, said(case)
    if absence is None or told is None or absence.kind != "unused":
        return
    names, (are, they) = _names(case, absence), _verbs(absence)
    yield complaints.finding(
        case,
        told,
        code=code,
        where=_made(case, absence) or told.where,
        title=f"{words.listed(names)} {are} used in no operation, so {they} no gradient",
        label="made here, and no operation has used it",
        why="backward() gives a gradient to what the loss was computed from. Nothing that ran "
        f"worked with {words.listed(names)}, so `.grad` stays None, which the program then used "
        "as if it were a tensor.",
        fix=Fix(
            title="use it in the forward pass, or take it out of what is gone through here",
            deliberate="if some parameters may be unused, pass over those without a gradient: "
            "`if p.grad is not None`.",
        ),
        parameters=names,
        checked=["none of the recorded operations with gradient used it."],
    )


def apart(case: Case, code: str) -> Iterator[Finding]:
    """It was used, for something that the loss does not contain."""
    absence, told = case.absence, said(case)
    if absence is None or told is None or absence.kind != "apart" or case.separations:
        return
    names, (_, they) = _names(case, absence), _verbs(absence)
    consumers = Consumers(case.graph.recording)
    ends = consumers.ends(read.node for read in absence.reads)
    where = results.place(case, ends[-1]) if ends else None
    root = case.root_name
    yield complaints.finding(
        case,
        told,
        code=code,
        where=where or told.where,
        title=f"what is computed from {words.listed(names)} is not part of `{root}`, so {they} "
        "no gradient",
        label=f"computed here, and `{root}` does not contain it",
        why="backward() gives a gradient to what its loss was computed from, and to nothing else.",
        fix=Fix(
            title="add it to the loss, or call backward() on it too",
            deliberate="if it is not to be trained here, pass over what has no gradient: "
            "`if p.grad is not None`.",
        ),
        parameters=names,
        checked=["no recorded operation leads from it to a loss that was backpropagated."],
    )


def frozen(case: Case, code: str, kind: str, where: Span | None) -> Iterator[Finding]:
    """It does not ask for a gradient: frozen, or never asked."""
    absence, told = case.absence, said(case)
    if absence is None or told is None or absence.kind != kind:
        return
    names, (are, they) = _names(case, absence), _verbs(absence)
    state = "frozen" if kind == "frozen" else "not asking for gradients"
    yield complaints.finding(
        case,
        told,
        code=code,
        where=where or _made(case, absence) or told.where,
        title=f"{words.listed(names)} {are} {state}, so {they} no gradient",
        label="requires_grad is off from here on" if kind == "frozen" else "made without it",
        why="backward() computes gradients only for tensors with requires_grad=True. For others "
        "`.grad` stays None, which the program then used as if it were a tensor.",
        fix=Fix(
            title="switch it on: `requires_grad_()`, before the forward pass",
            deliberate="if it is meant to stay fixed, pass over it: `if p.grad is not None`.",
        ),
        parameters=names,
    )


def not_yet(case: Case, code: str) -> Iterator[Finding]:
    """No backward() has run."""
    absence, told = case.absence, said(case)
    if absence is None or told is None or absence.kind != "no-pass":
        return
    names = _names(case, absence)
    yield complaints.finding(
        case,
        told,
        code=code,
        where=_read(case, absence) or told.where,
        title=f"the gradient of {words.listed(names)} is used before any backward()",
        label="still None here",
        why="`.grad` is None until the first backward() has reached the tensor, and after "
        "`zero_grad()`, which sets it to None again.",
        fix=Fix(
            title="call backward() first, or pass over what has no gradient yet: "
            "`if p.grad is not None`",
        ),
        parameters=names,
        checked=["no backward() had gone through by then."],
    )


def cleared(case: Case, code: str) -> Iterator[Finding]:
    """It had one, which was thrown away."""
    absence, told = case.absence, said(case)
    if absence is None or told is None or absence.kind != "cleared":
        return
    names = _names(case, absence)
    where = case.user_span(absence.cleared)
    yield complaints.finding(
        case,
        told,
        code=code,
        where=where or told.where,
        title=f"the gradient of {words.listed(names)} is cleared before it is used",
        label="sets the gradients to None",
        why="`zero_grad()` sets every `.grad` to None unless it is called with "
        "`set_to_none=False`. What backward() had computed was gone when the program came to "
        "use it.",
        fix=Fix(
            title="clear gradients after their last use, just before the next backward()",
            deliberate="if zeros are wanted in their place: `zero_grad(set_to_none=False)`.",
        ),
        parameters=names,
        checked=["a backward() had given it a gradient, and no later one has."],
    )


def _names(case: Case, absence: Absence) -> list[str]:
    """Names of the tensors; where the record has none, what the source calls them."""
    names = case.names([read.node for read in absence.reads])
    span = _read(case, absence)
    text = receiver_text(span) if span is not None and absence.reads[0].call == ".grad" else None
    if len(names) == 1 and names[0].startswith("tensor") and text and len(text) <= _LONG:
        return [text]
    return names


def _verbs(absence: Absence) -> tuple[str, str]:
    return ("is", "it gets") if len(absence.reads) == 1 else ("are", "they get")


def _read(case: Case, absence: Absence) -> Span | None:
    return case.user_span(absence.reads[0].stack)


def _made(case: Case, absence: Absence) -> Span | None:
    spans = [s for s in case.places.node_spans(absence.reads[0].node) if not is_library(s.file)]
    return spans[0] if spans else None
