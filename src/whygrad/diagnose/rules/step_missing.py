"""Gradients are computed again and again, and the optimizer never steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from whygrad.diagnose import lives, steps, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.steps import Training
from whygrad.record.accounts import Account, ClearUse, ClipUse, PassUse, StepUse
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.spans import Span, location
from whygrad.source.step_calls import (
    MethodUse,
    is_name,
    method_uses,
    names_optimizer,
    same_block,
    same_name,
)
from whygrad.source.step_edits import (
    add_parentheses,
    insert_after,
    insert_before,
    replace_receiver,
)

CODE = "step-missing"

_PASSES = 3
_LOST_FOR_LONG = 10  # passes cleared without a step: more than warming up would take
_ADDED_FOR_LONG = 64  # passes that nobody has cleared: more than a run on trial would make
_STEPS_OF_OTHERS = 10  # more than a critic gets before its generator's turn


def diagnose(case: Case) -> Iterator[Finding]:
    account = case.question.account
    if account is None:
        return
    for training in steps.trainings(case):
        if training.use.steps == 0 and training.passes and _is_sure(case, account, training):
            finding = _finding(case, account, training)
            if finding is not None:
                yield finding


def _is_sure(case: Case, account: Account, training: Training) -> bool:
    nodes = training.use.nodes - _moved_otherwise(account)
    idle = [m for m in training.passes if m.touched & nodes]
    if len(idle) < _PASSES or any(made.read for made in idle):
        return False
    if account.written & training.use.nodes:
        return False
    unused = [made for made in idle if not made.used_by and steps.seen_through(account, made)]
    if account.final:
        if account.scaled and _overflows(case, nodes):
            return False
        if _may_come(case, account, training, idle):
            return False
        return len(unused) >= _PASSES or case.question.step > _STEPS_OF_OTHERS
    lost = [made for made in unused if made.lost]
    instead = len(training.schedules) > 1 and len(lost) >= _PASSES
    return not account.scaled and (instead or len(lost) >= _LOST_FOR_LONG)


def _may_come(case: Case, account: Account, training: Training, idle: list[PassUse]) -> bool:
    """Whether a step stands in the loop and its turn just had not come: gradients add up."""
    if len(idle) >= _ADDED_FOR_LONG or any(made.lost for made in idle):
        return False
    return any(use.called for use in _candidates(case, account, training))


def _moved_otherwise(account: Account) -> set[int]:
    """Parameters that another optimizer moves."""
    return {node for use in account.optimizers if use.steps for node in use.nodes}


def _overflows(case: Case, nodes: set[int] | frozenset[int]) -> bool:
    """A gradient scaler skips the step when gradients are not finite."""
    infos = (case.parameter(node) for node in nodes)
    return any(info is not None and info.gradient == "non-finite" for info in infos)


def _own_pass(account: Account, training: Training) -> PassUse:
    """The pass that was meant for this optimizer: the first after it has cleared."""
    cleared = False
    for act in account.acts:
        if isinstance(act, ClearUse) and act.optimizer == training.use.number:
            cleared = True
        elif cleared and isinstance(act, PassUse) and act in training.passes:
            return act
    return training.passes[-1]


# --- where ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Culprit:
    """The line to change, and what is wrong with it."""

    kind: Literal["uncalled", "scheduler", "other optimizer", "not run", "backward"]
    span: Span
    call: str  # the missing call, as the program would write it


def _culprit(case: Case, account: Account, training: Training, backward: Span) -> Culprit:
    uses = _candidates(case, account, training)
    call = _call(case, account, training, uses)
    for use in uses:
        if not use.called:
            return Culprit("uncalled", use.span, f"{use.receiver}.step()")
    scheduler = _scheduler(case, training)
    if scheduler is not None:
        return Culprit("scheduler", scheduler, call)
    other = _other_step(case, account, training)
    if other is not None:
        return Culprit("other optimizer", other, call)
    if uses:
        return Culprit("not run", uses[0].span, call)
    return Culprit("backward", backward, call)


def _candidates(case: Case, account: Account, training: Training) -> list[MethodUse]:
    """`optimizer.step` in the code around the passes: not called, or in a branch that never ran."""
    uses = method_uses(steps.user_spans(case, training.passes[-1:]), "step")
    own = steps.made_name(case, training.use)
    others = {steps.stepped_name(steps.line(case, act)) for act in training.schedules}
    others |= {steps.made_name(case, u) for u in account.optimizers if u is not training.use}
    ran = [steps.line(case, act) for act in account.acts if isinstance(act, StepUse)]
    not_run = [
        use
        for use in uses
        if not any(span is not None and lives.same_place(use.span, span) for span in ran)
    ]
    named = [use for use in not_run if own and same_name(use.receiver, own)]
    return named or [
        use
        for use in not_run
        if names_optimizer(use.receiver)
        and not any(same_name(use.receiver, name) for name in others if name)
    ]


def _call(case: Case, account: Account, training: Training, uses: list[MethodUse]) -> str:
    written = next((use.receiver for use in uses if is_name(use.receiver)), "")
    name = written or steps.made_name(case, training.use) or "optimizer"
    if account.scaled and not written:
        scales = method_uses(steps.user_spans(case, training.passes[-1:]), "scale")
        if scales and is_name(scales[0].receiver):
            return f"{scales[0].receiver}.step({name})"
    return f"{name}.step()"


def _scheduler(case: Case, training: Training) -> Span | None:
    """The line that lets the scheduler step once per pass, where the optimizer should."""
    schedules = training.schedules
    once = [
        sum(earlier.order < made.order < later.order for made in training.passes) == 1
        for earlier, later in pairwise(schedules)
    ]
    return steps.line(case, schedules[-1]) if once and all(once) else None


def _other_step(case: Case, account: Account, training: Training) -> Span | None:
    """A step of another optimizer, which has one of its own, right after this one's passes."""
    acts = [act for act in account.acts if isinstance(act, (PassUse, StepUse))]
    places: dict[int, set[Span]] = {}
    after: dict[Span, int] = {}
    for before, act in pairwise(acts):
        span = steps.line(case, act) if isinstance(act, StepUse) else None
        if not isinstance(act, StepUse) or span is None:
            continue
        places.setdefault(act.optimizer, set()).add(span)
        if isinstance(before, PassUse) and before.touched & training.use.nodes:
            after[span] = act.optimizer
    found = [span for span, number in after.items() if len(places[number]) > 1]
    return found[0] if len(found) == 1 else None


