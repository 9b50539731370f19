"""Gradients are clipped when there are none yet, or when a step has used them already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from whygrad.diagnose import complaints, lives, steps, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.steps import Training
from whygrad.record.accounts import Account, ClearUse, ClipUse, PassUse, StepUse
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.given import defined_at
from whygrad.source.spans import Span, location
from whygrad.source.step_calls import call_arguments, is_infinite, order_in_source, same_block
from whygrad.source.step_edits import move_after, move_before

CODE = "clip-misplaced"

_USED_UP = "clip-empty-generator"

Place = Literal["before backward", "after step"]


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        where = None
        if said.message.id == _USED_UP:
            where = defined_at(case.places.spans(said.complaint.stack), 0, "parameters")
        yield complaints.finding(case, said, where=where)
    account = case.question.account
    if account is None:
        return
    by_line: dict[Span, list[ClipUse]] = {}
    for act in account.acts:
        span = steps.line(case, act) if isinstance(act, ClipUse) else None
        if isinstance(act, ClipUse) and span is not None:
            by_line.setdefault(span, []).append(act)
    for span, clips in by_line.items():
        training = _clipped_training(case, clips)
        if training is not None and _is_misplaced(case, account, clips, span):
            yield _finding(case, account, training, clips, span)


def _clipped_training(case: Case, clips: list[ClipUse]) -> Training | None:
    """The optimizer that uses gradients of these parameters, step after step."""
    clipped = frozenset().union(*(clip.parameters for clip in clips))
    for training in steps.trainings(case):
        if not steps.sure(case, training.cycles) or not steps.by_program(case, training):
            continue
        used = [c for c in training.cycles if any(p.touched & clipped for p in c.passes)]
        if len(used) == len(training.cycles) and all(c.step.passes for c in used):
            return training
    return None


def _is_misplaced(case: Case, account: Account, clips: list[ClipUse], span: Span) -> bool:
    """Whether no clip of these parameters, at whatever line, came in time."""
    clipped = frozenset().union(*(clip.parameters for clip in clips))
    alike = [a for a in account.acts if isinstance(a, ClipUse) and a.parameters & clipped]
    if len(clips) < 2 or any(_in_time(account, clip) for clip in alike):
        return False
    # Clipping to infinity only measures.
    return not any(is_infinite(argument) for argument in call_arguments(span))


def _in_time(account: Account, clip: ClipUse) -> bool:
    """Whether there was something to clip, or a pass had just been made, whatever came of it."""
    if clip.sight == "fresh":
        return True
    for act in reversed(account.acts[: clip.order - 1]):
        match act:
            case PassUse() if act.touched & clip.parameters:
                return True
            case StepUse() | ClearUse():
                return False
    return False


def _finding(
    case: Case, account: Account, training: Training, clips: list[ClipUse], where: Span
) -> Finding:
    name, last = clips[-1].name, training.cycles[-1]
    backward, step = steps.line(case, last.passes[-1]), steps.line(case, last.step)
    place = _place(case, account, training, clips)
    title = _title(training, name, place, backward, step)
    clipped = frozenset().union(*(clip.parameters for clip in clips))
    names = steps.parameter_names(case, clipped & training.use.nodes)
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} `{training.name}` steps with gradients that were never "
        "clipped.",
        location=location(where),
        label="clips what the step has used already"
        if place == "after step" and clips[-1].sight == "used"
        else "finds nothing here that a step will use",
        related=_related(where, backward, step),
        parameters=names,
        why=_why(name, place),
        checked=[_seen(clips), f"no `{name}()` found gradients that a step could still use."],
        fix=_fix(where, backward, step, name),
    )


def _place(case: Case, account: Account, training: Training, clips: list[ClipUse]) -> Place:
    """On which side of pass and step the clipping stands."""
    last = training.cycles[-1]
    before = steps.parting(case, clips[-1], last.passes[-1])
    if before is not None and order_in_source(*before) == "before":
        return "before backward"
    after = steps.parting(case, clips[-1], last.step)
    if after is not None and order_in_source(*after) == "after":
        return "after step"
    first = next((a for a in account.acts if isinstance(a, PassUse)), None)
    early = first is None or clips[0].order < first.order
    return "before backward" if early else "after step"


def _title(
    training: Training, name: str, place: Place, backward: Span | None, step: Span | None
) -> str:
    if place == "before backward":
        before = steps.written(backward, "backward()")
        return f"`{name}` runs before {before}, when there is nothing new to clip yet"
    after = steps.written(step, f"{training.name}.step()")
    return f"`{name}` runs after {after}, when the gradients have been used already"


def _why(name: str, place: Place) -> str:
    if place == "before backward":
        return (
            f"`{name}` changes the gradients that are there when it is called. Those of this "
            "iteration come later, with backward(), and go to the step unclipped."
        )
    return (
        f"`{name}` changes the gradients that are there when it is called. The step has moved the "
        "parameters by then, and what is clipped now is cleared or added to, but not used."
    )


def _seen(clips: list[ClipUse]) -> str:
    said = {
        "none": "no gradient at all",
        "used": "only gradients that a step had used already",
        "zero": "only zeros",
    }
    told = [
        f"{found} of {len(clips)} calls found {said[sight]}"
        for sight in said
        if (found := sum(clip.sight == sight for clip in clips))
    ]
    return f"{', '.join(told)}."


def _related(where: Span, backward: Span | None, step: Span | None) -> list[Related]:
    found = []
    if backward is not None and not lives.same_place(backward, where):
        found.append(Related("operation", location(backward), "computes the gradients"))
    if step is not None and not lives.same_place(step, where):
        found.append(Related("used", location(step), "uses them as they are"))
    return found


def _fix(where: Span, backward: Span | None, step: Span | None, name: str) -> Fix:
    edits: list[Edit] = []
    if backward is not None and same_block(where, backward):
        edits = move_after(where, backward)
    elif step is not None and same_block(where, step):
        edits = move_before(where, step)
    after = steps.written(backward, "backward()")
    before = steps.written(step, "step()")
    return Fix(
        title=f"call `{name}` after {after} and before {before}",
        edits=edits,
        safety="forward values stay equal; the steps become smaller where gradients are large",
        deliberate="if only the norm is wanted, compute it without clipping.",
    )
