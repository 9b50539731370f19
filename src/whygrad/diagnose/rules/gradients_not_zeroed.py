"""Steps use gradients that earlier steps have used already: nothing clears them in between."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, lives, steps, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.steps import Training
from whygrad.record.accounts import Act, ClearUse, PassUse, StepUse
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.spans import Span, location
from whygrad.source.step_calls import MethodUse, is_name, method_uses, same_block, same_name
from whygrad.source.step_edits import add_parentheses, insert_after, insert_before, replace_receiver

CODE = "gradients-not-zeroed"


def diagnose(case: Case) -> Iterator[Finding]:
    yield from complaints.plain(case, CODE)
    for training in steps.trainings(case):
        if not steps.sure(case, training.cycles):
            continue
        if not steps.by_program(case, training, closures=True):
            continue
        if all(cycle.step.again and cycle.step.passes for cycle in training.cycles[1:]):
            finding = _finding(case, training)
            if finding is not None:
                yield finding
    yield from _by_hand(case)


def _by_hand(case: Case) -> Iterator[Finding]:
    """No optimizer: the program updates parameters itself, and forgets the gradients."""
    account = case.question.account
    updates = account.by_hand if account is not None and not account.optimizers else []
    if account is None or len(updates) < 3 or not all(update.again for update in updates[1:]):
        return
    latest = updates[-1]
    adding = next(
        (a for a in account.acts if isinstance(a, PassUse) and a.number in latest.passes), None
    )
    backward = steps.line(case, adding) if adding is not None else None
    update = steps.line(case, latest)
    if backward is None or update is None:
        return
    title = "each update also uses the gradients of the updates before it: nothing clears `.grad`"
    names = case.names(sorted(latest.stale))
    example = names[0] if names and is_name(names[0]) else "p"
    yield Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} An optimizer's `zero_grad()` would do it; by hand it "
        "has to be written.",
        location=location(backward),
        label="adds to gradients that the last update has already used",
        related=[Related("used", location(update), "uses the old ones and the new ones together")],
        parameters=names,
        why="backward() adds to `.grad` and never replaces it. What an update has used stays "
        "there until it is cleared, so that each update moves along the sum of all gradients "
        "so far.",
        checked=[
            f"{len(updates)} updates in a row used gradients that an earlier one had used, and "
            "`.grad` was neither set to None nor to zero in between."
        ],
        fix=Fix(
            title=f"clear the gradients after each update: `{example}.grad = None`",
            safety="the first update stays as it is; all later ones use their own gradients only",
            deliberate="if gradients should add up over several batches, update only after the "
            "last of them, and clear them then.",
        ),
    )


def _finding(case: Case, training: Training) -> Finding | None:
    later = training.cycles[1]
    step = steps.line(case, later.step)
    adding = next((a for a in later.passes if a.number in later.step.passes), None)
    backward = steps.line(case, adding) if adding is not None else None
    if step is None or backward is None:
        return None
    name = training.name
    uncalled = _uncalled(case, training)
    mistaken = None if uncalled is not None else _mistaken(case, training)
    where = uncalled.span if uncalled is not None else mistaken or backward
    names = steps.parameter_names(case, _stale(case, training))
    title = f"each step of `{name}` also uses the gradients of the steps before it: "
    title += _missing(training, uncalled, mistaken)
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} backward() adds to what is there, so the gradients of "
        "all past batches stay in the sum.",
        location=location(where),
        label=_label(name, uncalled, mistaken),
        related=_related(case, training, where, backward, step),
        parameters=names,
        why="backward() adds to `.grad` and never replaces it. What a step has used stays there "
        f"until `{name}.zero_grad()` clears it, so that each step moves along the sum of the "
        "gradients of all batches so far.",
        checked=[_counted(training), _cleared(case, training)],
        fix=_fix(training, backward, step, uncalled, mistaken),
    )


def _stale(case: Case, training: Training) -> set[int]:
    """The parameters whose gradients are not cleared."""
    known = {node for cycle in training.cycles for node in cycle.step.stale}
    if known:
        return known
    account = case.question.account
    others = {
        node
        for clear in training.cycles[1].clears
        for use in (account.optimizers if account is not None else ())
        if use.number == clear.optimizer != training.use.number
        for node in use.nodes
    }
    again = {number for cycle in training.cycles for number in cycle.step.again}
    touched = {node for made in training.passes if made.number in again for node in made.touched}
    return (touched & training.use.nodes) - others


def _uncalled(case: Case, training: Training) -> MethodUse | None:
    """`opt.zero_grad` without parentheses, in the code around the pass and the step."""
    acts: list[Act] = [*training.passes[:1], training.cycles[0].step]
    uses = method_uses(steps.user_spans(case, acts), "zero_grad")
    return next((use for use in uses if not use.called), None)


def _mistaken(case: Case, training: Training) -> Span | None:
    """The clearing that goes to another optimizer, which has one of its own already."""
    account, number = case.question.account, training.use.number
    if account is None or training.use.cleared:
        return None
    places: dict[int, set[Span]] = {}
    ours: dict[int, Span] = {}
    for index, act in enumerate(account.acts):
        span = steps.line(case, act) if isinstance(act, ClearUse) and act.optimizer >= 0 else None
        if not isinstance(act, ClearUse) or span is None:
            continue
        places.setdefault(act.optimizer, set()).add(span)
        following = next((a for a in account.acts[index:] if isinstance(a, StepUse)), None)
        if following is not None and following.optimizer == number:
            ours[act.optimizer] = span
    return next((span for other, span in ours.items() if len(places[other]) > 1), None)


def _missing(training: Training, uncalled: MethodUse | None, mistaken: Span | None) -> str:
    if uncalled is not None:
        return "`zero_grad` is not called, it lacks its parentheses"
    if mistaken is not None:
        return f"{steps.written(mistaken, 'this zero_grad()')} clears those of another optimizer"
    if any(cycle.clears for cycle in training.cycles[1:]):
        return "no `zero_grad()` in between clears them"
    return "no `zero_grad()` in between"


def _label(name: str, uncalled: MethodUse | None, mistaken: Span | None) -> str:
    if uncalled is not None:
        return "names the method and does not call it"
    if mistaken is not None:
        return f"clears another optimizer's gradients, not those of `{name}`"
    return f"adds to gradients that `{name}` has already used"


def _related(
    case: Case, training: Training, where: Span, backward: Span, step: Span
) -> list[Related]:
    found = []
    if not lives.same_place(where, backward):
        label = f"adds to gradients that `{training.name}` has already used"
        found.append(Related("operation", location(backward), label))
    found.append(Related("used", location(step), "uses the old ones and the new ones together"))
    found += [
        Related("operation", location(use.span), "did not run")
        for use in _not_run(case, training)
        if not lives.same_place(use.span, where)
    ]
    return found


def _not_run(case: Case, training: Training) -> list[MethodUse]:
    """Calls of this optimizer's zero_grad() nearby, if none of them ever ran."""
    if training.use.cleared:
        return []
    acts: list[Act] = [*training.passes[:1], training.cycles[0].step]
    uses = method_uses(steps.user_spans(case, acts), "zero_grad")
    ran = {s for c in training.cycles for a in c.clears if (s := steps.line(case, a)) is not None}
    return [
        use
        for use in uses
        if use.called and same_name(use.receiver, training.name)
        if not any(lives.same_place(use.span, span) for span in ran)
    ][:2]


