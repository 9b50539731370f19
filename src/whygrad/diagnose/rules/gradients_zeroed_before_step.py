"""Gradients are cleared between backward() and the step that should have used them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from whygrad.diagnose import absent_stories, lives, steps, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.steps import Cycle, Training
from whygrad.record.accounts import Account, Act, ClearUse, ClipUse, PassUse, StepUse
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.spans import Span, location
from whygrad.source.step_calls import gradient_resets, same_block
from whygrad.source.step_edits import move_after, move_before

CODE = "gradients-zeroed-before-step"


@dataclass(slots=True)
class Loss:
    """Passes that were lost, in each of some cycles."""

    cycles: list[Cycle]
    passes: list[list[PassUse]]
    everything: bool  # no step found any gradient at all

    @property
    def all_passes(self) -> list[PassUse]:
        return [made for group in self.passes for made in group]


def diagnose(case: Case) -> Iterator[Finding]:
    yield from absent_stories.cleared(case, CODE)
    account = case.question.account
    if account is None:
        return
    for training in steps.trainings(case):
        if not steps.sure(case, training.cycles) or not steps.by_program(case, training):
            continue
        loss = _loss(case, account, training)
        if loss is not None and (loss.everything or _is_rule(account, training, loss)):
            finding = _finding(case, training, loss)
            if finding is not None:
                yield finding


def _loss(case: Case, account: Account, training: Training) -> Loss | None:
    """What was lost at the same lines in every cycle; the first may lack it, as `i % 4` does."""
    if all(_is_emptied(cycle) for cycle in training.cycles):
        return Loss(training.cycles, [cycle.passes for cycle in training.cycles], True)
    steady = _steady(account, training)
    found = [
        [made for made in cycle.passes if _is_lost(case, account, made, steady)]
        for cycle in training.cycles
    ]
    start = 0 if found[0] or len(training.cycles[0].passes) > 1 else 1
    lines = [{steps.line(case, made) for made in lost} for lost in found[start:]]
    always = set.intersection(*lines) - {None}
    if len(lines) < 2 or not always:
        return None
    lost = [[m for m in group if steps.line(case, m) in always] for group in found[start:]]
    cycles = training.cycles[start:]
    return Loss(cycles, lost, all(_finds_nothing(cycle) for cycle in training.cycles))


def _is_rule(account: Account, training: Training, loss: Loss) -> bool:
    """Whether a part is lost as a rule, not because a guard has skipped some steps.

    A guard skips now and then, mostly after a look at the size of the gradients.
    """
    counts = {len(group) for group in loss.passes}
    if len(counts) > 1 or not all(cycle.step.passes for cycle in loss.cycles):
        return False
    if _is_held_back(account, training):
        return False
    weighed = any(
        isinstance(act, ClipUse) and act.parameters & made.touched
        for made in loss.all_passes
        for act in account.acts[made.order : made.cleared_by]
    )
    if len(loss.cycles) < len(training.cycles) and (weighed or account.scaled):
        return False
    return not weighed or counts != {1}


def _is_held_back(account: Account, training: Training) -> bool:
    """Whether another optimizer steps more often at the same time: this one's turn is rarer."""
    start = training.passes[0].order
    beside = {a.optimizer for a in account.acts[start:] if isinstance(a, StepUse)}
    return any(
        use.number in beside and use.steps > training.use.steps + 1 for use in account.optimizers
    )


def _steady(account: Account, training: Training) -> set[int]:
    """The optimizers that step as often as this one.

    One that pauses, as a discriminator that is too good does, loses gradients on purpose.
    """
    last = training.cycles[-1].step.order
    stepped = Counter(a.optimizer for a in account.acts[:last] if isinstance(a, StepUse))
    return {number for number, count in stepped.items() if count >= len(training.cycles) - 1}


def _is_lost(case: Case, account: Account, made: PassUse, steady: set[int]) -> bool:
    """Whether nothing at all came of a pass; who reads gradients, or those of inputs, uses them."""
    if not made.lost or made.read or not steps.seen_through(account, made):
        return False
    concerned = [use for use in account.optimizers if use.nodes & made.touched]
    held = {node for use in concerned for node in use.nodes}
    return all(use.number in steady for use in concerned) and all(
        node in held or case.parameter(node) is not None for node in made.touched
    )


def _is_emptied(cycle: Cycle) -> bool:
    """A pass made gradients, perhaps for others too, and the step found none of its own."""
    if not cycle.passes or any(made.read for made in cycle.passes):
        return False
    return _finds_nothing(cycle) and bool(_later(cycle))


def _later(cycle: Cycle) -> list[ClearUse]:
    last = cycle.passes[-1].order
    return [clear for clear in cycle.clears if clear.order > last]


