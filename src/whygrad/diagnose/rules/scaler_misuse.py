"""A gradient scaler whose calls are missing, too many, or in the wrong order."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, scaler_complaints, scaling, steps, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.scaling import Misuse
from whygrad.record.accounts import Act, ClipUse, PassUse, ScalerUse
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.edits import delete_statement
from whygrad.source.spans import Span, location
from whygrad.source.step_calls import call_arguments, called_method, is_infinite
from whygrad.source.step_edits import insert_before
from whygrad.source.tree import function_at

CODE = "scaler-misuse"

_TWICE = 2  # times that something was done, unless the program has ended


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        yield from scaler_complaints.tell(case, said)
    account = case.question.account
    if account is None:
        return
    by_line: dict[Span, list[Misuse]] = {}
    for misuse in scaling.misuses(case.graph, account):
        where = steps.line(case, misuse.act)
        if where is not None and not _is_measuring(misuse, where):
            by_line.setdefault(where, []).append(misuse)
    told: set[int] = set()
    for where, found in by_line.items():
        first = found[0]
        # One mistake with an optimizer makes the others: its clipping is not told beside it.
        if first.optimizer not in told and (len(found) >= _TWICE or account.final):
            told.add(first.optimizer)
            yield _finding(case, first, where, len(found))


def _is_measuring(misuse: Misuse, where: Span) -> bool:
    """Clipping to infinity changes nothing."""
    clips = isinstance(misuse.act, ClipUse)
    return clips and any(is_infinite(argument) for argument in call_arguments(where))


def _finding(case: Case, misuse: Misuse, where: Span, count: int) -> Finding:
    training = next(t for t in steps.trainings(case) if t.use.number == misuse.optimizer)
    optimizer, scaler = training.name, _scaler(case, misuse)
    title, label, why = _words(misuse, where, optimizer, scaler, _initial(case))
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} {words.sentence(label)}",
        location=location(where),
        label=label,
        related=_related(case, misuse, where),
        parameters=steps.parameter_names(case, training.use.nodes),
        why=why,
        checked=[_seen(misuse, count, optimizer)],
        fix=_fix(case, misuse, where, optimizer, scaler),
        first_step=case.question.step,
    )


def _scaler(case: Case, misuse: Misuse) -> str:
    """The scaler as the program calls it."""
    account = case.question.account
    acts: list[Act] = account.acts if account is not None else []
    for act in (misuse.step, misuse.scale, *acts):
        span = steps.line(case, act) if isinstance(act, ScalerUse) else None
        call = called_method(span) if span is not None else None
        if call is not None and call[1] in ("scale", "unscale_", "step", "update"):
            return call[0]
    return "scaler"


def _initial(case: Case) -> str:
    """The number that the program's scaler began with; empty where there are several."""
    account = case.question.account
    acts: list[Act] = account.acts if account is not None else []
    known = {act.initial for act in acts if isinstance(act, ScalerUse)}
    value = known.pop() if len(known) == 1 else None
    return f" ({value:.10g} at first)" if value is not None else ""


def _words(
    misuse: Misuse, where: Span, optimizer: str, scaler: str, initial: str
) -> tuple[str, str, str]:
    """(title, label, why)."""
    scale = (
        f"`{scaler}.scale()` multiplies the loss, and with it every gradient, by the scale"
        f"{initial}, so that small gradients survive in half precision."
    )
    match misuse.kind:
        case "scaled step":
            return (
                f"{steps.written(where, f'{optimizer}.step()')} uses gradients that still carry "
                "the loss scale",
                f"the gradients of `{optimizer}` are still multiplied by the scale here",
                f"{scale} Only `{scaler}.step({optimizer})` divides by it again before the "
                "optimizer steps. A step past the scaler uses gradients that are as many times too "
                "large, and is not left out when one overflows.",
            )
        case "second step":
            return (
                f"{steps.written(where, f'{optimizer}.step()')} makes a second step with the "
                f"gradients that `{scaler}.step({optimizer})` has used",
                "these gradients have moved the parameters already",
                f"`{scaler}.step({optimizer})` calls `{optimizer}.step()` itself, and leaves it "
                "out when a gradient overflows. The direct call steps once more, and in any case.",
            )
        case "unscaled loss":
            return (
                f"the loss of {steps.written(where, 'backward()')} is not scaled, and "
                f"`{scaler}.step({optimizer})` divides its gradients by the scale",
                "goes back from the loss as it is",
                f"`{scaler}.step()` divides gradients by the scale, because it takes them to come "
                f"from `{scaler}.scale(loss)`. These do not, so the step uses gradients that are "
                f"too small by the scale{initial}.",
            )
    name = misuse.act.name if isinstance(misuse.act, ClipUse) else "clipping"
    return (
        f"`{name}` clips the gradients of `{optimizer}` before they are unscaled",
        "the gradients here are still multiplied by the scale",
        f"{scale} Clipped to the limit in that state and divided by the scale afterwards, nearly "
        "nothing of them is left.",
    )