def _counted(training: Training) -> str:
    counts = [str(len({*c.step.passes, *c.step.again})) for c in training.cycles]
    listed = f"{', '.join(counts[:-1])} and {counts[-1]}"
    return f"{len(counts)} steps in a row used the gradients of {listed} backward passes."


def _cleared(case: Case, training: Training) -> str:
    name, cleared = training.name, training.use.cleared
    if cleared:
        times = "once" if cleared == 1 else f"{cleared} times"
        return f"`{name}.zero_grad()` was called {times}, but not between these steps."
    clears = [clear for cycle in training.cycles[1:] for clear in cycle.clears]
    other = next((span for a in clears if (span := steps.line(case, a)) is not None), None)
    if other is not None:
        return (
            f"`{name}.zero_grad()` was never called; {steps.written(other, 'zero_grad()')} at "
            f"{words.at(other)} does not clear all that it uses."
        )
    return f"`{name}.zero_grad()` was never called, and nothing else cleared these gradients."


def _fix(
    training: Training,
    backward: Span,
    step: Span,
    uncalled: MethodUse | None,
    mistaken: Span | None,
) -> Fix:
    edits: list[Edit] = []
    place = "once per step"
    line = f"{training.name}.zero_grad()"
    if uncalled is not None:
        edits = add_parentheses(uncalled.span)
        line = f"{uncalled.receiver}.zero_grad()"
    elif mistaken is not None and is_name(training.name):
        place = f"here, instead of {steps.written(mistaken, 'this one')}"
        edits = replace_receiver(mistaken, training.name)
    elif is_name(training.name) and steps.stepped_name(step) == training.name:
        single = all(len(cycle.step.passes) == 1 for cycle in training.cycles)
        if single and same_block(backward, step):
            place = f"before {steps.written(backward, 'backward()')}"
            edits = insert_before(backward, line)
        else:
            place = "after each step"
            edits = insert_after(step, line)
    return Fix(
        title=f"call `{line}` {place}",
        edits=edits,
        safety="the first step stays as it is; all later ones use their own gradients only",
        deliberate="if gradients should add up over several batches, step only after the last of "
        "them, and clear them then.",
    )
