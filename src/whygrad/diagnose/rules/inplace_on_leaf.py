"""A parameter, or a part of one, is written to while gradients are being recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whygrad import catalogue
from whygrad.diagnose import complaints, lives, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Event
from whygrad.record.ops import display_name, is_write
from whygrad.session import Finding, Fix, Related
from whygrad.source.inplace_edits import (
    find_inplace_constructors,
    out_of_place,
    set_inplace_false,
    under_no_grad,
)
from whygrad.source.spans import Span, location
from whygrad.source.uses import is_value

CODE = "inplace-on-leaf"

_LEAF = re.compile(r"(view of a )?\bleaf Variable that requires grad|resize variables that require")


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        yield _moved(case, said)
    question = case.question
    found = _LEAF.search(question.error_text)
    if found is None or not case.raises or _is_quoted(case):
        return
    stack = question.raised_at or question.stack
    target = question.targets[0] if question.targets else None
    where, library = case.blame(stack, target)
    if where is not None:
        yield _finding(case, where, library, target, part=bool(found.group(1)))


def _is_quoted(case: Case) -> bool:
    """Whether these words stand inside of another message: torch.compile quotes what it meets."""
    complaint = case.question.complaint
    message = catalogue.by_id(complaint.message) if complaint is not None else None
    return message is not None and message.told_by not in ("", CODE)


def _finding(
    case: Case, where: Span, library: Span | None, target: int | None, part: bool
) -> Finding:
    leaf = _leaf(case, target)
    name = case.name(leaf) if leaf is not None else ""
    named = f"`{name}`" if name and not name.startswith("tensor") else "a leaf tensor"
    what = f"part of {named}" if part else named
    title = f"{what} is written to while autograd is recording"
    return Finding(
        code=CODE,
        severity="error",
        symptom="raises",
        title=title,
        message=f"{words.sentence(title)} Updates belong under torch.no_grad().",
        location=location(where),
        label=lives.error_label(case),
        related=_library(library),
        parameters=[name] if name else [],
        why=f"{named} is a leaf: it was not computed from anything, and its gradient is "
        "collected in `.grad`. A recorded in-place write would make it the result of an "
        "operation, and there would be no leaf left to collect a gradient for, so torch refuses.",
        checked=["gradients were being recorded when the write was tried."],
        fix=_fix(where, library),
        first_step=case.question.step,
    )


def _fix(where: Span, library: Span | None) -> Fix:
    if is_value(where):
        built = find_inplace_constructors(where.file, where.line)
        return Fix(
            title="compute out of place: what is returned is used, and the leaf itself stays",
            edits=set_inplace_false(built[0]) if len(built) == 1 else out_of_place(where),
            safety="forward values stay equal",
        )
    return Fix(
        title="make the update under `torch.no_grad()`",
        edits=under_no_grad(where) if library is None else [],
        safety="the numbers written stay equal; the write itself is not differentiated",
        deliberate="if gradient should flow through the write, write into a copy: `.clone()` "
        "first, and use that.",
    )


def _moved(case: Case, said: Said) -> Finding:
    """A leaf became a result after a graph had been built that ends in it."""
    recording = case.graph.recording
    for node in range(recording.base + len(recording.events) - 1, recording.base - 1, -1):
        event = Event(*recording.events[node - recording.base])
        written = next(iter(event.inputs), None)
        if not event.live or not is_write(event.op) or written is None:
            continue
        where = case.places.node_span(node)
        if where is not None and not case.graph.inputs(written):
            said.words["op"] = display_name(event.op)
            return complaints.finding(case, said, where=where)
    said.words["op"] = "an in-place operation"
    return complaints.finding(case, said)


def _leaf(case: Case, target: int | None) -> int | None:
    """The leaf that is written to, itself or through a view of it."""
    seen: set[int] = set()
    while target is not None and target not in seen:
        seen.add(target)
        if case.graph.trainable_leaf(target):
            return target
        target = next(iter(case.graph.inputs(target)), None)
    return None


def _library(library: Span | None) -> list[Related]:
    return [] if library is None else [Related("library", location(library), "the write itself")]
