"""The optimizer steps, and no backward() has computed anything to step with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from whygrad.diagnose import absent_stories, lives, steps, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.steps import Training
from whygrad.record.accounts import PassUse
from whygrad.record.events import Event
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.spans import Span, location
from whygrad.source.step_calls import MethodUse, common_loop, method_uses
from whygrad.source.step_edits import add_parentheses

CODE = "backward-missing"


def diagnose(case: Case) -> Iterator[Finding]:
    yield from absent_stories.not_yet(case, CODE)
    account = case.question.account
    if account is None or not account.complete:
        return
    any_pass = any(isinstance(act, PassUse) for act in account.acts)
    for training in steps.trainings(case):
        if not steps.sure(case, training.cycles) or not steps.by_program(case, training):
            continue
        computed = _times_computed(case, training)
        if _without_any(case, training) and computed >= len(training.cycles):
            uncalled = _uncalled(case, training)
            if uncalled is not None or not any_pass:
                yield from _never(case, training, uncalled, computed)
        elif _only_the_first(training) and computed > len(training.passes):
            yield from _outside(case, training, computed)


def _without_any(case: Case, training: Training) -> bool:
    """No pass has computed a gradient, no step had one, and none changed anything all the same."""
    infos = (case.parameter(node) for node in training.use.nodes)
    if training.passes or any(info is not None and info.moved for info in infos):
        return False
    if training.use.nodes & case.question.had_gradient:
        return False
    return all(cycle.step.without == cycle.step.of for cycle in training.cycles)


def _only_the_first(training: Training) -> bool:
    """All later steps used what the first had used, with no pass in between."""
    later = training.cycles[1:]
    return all(c.step.again and not c.step.passes and not c.passes for c in later)


def _times_computed(case: Case, training: Training) -> int:
    """How often the parameters took part in something that could be backpropagated.

    Steps without a pass are no mistake where nothing was computed: schedules are plotted and
    optimizers are timed that way.
    """
    counts: Counter[tuple[int, int]] = Counter()
    for fields in case.graph.recording.events:
        event = Event(*fields)
        if event.live:
            counts.update((event.site, n) for n in event.inputs if n in training.use.nodes)
    return max(counts.values(), default=0)


def _uncalled(case: Case, training: Training) -> MethodUse | None:
    """`loss.backward` without parentheses, in the code around the step."""
    uses = method_uses(steps.user_spans(case, [training.cycles[-1].step]), "backward")
    return next((use for use in uses if not use.called), None)


def _never(
    case: Case, training: Training, uncalled: MethodUse | None, computed: int
) -> Iterator[Finding]:
    step = steps.line(case, training.cycles[-1].step)
    if step is None:
        return
    said = steps.written(step, f"{training.name}.step()")
    where = uncalled.span if uncalled is not None else step
    title = f"{said} finds no gradient to use: no `backward()` comes before it"
    if uncalled is not None:
        title = f"`{uncalled.receiver}.backward` is not called, it lacks its parentheses"
    edits: list[Edit] = add_parentheses(uncalled.span) if uncalled is not None else []
    number = len(training.cycles)
    unrun = [] if uncalled is not None else _unrun(case, training)
    label = "did not run before these steps"
    related = [Related("operation", location(use.span), label) for use in unrun]
    if uncalled is not None:
        related.append(Related("used", location(step), "finds no gradient to use"))
    yield Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} All gradients are None, so no step changes anything.",
        location=location(where),
        label="names the method and does not call it"
        if uncalled is not None
        else f"all gradients of `{training.name}` are None here",
        related=related,
        parameters=steps.parameter_names(case, training.use.nodes),
        why="a step reads the gradients that backward() has left in `.grad`. Without backward() "
        "they are None, and an optimizer passes over such parameters without a word.",
        checked=[
            f"{training.cycles[-1].step.of} of {training.cycles[-1].step.of} gradients were None "
            f"at each of {number} steps, and no backward pass came to these parameters.",
            f"they were used {computed} times to compute something that requires grad.",
        ],
        fix=Fix(
            title=f"call it: `{uncalled.receiver}.backward()`"
            if uncalled is not None
            else f"call `backward()` on the loss before {said}",
            edits=edits,
            safety="the parameters will then change during training",
            deliberate="if the gradients are computed elsewhere, store them in `.grad` before the "
            "step.",
        ),
    )


def _unrun(case: Case, training: Training) -> list[MethodUse]:
    """Calls of backward() near the step: none of them ran."""
    uses = method_uses(steps.user_spans(case, [training.cycles[-1].step]), "backward")
    return [use for use in uses if use.called][:1]


def _outside(case: Case, training: Training, computed: int) -> Iterator[Finding]:
    last = training.cycles[-1]
    step = steps.line(case, last.step)
    made = training.passes[0] if training.passes else None
    backward = steps.line(case, made) if made is not None else None
    if step is None:
        return
    said = steps.written(step, f"{training.name}.step()")
    again = backward is not None and common_loop(backward, step) is not None
    title = f"{said} uses the same gradients at every step: no `backward()` in between"
    yield Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Affected: "
        f"{words.listed(steps.parameter_names(case, training.use.nodes), 8)}.",
        location=location(step),
        label="steps with gradients that earlier steps have used already",
        related=_pass_place(backward, step, again),
        parameters=steps.parameter_names(case, training.use.nodes),
        why="`.grad` keeps what the last backward() has left there. Without a new pass each step "
        "moves on in the old direction, whatever the new loss is.",
        checked=[
            f"{steps.passes(len(training.passes))} came before {len(training.cycles)} steps; all "
            "but the first used its gradients again.",
            f"the parameters were used {computed} times to compute something that requires grad.",
        ],
        fix=Fix(
            title=f"call `backward()` on the new loss before every {said}",
            safety="each step then uses gradients of its own",
            deliberate="if several steps along one gradient are wanted, silence this line.",
        ),
    )


def _pass_place(backward: Span | None, step: Span, again: bool) -> list[Related]:
    if backward is None or lives.same_place(backward, step):
        return []
    label = "computes gradients less often than they are used" if again else "runs once"
    return [Related("operation", location(backward), label)]