def _finds_nothing(cycle: Cycle) -> bool:
    step = cycle.step
    return not step.passes and not step.again and step.without + step.zeros >= step.of


def _finding(case: Case, training: Training, loss: Loss) -> Finding | None:
    first, last = loss.passes[-1][0], loss.cycles[-1].step
    backward, step = steps.line(case, first), steps.line(case, last)
    if backward is None or step is None:
        return None
    clear = _clearing(case, loss)
    where = steps.line(case, clear) if clear is not None else None
    where = where or _by_hand(case, [first, last]) or backward
    never = _never_trained(training, loss)
    touched = {node for made in loss.all_passes for node in made.touched}
    names = steps.parameter_names(case, never or touched & training.use.nodes)
    title = _title(training, where, loss)
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} {_effect(names, never, loss)}",
        location=location(where),
        label=f"what {steps.written(backward, 'backward()')} has computed is cleared, unused",
        related=[
            *_other(backward, where, "operation", "its gradients are lost"),
            *_other(step, where, "used", _left(loss)),
        ],
        parameters=names,
        why=_why(training, loss),
        checked=_checked(names, never, loss),
        fix=_fix(where, backward, step, loss),
    )


def _clearing(case: Case, loss: Loss) -> ClearUse | None:
    """A clearing at the line that lost most of them."""
    acts: list[Act | None] = [steps.act_at(case, made.cleared_by) for made in loss.all_passes]
    if loss.everything and not any(acts):
        acts = [clear for cycle in loss.cycles for clear in _later(cycle)]
    seen = [act for act in acts if isinstance(act, ClearUse) and steps.line(case, act) is not None]
    lines = Counter(steps.line(case, act) for act in seen)
    return max(seen, key=lambda act: lines[steps.line(case, act)], default=None)


def _by_hand(case: Case, acts: list[Act]) -> Span | None:
    """The one line around pass and step that sets gradients to None or zero by hand."""
    found = gradient_resets(steps.user_spans(case, acts))
    return found[0] if len(found) == 1 else None


def _never_trained(training: Training, loss: Loss) -> set[int]:
    """Parameters that only lost passes come to: no step ever moves them."""
    touched = {node for made in loss.all_passes for node in made.touched}
    used = {node for made in training.passes if made.used_by for node in made.touched}
    return (touched & training.use.nodes) - used


def _title(training: Training, where: Span, loss: Loss) -> str:
    clearing = steps.written(where, "this line")
    if loss.everything:
        return f"{clearing} clears all gradients before `{training.name}` can use them"
    share = f"{len(loss.passes[-1])} of {len(loss.cycles[-1].passes)} backward passes"
    return f"{clearing} throws away the gradients of {share} before each step"


def _effect(names: list[str], never: set[int], loss: Loss) -> str:
    if loss.everything or not never:
        return f"Affected: {words.listed(names, 8)}."
    return f"These parameters get no other: {words.listed(names, 8)}."


def _left(loss: Loss) -> str:
    if loss.everything:
        return "finds no gradient to use"
    return "uses only what came after the last clearing"


def _why(training: Training, loss: Loss) -> str:
    if loss.everything:
        return (
            "backward() leaves its gradients in `.grad`, and a step reads them there. Cleared in "
            "between, they are None or zero, and the step has nothing to go by."
        )
    return (
        "several backward passes add up in `.grad` until a step uses the sum. A clearing between "
        f"them takes away what is there: `{training.name}` steps with the rest alone."
    )


def _checked(names: list[str], never: set[int], loss: Loss) -> list[str]:
    number = len(loss.cycles)
    total = sum(len(cycle.passes) for cycle in loss.cycles)
    told = f"{len(loss.all_passes)} of {steps.passes(total)} in {number} steps were cleared unused"
    if loss.everything:
        return [f"{told}; each step found its {loss.cycles[-1].step.of} gradients None or zero."]
    found = [f"{told}, as many in each of them."]
    if never:
        found.append(f"{words.count(len(names), 'parameter')} got gradients from these alone.")
    return found


def _other(span: Span, where: Span, role: str, label: str) -> list[Related]:
    return [] if lives.same_place(span, where) else [Related(role, location(span), label)]


def _fix(where: Span, backward: Span, step: Span, loss: Loss) -> Fix:
    edits: list[Edit] = []
    if loss.everything and same_block(where, backward) and not lives.same_place(where, backward):
        title = f"clear the gradients before {steps.written(backward, 'backward()')}"
        edits = move_before(where, backward)
    else:
        title = "clear the gradients once per step, right after it"
        edits = move_after(where, step) if not lives.same_place(where, backward) else []
    return Fix(
        title=title,
        edits=edits,
        safety="each step then uses all gradients that were computed for it",
        deliberate="if this pass should not train anything, compute it without gradients, or read "
        "its gradients with `torch.autograd.grad`.",
    )
