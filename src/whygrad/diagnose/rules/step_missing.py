"""Gradients are computed again and again, and the optimizer never steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from whygrad.diagnose import lives, steps, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.steps import Training
from whygrad.record.accounts import Account, PassUse, StepUse
from whygrad.session import Finding, Fix, Related, Symptom
from whygrad.source.spans import Span, location
from whygrad.source.step_calls import MethodUse, is_name, method_uses, names_optimizer, same_name
from whygrad.source.step_edits import add_parentheses, insert_after, insert_before

CODE = "step-missing"

_PASSES = 3
_LOST_FOR_LONG = 10  # passes cleared without a step: more than warming up would take
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
        return len(unused) >= _PASSES or case.question.step > _STEPS_OF_OTHERS
    lost = [made for made in unused if made.lost]
    instead = len(training.schedules) > 1 and len(lost) >= _PASSES
    return not account.scaled and (instead or len(lost) >= _LOST_FOR_LONG)


def _moved_otherwise(account: Account) -> set[int]:
    """Parameters that another optimizer moves."""
    return {node for use in account.optimizers if use.steps for node in use.nodes}


def _overflows(case: Case, nodes: set[int] | frozenset[int]) -> bool:
    """A gradient scaler skips the step when gradients are not finite."""
    infos = (case.parameter(node) for node in nodes)
    return any(info is not None and info.gradient == "non-finite" for info in infos)


# --- where ------------------------------------------------------------------------------------


def _finding(case: Case, account: Account, training: Training) -> Finding | None:
    backward = steps.line(case, training.passes[-1])
    if backward is None:
        return None
    uses = _candidates(case, training)
    uncalled = next((use for use in uses if not use.called), None)
    instead = _scheduler(case, training)
    wrong = _wrong_step(case, account, training)
    unrun = next((use for use in uses if use.called), None)
    where = next(
        (u.span for u in (uncalled,) if u is not None),
        instead or wrong or (unrun.span if unrun is not None else None) or backward,
    )
    call = _call(case, account, training, uses)
    nodes = training.use.nodes - _moved_otherwise(account)
    names = steps.parameter_names(case, {n for m in training.passes for n in m.touched} & nodes)
    title = _title(training, call, uncalled, instead, wrong)
    return Finding(
        code=CODE,
        severity="warning",
        symptom=_symptom(training),
        title=title,
        message=f"{words.sentence(title)} Without `optimizer.step()` these parameters never "
        f"change: {words.listed(names, 8)}.",
        location=location(where),
        label=_label(where, backward, uncalled, instead, wrong, training),
        related=_related(case, training, where, backward, unrun),
        parameters=names,
        why=_why(call, training, instead),
        checked=_checked(account, training),
        fix=_fix(training, call, where, backward, uncalled, instead),
    )


def _candidates(case: Case, training: Training) -> list[MethodUse]:
    """`optimizer.step` in the code around the passes: not called, or in a branch that never ran."""
    uses = method_uses(steps.user_spans(case, training.passes[-1:]), "step")
    known = [name for name in (steps.made_name(case, training.use),) if name]
    schedulers = {steps.stepped_name(steps.line(case, act)) for act in training.schedules}
    ran = [
        span
        for act in (case.question.account.acts if case.question.account is not None else ())
        if isinstance(act, StepUse) and (span := steps.line(case, act)) is not None
    ]
    return [
        use
        for use in uses
        if names_optimizer(use.receiver, known)
        and not any(same_name(use.receiver, other) for other in schedulers if other)
        and not any(lives.same_place(use.span, span) for span in ran)
    ]


def _call(case: Case, account: Account, training: Training, uses: list[MethodUse]) -> str:
    """The missing call as the program would write it."""
    written = next((use.receiver for use in uses if is_name(use.receiver)), "")
    name = written or steps.made_name(case, training.use) or "optimizer"
    if account.scaled and not written:
        scales = method_uses(steps.user_spans(case, training.passes[-1:]), "scale")
        if scales and is_name(scales[0].receiver):
            return f"{scales[0].receiver}.step({name})"
    return f"{name}.step()"


def _scheduler(case: Case, training: Training) -> Span | None:
    """The line that lets the scheduler step once per pass, where the optimizer should."""
    between = 0
    for earlier, later in pairwise(training.schedules):
        between += sum(earlier.order < made.order < later.order for made in training.passes) == 1
    often = len(training.schedules) > 1 and between == len(training.schedules) - 1
    return steps.line(case, training.schedules[-1]) if often else None


def _wrong_step(case: Case, account: Account, training: Training) -> Span | None:
    """A step of another optimizer, which has one of its own, right after this one's passes."""
    acts = [act for act in account.acts if isinstance(act, (PassUse, StepUse))]
    places: dict[int, set[Span]] = {}
    after: Counter[tuple[int, Span]] = Counter()
    for before, act in pairwise(acts):
        span = steps.line(case, act) if isinstance(act, StepUse) else None
        if not isinstance(act, StepUse) or span is None:
            continue
        places.setdefault(act.optimizer, set()).add(span)
        if isinstance(before, PassUse) and before.touched & training.use.nodes:
            after[act.optimizer, span] += 1
    found = [span for (number, span), _ in after.most_common() if len(places[number]) > 1]
    return found[0] if len(found) == 1 else None