def _related(case: Case, misuse: Misuse, where: Span) -> list[Related]:
    rows: list[tuple[Act | None, str]] = [
        (misuse.made, "makes the gradients, of the scaled loss"),
        (misuse.scale, "scales the loss"),
        (misuse.step, "divides them by the scale, and steps"),
    ]
    if misuse.kind == "second step":
        rows[-1] = (misuse.step, "has made a step with the same gradients")
    found: list[Related] = []
    for act, label in rows:
        span = steps.line(case, act) if act is not None else None
        lines = [where.line, *(related.location.line for related in found)]
        if span is not None and (span.file != where.file or span.line not in lines):
            role = "operation" if isinstance(act, PassUse) else "used"
            found.append(Related(role, location(span), label))
    return found


def _seen(misuse: Misuse, count: int, optimizer: str) -> str:
    times = "once" if count == 1 else f"{count} times"
    match misuse.kind:
        case "scaled step":
            return (
                f"{times}, `{optimizer}` stepped between the backward() of a scaled loss and the "
                "scaler's unscaling."
            )
        case "second step":
            return f"{times}, no backward() came between the scaler's step and this one."
        case "unscaled loss":
            return f"{times}, no value that the scaler had scaled took part in this backward()."
    return f"{times}, `{optimizer}` was clipped between a scaled backward() and unscaling."


def _fix(case: Case, misuse: Misuse, where: Span, optimizer: str, scaler: str) -> Fix:
    edits: list[Edit] = []
    through = f"{scaler}.step({optimizer})"
    match misuse.kind:
        case "scaled step" if _steps_itself(case, misuse):
            edits = delete_statement(where)
            title = f"delete it: `{through}` steps the optimizer"
        case "scaled step":
            title = f"step through the scaler: `{through}`, then `{scaler}.update()`"
        case "second step":
            edits = delete_statement(where)
            title = f"delete it: `{through}` has stepped the optimizer already"
        case "unscaled loss":
            title = f"scale the loss: `{scaler}.scale(loss).backward()`"
        case _:
            line = f"{scaler}.unscale_({optimizer})"
            edits = insert_before(where, line) if _near(case, misuse, where) else []
            title = f"call `{line}` before it"
    return Fix(
        title=title,
        edits=edits,
        safety="forward values stay equal; the size of the steps changes",
        deliberate="if no scaling is wanted, make the scaler with `enabled=False`.",
    )


def _steps_itself(case: Case, misuse: Misuse) -> bool:
    """Whether the scaler steps that optimizer, too."""
    return any(True for _ in _own_steps(case, misuse))


def _own_steps(case: Case, misuse: Misuse) -> Iterator[Span]:
    account = case.question.account
    for act in account.acts if account is not None else []:
        if isinstance(act, ScalerUse) and act.call == "step" and act.optimizer == misuse.optimizer:
            span = steps.line(case, act)
            if span is not None:
                yield span


def _near(case: Case, misuse: Misuse, where: Span) -> bool:
    """Whether scaler and optimizer have the names there that they have where the scaler steps."""
    return any(function_at(span) is function_at(where) for span in _own_steps(case, misuse))
