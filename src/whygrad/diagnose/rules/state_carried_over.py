"""A tensor of an earlier iteration brings that iteration's graph into this one."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import lives, words
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.entries import entry
from whygrad.graph.lifetime import Meeting
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.holding import holding_of, kept_at
from whygrad.source.inplace_edits import detach_after
from whygrad.source.spans import Span, location
from whygrad.source.uses import names_set

CODE = "state-carried-over"


def diagnose(case: Case) -> Iterator[Finding]:
    meeting = case.meeting
    if meeting is None or meeting.kind != "carried":
        return
    entered, name = entry(case, meeting)
    where = _kept(entered, name) or entered or case.surface
    if where is not None:
        yield _finding(case, meeting, where, name, entered)


def _kept(entered: Span | None, name: str) -> Span | None:
    """Where a value is put that outlives the function which reads it."""
    if entered is None or not name or holding_of(entered, name) != "state":
        return None
    return kept_at(entered, name)


def _finding(case: Case, meeting: Meeting, where: Span, name: str, entered: Span | None) -> Finding:
    what = f"`{name}`" if name else "a tensor"
    once = case.lifetime is not None and case.lifetime.made_once(meeting)
    when = _when(case, meeting)
    title = (
        f"{what} was computed once, and is used again with its old graph"
        if once
        else f"{what} carries the graph of {when} into this one"
    )
    stored = entered is not None and entered != where
    return Finding(
        code=CODE,
        severity="error",
        symptom="raises" if case.raises else "silent",
        title=title,
        message=f"{words.sentence(title)} {_message(meeting)}",
        location=location(where),
        label=_keeps(where, name) if stored else _enters(case, name),
        related=[
            *_made(case, meeting, where, "once" if once else f"in {when}"),
            *_used(case, where, entered, name),
            *_freed(case, meeting, where),
            *lives.surfaced_here(case, where),
        ],
        parameters=lives.shared_parameters(case, meeting),
        why=_why(case, meeting, what, once),
        checked=[_checked(case, meeting)],
        fix=_fix(meeting, where, name, once),
        first_step=case.question.step,
    )


def _when(case: Case, meeting: Meeting) -> str:
    step = case.lifetime.step_at(meeting.maker) if case.lifetime is not None else 0
    return f"step {step}" if 0 < step < case.question.step else "an earlier iteration"


def _message(meeting: Meeting) -> str:
    if meeting.earlier.retained:
        return "`retain_graph=True` keeps that graph, but not the weights it was computed with."
    return "That graph belongs to an earlier backward()."


def _keeps(where: Span, name: str) -> str:
    what = f"`{name}`" if name in names_set(where) else f"what `{name}` reads later"
    return f"{what} is kept here, with its history"


def _enters(case: Case, name: str) -> str:
    what = f"`{name}`" if name else "the old tensor"
    return f"{what} enters the graph of `{case.root_name}` here, with its history"


def _used(case: Case, where: Span, entered: Span | None, name: str) -> list[Related]:
    if entered is None or entered == where:
        return []
    return [Related("used", location(entered), _enters(case, name))]


def _made(case: Case, meeting: Meeting, where: Span, when: str) -> list[Related]:
    span = case.places.node_span(meeting.maker)
    if span is None or (span.file, span.line) == (where.file, where.line):
        return []
    return [Related("created", location(span), f"made here, {when}")]


def _freed(case: Case, meeting: Meeting, where: Span) -> list[Related]:
    span, surface = lives.pass_span(case, meeting.earlier), case.surface
    if span is None or span in (where, surface):
        return []
    kept = "went through it, and kept it" if meeting.earlier.retained else "freed it"
    label = f"the earlier {lives.call_of(meeting.earlier)} {kept}"
    return [Related("freed", location(span), label)]


def _why(case: Case, meeting: Meeting, what: str, once: bool) -> str:
    when = "before the last backward()" if once else "in an earlier iteration"
    back = (
        f"{what} was computed {when} and kept its history, so the gradient of "
        f"`{case.root_name}` goes back through that part as well."
    )
    autopsy = case.question.autopsy
    if meeting.earlier.retained or (autopsy is not None and autopsy.saved):
        kept = "`retain_graph=True` kept that graph" if meeting.earlier.retained else "It is intact"
        return f"{back} {kept}, but the weights have been updated since, and it needs the old ones."
    return f"{back} Its own backward() has freed what that needs."


def _checked(case: Case, meeting: Meeting) -> str:
    count, s = words.count(len(meeting.shared), "operation"), "s" * (len(meeting.shared) == 1)
    return f"{count} behind `{case.root_name}` belong{s} to the graph of an earlier iteration."


def _fix(meeting: Meeting, where: Span, name: str, once: bool) -> Fix:
    plaster = ", and drop `retain_graph=True`" if meeting.earlier.retained else ""
    if once:
        return Fix(
            title=f"compute it anew in every step, where it is used{plaster}",
            safety="the first step's values stay equal; later ones use the current weights",
            deliberate="if it should act as a constant, add `.detach()` where it is computed.",
        )
    return Fix(
        title=f"add `.detach()` where it is carried over{plaster}",
        edits=_edits(meeting, where, name),
        safety="this step's forward values stay equal; gradient stops at the iteration's border",
        deliberate="if gradient should reach back over several iterations, sum their losses and "
        "call backward() once, after the last of them.",
    )


def _edits(meeting: Meeting, where: Span, name: str) -> list[Edit]:
    """Cut the value off right after it was set: it is a tensor by then, for certain."""
    running_loss = meeting.maker in meeting.earlier.roots
    names = names_set(where)
    target = name if name in names else names[0] if len(names) == 1 else ""
    if not target or running_loss or is_library(where.file):
        return []
    return detach_after(where, target)