# --- words ------------------------------------------------------------------------------------


def _finding(case: Case, account: Account, training: Training) -> Finding | None:
    backward = steps.line(case, _own_pass(account, training))
    if backward is None:
        return None
    culprit = _culprit(case, account, training, backward)
    nodes = training.use.nodes - _moved_otherwise(account)
    names = steps.parameter_names(case, {n for m in training.passes for n in m.touched} & nodes)
    title = _title(training, culprit)
    return Finding(
        code=CODE,
        severity="warning",
        symptom="warns" if training.schedules else "silent",
        title=title,
        message=f"{words.sentence(title)} Without `optimizer.step()` these parameters never "
        f"change: {words.listed(names, 8)}.",
        location=location(culprit.span),
        label=_label(training, culprit),
        related=_related(case, account, training, culprit, backward),
        parameters=names,
        why=_why(culprit),
        checked=_checked(account, training),
        fix=_fix(case, account, training, culprit),
    )


def _title(training: Training, culprit: Culprit) -> str:
    call = f"`{culprit.call}`"
    match culprit.kind:
        case "uncalled":
            return f"{steps.written(culprit.span, 'step')} is not called, it lacks its parentheses"
        case "scheduler":
            said = steps.written(culprit.span, "scheduler.step()")
            return f"{said} runs in every iteration, {call} never does"
        case "other optimizer":
            said = steps.written(culprit.span, "this step")
            return f"{said} moves other parameters, {call} never runs"
    return f"{call} is never called: {steps.passes(len(training.passes))} and not one step"


def _label(training: Training, culprit: Culprit) -> str:
    match culprit.kind:
        case "uncalled":
            return "names the method and does not call it"
        case "scheduler":
            return "changes the learning rate, and no parameter"
        case "other optimizer":
            return f"steps another optimizer, not this `{training.use.name}`"
        case "not run":
            return "never ran"
    return "computes gradients that no step uses"


def _related(
    case: Case, account: Account, training: Training, culprit: Culprit, backward: Span
) -> list[Related]:
    found = []
    if culprit.kind != "backward":
        label = "computes gradients that no step uses"
        found.append(Related("operation", location(backward), label))
    found += [
        Related("operation", location(use.span), "never ran")
        for use in _candidates(case, account, training)[:1]
        if use.called and culprit.kind != "not run"
    ]
    made = case.user_span(training.use.stack) if training.use.stack else None
    if made is not None:
        found.append(Related("created", location(made), "the optimizer that never steps"))
    return found


def _why(culprit: Culprit) -> str:
    here = f", here `{culprit.call}`," if culprit.call != "optimizer.step()" else ""
    why = (
        f"backward() only computes gradients; `optimizer.step()`{here} is what changes parameters "
        "with them."
    )
    if culprit.kind == "scheduler":
        return f"{why} A scheduler's step() changes the learning rate for it, and nothing else."
    return why


def _checked(account: Account, training: Training) -> list[str]:
    lost = sum(made.lost and steps.seen_through(account, made) for made in training.passes)
    told = f"{steps.passes(len(training.passes))} reached its parameters, and it stepped 0 times."
    found = [told]
    if lost:
        found.append(f"the gradients of {lost} of them were cleared unused.")
    if training.schedules:
        name = training.schedules[-1].name
        found.append(f"its `{name}` stepped {words.count(len(training.schedules), 'time')}.")
    return found


def _fix(case: Case, account: Account, training: Training, culprit: Culprit) -> Fix:
    call, place = culprit.call, culprit.span
    edits: list[Edit] = []
    match culprit.kind:
        case "uncalled":
            title, edits = f"call it: `{call}`", add_parentheses(place)
        case "scheduler":
            title = f"call `{call}` in every iteration, and the scheduler after it"
            edits = insert_before(place, call) if _is_in_sight(call, place) else []
        case "other optimizer":
            title = f"call `{call}` here"
            edits = replace_receiver(place, call.removesuffix(".step()"))
        case "not run":
            title = f"make sure that `{call}` is reached"
        case "backward":
            title = f"call `{call}` after {steps.written(place, 'backward()')}"
            last = _clipping(case, account, training.passes[-1], place) or place
            edits = insert_after(last, call) if _is_in_sight(call, place) else []
    return Fix(
        title=title,
        edits=edits,
        safety="the parameters will then change during training",
        deliberate="if only the gradients are wanted, the optimizer is not needed.",
    )


def _clipping(case: Case, account: Account, made: PassUse, backward: Span) -> Span | None:
    """Where the gradients of a pass are clipped, beside its backward(): the step comes later."""
    for act in account.acts[made.order :]:
        span = steps.line(case, act) if isinstance(act, ClipUse) else None
        if span is not None and same_block(span, backward):
            return span
    return None


def _is_in_sight(call: str, place: Span) -> bool:
    """Whether other calls nearby use the optimizer by this name."""
    name = call.removesuffix(".step()")
    uses = [*method_uses([place], "zero_grad"), *method_uses([place], "step")]
    return any(use.receiver == name for use in uses)
