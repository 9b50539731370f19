"""The learning-rate scheduler steps before the optimizer does: its first value is skipped."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, lives, steps, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.steps import Training
from whygrad.record.accounts import ScheduleUse, StepUse
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.spans import Span, location
from whygrad.source.step_calls import (
    called_method,
    common_loop,
    is_wound_forward,
    order_in_source,
    same_block,
)
from whygrad.source.step_edits import move_after

CODE = "scheduler-before-optimizer"

_NOTICED_AS = "step-missing"  # what torch's own warning is about, as long as nothing else is known
_SKIPPED_BY = "scaler-misuse"
_OWN_STEP = ("CosineAnnealingWarmRestarts", "SequentialLR")  # torch does not warn for these


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, _NOTICED_AS)
    if said is not None:
        yield _noticed(case, said)
    account = case.question.account
    if account is None or account.scaled or not account.complete:
        return
    for training in steps.trainings(case):
        if training.cycles and steps.by_program(case, training):
            finding = _finding(case, training)
            if finding is not None:
                yield finding


def _noticed(case: Case, said: Said) -> Finding:
    """Torch has noticed it; whether a step will follow is not known at that time."""
    history = said.complaint.history
    uses = history.account.optimizers if history is not None else []
    name = steps.made_name(case, uses[0]) if len(uses) == 1 else ""
    said.words |= {
        "call": steps.written(said.where, "scheduler.step()"),
        "optimizer": f"`{name}`" if name else "the optimizer",
    }
    scaled = history is not None and any(use.call == "step" for use in history.scaling)
    if not scaled:
        wound = is_wound_forward(said.where)
        return complaints.finding(case, said, severity="info" if wound else None)
    return complaints.finding(
        case,
        said,
        code=_SKIPPED_BY,
        severity="info",
        title="the gradient scaler has left out the first step, and the schedule has moved on",
        label="moves on although no step was made",
        why="a scaler starts with a large scale, and leaves out steps in which gradients overflow "
        "until it has found one that fits. That is as it should be; the schedule just is a step "
        "or two ahead.",
        fix=Fix(title="move the schedule on only if the scale has not become smaller in update()"),
    )


def _finding(case: Case, training: Training) -> Finding | None:
    first = next((act for act in training.schedules if act.steps_before == 0), None)
    where = steps.line(case, first) if first is not None else None
    step = steps.line(case, training.cycles[0].step)
    if first is None or where is None or step is None or _is_told_when(where):
        return None
    loop = _loop(case, first, training.cycles[0].step) or _in_turn(training)
    if loop is None:
        return None  # before the loop: a schedule is wound forward, to resume or on purpose
    early = [act for act in training.schedules if act.steps_before == 0]
    said, stepped = steps.written(where, "scheduler.step()"), f"`{training.name}.step()`"
    title = f"{said} runs before the first {stepped}: {_skipped(first, early)}"
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent" if first.name in _OWN_STEP else "warns",
        title=title,
        message=f"{words.sentence(title)} Training starts with the learning rate that was meant "
        "for later.",
        location=location(where),
        label="the learning rate moves on before it was ever used",
        related=[]
        if lives.same_place(where, step)
        else [Related("used", location(step), "the first step comes later")],
        parameters=[],
        why="a scheduler sets the first learning rate when it is made, and each of its step() "
        "calls goes on to the next one. Called before the optimizer has stepped, it goes past a "
        "value that was never used.",
        checked=[
            f"`{first.name}` stepped {_times(len(early))} before the first step of "
            f"`{training.name}`."
        ],
        fix=_fix(where, step, loop == "before", said, stepped),
    )


def _is_told_when(where: Span) -> bool:
    """`scheduler.step(epoch)` goes to the epoch that it is given, and so skips none."""
    call = called_method(where)
    return call is None or call[1] != "step" or bool(call[2])


def _loop(case: Case, schedule: ScheduleUse, step: StepUse) -> str | None:
    """How the two follow each other in the loop around both; None if there is none."""
    parted = steps.parting(case, schedule, step)
    if parted is None or common_loop(*parted) is None:
        return None
    return order_in_source(*parted)


def _in_turn(training: Training) -> str | None:
    """Schedule, step, schedule, step: there is a loop, wherever it is written."""
    orders = [act.order for act in training.schedules]
    steps_at = [cycle.step.order for cycle in training.cycles]
    turns = zip(orders, steps_at, orders[1:], strict=False)
    in_turn = all(mine < step < following for mine, step, following in turns)
    return "before" if in_turn and len(orders) > 2 and len(steps_at) > 2 else None


def _skipped(first: ScheduleUse, early: list[ScheduleUse]) -> str:
    if len(early) == 1:
        return f"the first learning rate of `{first.name}` is skipped"
    return f"the first {len(early)} learning rates of `{first.name}` are skipped"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _fix(where: Span, step: Span, in_order: bool, said: str, stepped: str) -> Fix:
    edits: list[Edit] = move_after(where, step) if same_block(where, step) else []
    title = f"call {said} after {stepped}, not before it"
    if not in_order:
        title = f"call {said} only when {stepped} has run"
    return Fix(
        title=title,
        edits=edits,
        safety="the schedule then starts with its first value",
        deliberate="if the first value should be skipped, give the schedule another start.",
    )
