"""A tensor of an earlier iteration brings that iteration's graph into this one."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import lives, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.entries import entry
from whygrad.graph.lifetime import Meeting
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.inplace_edits import detach_after
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names

CODE = "state-carried-over"


def diagnose(case: Case) -> Iterator[Finding]:
    meeting = case.meeting
    if meeting is None or meeting.kind != "carried":
        return
    where, name = entry(case, meeting)
    where = where or case.surface
    if where is not None:
        yield _finding(case, meeting, where, name)


def _finding(case: Case, meeting: Meeting, where: Span, name: str) -> Finding:
    step = _step(case, meeting)
    what = f"`{name}`" if name else "a tensor"
    title = f"{what} carries the graph of {_when(case, step)} into this one"
    return Finding(
        code=CODE,
        severity="error",
        symptom="raises" if case.raises else "silent",
        title=title,
        message=f"{words.sentence(title)} {_message(meeting)}",
        location=location(where),
        label=f"{what if name else 'the old tensor'} enters the graph of "
        f"`{case.root_name}` here, with its history",
        related=[
            *_made(case, meeting, where),
            *_freed(case, meeting, where),
            *lives.surfaced_here(case, where),
        ],
        parameters=_parameters(case, meeting),
        why=_why(case, meeting, what),
        checked=[_checked(case, meeting)],
        fix=_fix(case, meeting, where, name),
        first_step=case.question.step,
    )


def _step(case: Case, meeting: Meeting) -> int:
    return case.lifetime.step_at(meeting.maker) if case.lifetime is not None else 0


def _when(case: Case, step: int) -> str:
    return f"step {step}" if 0 < step < case.question.step else "an earlier iteration"


def _message(meeting: Meeting) -> str:
    if meeting.earlier.retained:
        return "`retain_graph=True` keeps that graph, but not the weights it was computed with."
    return "That graph was freed by its own backward()."


def _made(case: Case, meeting: Meeting, where: Span) -> list[Related]:
    span = case.places.node_span(meeting.maker)
    if span is None or (span.file, span.line) == (where.file, where.line):
        return []
    return [
        Related("created", location(span), f"made here, in {_when(case, _step(case, meeting))}")
    ]


def _freed(case: Case, meeting: Meeting, where: Span) -> list[Related]:
    span, surface = lives.pass_span(case, meeting.earlier), case.surface
    if span is None or span.extent == where.extent:
        return []
    if surface is not None and span.extent == surface.extent and span.file == surface.file:
        return []
    kept = "went through it, and kept it" if meeting.earlier.retained else "freed it"
    return [
        Related("freed", location(span), f"the earlier {lives.call_of(meeting.earlier)} {kept}")
    ]


def _parameters(case: Case, meeting: Meeting) -> list[str]:
    if case.lifetime is None:
        return []
    return case.names(case.lifetime.parameters_of(meeting.shared))


def _why(case: Case, meeting: Meeting, what: str) -> str:
    root = case.root_name
    back = f"{what} was computed in an earlier iteration and kept its history, so the gradient of "
    back += f"`{root}` goes back through that iteration as well."
    if meeting.earlier.retained:
        return (
            f"{back} `retain_graph=True` kept that graph, but the weights have been updated since, "
            "and it needs the old ones. Each further step would go back further still."
        )
    return f"{back} Its own backward() has freed what that needs."


def _checked(case: Case, meeting: Meeting) -> str:
    count, s = words.count(len(meeting.shared), "operation"), "s" * (len(meeting.shared) == 1)
    return f"{count} behind `{case.root_name}` belong{s} to the graph of an earlier backward()."


def _fix(case: Case, meeting: Meeting, where: Span, name: str) -> Fix:
    once = "add `.detach()` where it is carried over"
    recomputed = "or compute it anew in every step, if it should be trained"
    plaster = " and drop `retain_graph=True`" if meeting.earlier.retained else ""
    edits: list[Edit] = []
    if name and name in assigned_names(where) and not _accumulates(meeting, case):
        edits = detach_after(where, name)
    return Fix(
        title=f"{once}{plaster}, {recomputed}",
        edits=edits,
        safety="this step's forward values stay equal; gradient stops at the iteration's border",
        deliberate="if gradient should reach back over several iterations, sum their losses and "
        "call backward() once, after the last of them.",
    )


def _accumulates(meeting: Meeting, case: Case) -> bool:
    """Whether the value is a running loss: detaching it after the addition would cut all."""
    return meeting.maker in meeting.earlier.roots