# --- words ------------------------------------------------------------------------------------


def _title(
    training: Training,
    call: str,
    uncalled: MethodUse | None,
    instead: Span | None,
    wrong: Span | None,
) -> str:
    if uncalled is not None:
        return f"`{uncalled.receiver}.step` is not called, it lacks its parentheses"
    if instead is not None:
        said = steps.written(instead, "scheduler.step()")
        return f"{said} runs in every iteration, `{call}` never does"
    if wrong is not None:
        return f"{steps.written(wrong, 'this step')} moves other parameters, `{call}` never runs"
    return f"`{call}` is never called: {steps.passes(len(training.passes))} and not one step"


def _label(
    where: Span,
    backward: Span,
    uncalled: MethodUse | None,
    instead: Span | None,
    wrong: Span | None,
    training: Training,
) -> str:
    if uncalled is not None:
        return "names the method and does not call it"
    if instead is not None:
        return "changes the learning rate, and no parameter"
    if wrong is not None:
        return f"steps another optimizer, not this `{training.use.name}`"
    if lives.same_place(where, backward):
        return "computes gradients that no step uses"
    return "never ran"


def _related(
    case: Case, training: Training, where: Span, backward: Span, unrun: MethodUse | None
) -> list[Related]:
    found = []
    if not lives.same_place(where, backward):
        label = "computes gradients that no step uses"
        found.append(Related("operation", location(backward), label))
    if unrun is not None and not lives.same_place(where, unrun.span):
        found.append(Related("operation", location(unrun.span), "never ran"))
    made = case.user_span(training.use.stack) if training.use.stack else None
    if made is not None:
        found.append(Related("created", location(made), "the optimizer that never steps"))
    return found


def _symptom(training: Training) -> Symptom:
    return "warns" if training.schedules else "silent"


def _why(call: str, training: Training, instead: Span | None) -> str:
    steps_it = "`optimizer.step()`" + (f", here `{call}`," if call != "optimizer.step()" else "")
    why = f"backward() only computes gradients; {steps_it} is what changes parameters with them."
    if instead is not None:
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


def _fix(
    training: Training,
    call: str,
    where: Span,
    backward: Span,
    uncalled: MethodUse | None,
    instead: Span | None,
) -> Fix:
    edits = []
    if uncalled is not None:
        title, edits = f"call it: `{call}`", add_parentheses(uncalled.span)
    elif instead is not None:
        title = f"call `{call}` in every iteration, and the scheduler after it"
        edits = insert_before(instead, call) if _is_in_sight(call, instead) else []
    elif lives.same_place(where, backward):
        title = f"call `{call}` after {steps.written(backward, 'backward()')}"
        edits = insert_after(backward, call) if _is_in_sight(call, backward) else []
    else:
        title = f"make sure that `{call}` is reached"
    return Fix(
        title=title,
        edits=edits,
        safety="the parameters will then change during training",
        deliberate="if only the gradients are wanted, the optimizer is not needed.",
    )


def _is_in_sight(call: str, place: Span) -> bool:
    """Whether other calls nearby use the optimizer by this name."""
    name = call.removesuffix(".step()")
    uses = [*method_uses([place], "zero_grad"), *method_uses([place], "step")]
    return any(use.receiver == name for use in uses)
