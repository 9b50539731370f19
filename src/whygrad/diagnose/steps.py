"""What the rules on the order of a training step have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whygrad.diagnose import lives
from whygrad.diagnose.case import Case, is_library
from whygrad.record.accounts import (
    Account,
    Act,
    ClearUse,
    OptimizerUse,
    PassUse,
    ScheduleUse,
    StepUse,
)
from whygrad.source.spans import Span
from whygrad.source.step_calls import (
    assigned_name,
    called_method,
    is_name,
    is_returned,
    short_text,
)


@dataclass(slots=True)
class Cycle:
    """What happened between an optimizer's steps, up to one of them."""

    passes: list[PassUse]  # those that changed gradients of its parameters
    clears: list[ClearUse]
    step: StepUse


@dataclass(slots=True)
class Training:
    """One optimizer with its part of the account."""

    use: OptimizerUse
    cycles: list[Cycle]
    passes: list[PassUse]  # all that changed gradients of its parameters
    schedules: list[ScheduleUse]
    name: str  # as the source calls it, or else its class


def trainings(case: Case) -> list[Training]:
    """The optimizers of a question about health."""
    account = case.question.account
    if account is None:
        return []
    return [_training(case, account, use) for use in account.optimizers]


def _training(case: Case, account: Account, use: OptimizerUse) -> Training:
    training = Training(use, [], [], [], "")
    passes: list[PassUse] = []
    clears: list[ClearUse] = []
    for act in account.acts:
        match act:
            case PassUse() if not act.touched.isdisjoint(use.nodes):
                passes.append(act)
                training.passes.append(act)
            case ClearUse():
                clears.append(act)
            case ScheduleUse(optimizer=use.number):
                training.schedules.append(act)
            case StepUse(optimizer=use.number):
                training.cycles.append(Cycle(passes, clears, act))
                passes, clears = [], []
    training.name = _name(case, training)
    return training


def sure(case: Case, cycles: list[Cycle]) -> bool:
    """Whether enough steps were seen: those that are closely watched, or all there were."""
    account = case.question.account
    final = account is not None and account.final
    return len(cycles) >= (2 if final else 3)


def by_program(case: Case, training: Training, closures: bool = False) -> bool:
    """Whether the program itself says what comes after what.

    It does not where a library's loop calls backward() and steps, nor (unless `closures` are
    fine) where the optimizer's step() calls back for gradients, as often as it likes.
    """
    step = next((line(case, cycle.step) for cycle in training.cycles), None)
    if step is None:
        return not training.cycles
    if training.passes and all(at_place(case, made, step) for made in training.passes):
        return False
    if closures:
        return True
    within = {case.places.spans(cycle.step.stack)[:1] for cycle in training.cycles}
    return not any(
        (span,) in within for made in training.passes for span in case.places.spans(made.stack)[1:]
    )


def seen_through(account: Account, made: PassUse) -> bool:
    """Whether all steps that may have used a pass are in the account."""
    for use in account.optimizers:
        if use.nodes & made.touched:
            seen = [a for a in account.acts if isinstance(a, StepUse) and a.optimizer == use.number]
            last = seen[-1].order if seen else 0
            if use.steps > len(seen) and made.order > last:
                return False
    return True


# --- places -----------------------------------------------------------------------------------


def line(case: Case, act: Act) -> Span | None:
    """The program's own line of an act; None if there is none."""
    span = case.user_span(act.stack) if act.stack else None
    return None if span is None or is_library(span.file) else span


def at_place(case: Case, act: Act, place: Span) -> bool:
    span = line(case, act)
    return span is not None and lives.same_place(span, place)


def act_at(case: Case, order: int) -> Act | None:
    """The act with this place in the order."""
    account = case.question.account
    return next((a for a in account.acts if a.order == order), None) if account else None


def parting(case: Case, one: Act, other: Act) -> tuple[Span, Span] | None:
    """Where two acts part: their lines in the innermost function that both came through."""
    theirs = case.places.spans(other.stack)
    for mine in case.places.spans(one.stack):
        for span in theirs:
            if (mine.file, mine.first_line) == (span.file, span.first_line):
                return None if mine == span or is_library(mine.file) else (mine, span)
    return None


def user_spans(case: Case, acts: Iterable[Act]) -> list[Span]:
    """The program's own frames of some acts, innermost first."""
    found = (span for act in acts for span in case.places.spans(act.stack))
    return [span for span in dict.fromkeys(found) if not is_library(span.file)]


# --- names ------------------------------------------------------------------------------------


def _name(case: Case, training: Training) -> str:
    """The optimizer as it is called where it steps, or where it was made."""
    for cycle in training.cycles:
        name = stepped_name(line(case, cycle.step))
        if name:
            return name
    return made_name(case, training.use) or training.use.name


def stepped_name(span: Span | None) -> str:
    """`opt` for `opt.step()` and for `scaler.step(opt)`; empty if the line says neither."""
    call = called_method(span) if span is not None else None
    if call is None or call[1] != "step":
        return ""
    receiver, _, arguments = call
    name = arguments[0] if arguments and "scal" in receiver.lower() else receiver
    return name if is_name(name) else ""


def made_name(case: Case, use: OptimizerUse) -> str:
    """The variable that an optimizer was put in when it was made, or returned to."""
    for span in case.places.spans(use.stack):
        name = assigned_name(span)
        if name or not is_returned(span):
            return name if is_name(name) else ""
    return ""


def written(span: Span | None, otherwise: str) -> str:
    """What is written at a place, quoted."""
    text = short_text(span) if span is not None else ""
    return f"`{text or otherwise}`"


def parameter_names(case: Case, nodes: Iterable[int]) -> list[str]:
    """Names of parameters; other leaves, such as inputs, are left out."""
    return case.names([node for node in nodes if case.parameter(node) is not None])


def passes(number: int) -> str:
    return "1 backward pass" if number == 1 else f"{number} backward passes"
