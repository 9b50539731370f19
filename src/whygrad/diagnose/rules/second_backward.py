"""The same graph goes through backward twice."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import lives, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.entries import entry
from whygrad.graph.lifetime import Meeting
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location

CODE = "second-backward"


def diagnose(case: Case) -> Iterator[Finding]:
    meeting = case.meeting
    if meeting is None or meeting.kind not in ("same", "inside", "contains"):
        return
    where = case.surface
    if where is not None:
        yield _finding(case, meeting, where)


def _finding(case: Case, meeting: Meeting, where: Span) -> Finding:
    root = case.root_name
    name = lives.pass_name(case, meeting.earlier)
    before = f"`{name}`" if name else "a loss"
    title = _title(case, meeting, root, before)
    made = case.places.node_span(meeting.maker)
    related = _earlier(case, meeting, where)
    if made is not None and meeting.kind == "same":
        label = f"`{root}` was made here, {'once' if meeting.repeated else 'for both'}"
        related.append(Related("created", location(made), label))
    entered = entry(case, meeting)[0] if meeting.kind == "contains" else None
    if entered is not None and not lives.same_place(entered, where):
        label = f"{before}, with its freed graph, becomes part of `{root}` here"
        related.append(Related("used", location(entered), label))
    return Finding(
        code=CODE,
        severity="error",
        symptom="raises" if case.raises else "silent",
        title=title,
        message=f"{words.sentence(title)} {_message(meeting)}",
        location=location(where),
        label=lives.surface_label(case),
        related=related,
        parameters=lives.shared_parameters(case, meeting),
        why=_why(meeting, root, before),
        checked=[_checked(meeting)],
        fix=_fix(meeting, root, before),
        first_step=case.question.step,
    )


def _title(case: Case, meeting: Meeting, root: str, before: str) -> str:
    if meeting.kind == "contains":
        return f"`{root}` still contains {before}, which was already backpropagated"
    if meeting.kind == "inside":
        return f"`{root}` is part of {before}, which was already backpropagated"
    if meeting.repeated:
        return f"`{root}` is computed once and backpropagated again in every iteration"
    return f"`{root}` is backpropagated a second time"


def _message(meeting: Meeting) -> str:
    return f"The first {lives.call_of(meeting.earlier)} frees what the second one needs."


def _earlier(case: Case, meeting: Meeting, where: Span) -> list[Related]:
    span = lives.pass_span(case, meeting.earlier)
    if span is None or lives.same_place(span, where):
        return []
    kept = meeting.earlier.retained
    label = "the first time, with the graph retained" if kept else "the first time: it frees"
    return [Related("freed", location(span), label if kept else f"{label} the graph")]


def _why(meeting: Meeting, root: str, before: str) -> str:
    if meeting.earlier.retained:
        return (
            f"`retain_graph=True` kept the graph of {before}, so a second pass was allowed; but "
            "the graph belongs to the weights it was computed with, and these have been updated "
            "since. Retaining the graph only moved the error."
        )
    how = f"{lives.call_of(meeting.earlier)} frees the values that a graph kept, as it goes."
    if meeting.kind == "contains":
        return (
            f"{how} `{root}` was built on top of {before}, so its backward pass comes to the "
            "part that is already freed."
        )
    if meeting.repeated:
        return f"{how} `{root}` is not computed anew in the loop, so the next pass finds nothing."
    return f"{how} The second pass over the same graph finds nothing left."


def _checked(meeting: Meeting) -> str:
    shared = words.count(len(meeting.shared), "operation")
    return f"both passes go through the same {shared}."


def _fix(meeting: Meeting, root: str, before: str) -> Fix:
    if meeting.kind == "contains":
        title = (
            f"start `{root}` anew after the first backward"
            if before == f"`{root}`"
            else f"call backward once: drop the first one, or leave {before} out of the second"
        )
    elif meeting.repeated:
        title = f"compute `{root}` inside the loop, from a new forward pass"
    elif meeting.earlier.call == "grad":
        title = f"use the gradients of the first pass, or compute `{root}` anew"
    else:
        title = "call backward() once: it already adds to every `.grad`"
    return Fix(
        title=title,
        safety="the gradients of the first pass stay as they are",
        deliberate="if both passes are wanted on the same weights, the first needs "
        "`retain_graph=True`; its price is the memory of the whole graph until the last pass.",
    )
