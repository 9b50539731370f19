"""An operation whose derivative is infinite or undefined for a value that came to it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from whygrad.diagnose import (
    complaints,
    explosions,
    nan_complaints,
    poisons,
    remedies,
    values,
    words,
)
from whygrad.diagnose.case import Case
from whygrad.diagnose.poisons import Poison
from whygrad.diagnose.suspects import Suspect, suspects
from whygrad.graph.tracing import is_finite
from whygrad.record.accounts import Sizes, Trace
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location

CODE = "nan-gradient"

_MOST_SUSPECTS = 3


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        yield from nan_complaints.tell(case, said, _followed)
    account = case.question.account
    nodes = poisons.poisoned_parameters(case)
    if account is None or not nodes or explosions.find(case) is not None:
        return
    poison = poisons.find(case)
    if poison is not None and (poison.is_clear or not account.scaled):
        yield _followed(case, poison, nodes)
    elif poison is None and not account.scaled and not account.final:
        yield from _unfollowed(case, nodes)


# --- a pass that was followed -------------------------------------------------------------------


def _followed(case: Case, poison: Poison, nodes: list[int]) -> Finding:
    names = case.names(nodes)
    trace, loss = poison.trace, values.loss_name(case, poison.trace.number)
    whom = words.listed(names, 2)
    if poison.began == "data":
        title = f"the data has NaN in it, and so has the gradient of {whom}"
    else:
        also = ", and" if poison.overflows else ""
        title = f"{_doing(poison)}{also} makes the gradient of {whom} NaN"
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Affected: {words.listed(names, 8)}.",
        location=location(poison.where),
        label=_label(poison),
        related=values.surfaced(
            case, trace.number, poison.where, f"runs, and gives {values.count(names)} NaN"
        ),
        parameters=names,
        why=_why(poison, loss),
        checked=_checked(case, poison, loss),
        fix=remedies.for_poison(poison),
        first_step=trace.step,
    )


def _doing(poison: Poison) -> str:
    return f"{poison.op} {poison.phrase}".rstrip()


def _label(poison: Poison) -> str:
    seen = poison.seen
    if poison.began == "data":
        here = f"{poison.op} gives NaN here, before any parameter takes part"
        return here if poison.op else "the values that come in here have NaN in them already"
    if poison.phrase.startswith("over a row"):
        return "in some row every entry is -inf, and the result is NaN"
    if poison.overflows:
        return "the result is too large for its type, and becomes infinity"
    if seen is None or not is_finite(seen):
        if poison.began == "forward":
            return "finite values come in, NaN or infinity comes out"
        return "a finite gradient arrives here, one with NaN or infinity leaves"
    what = "divisor" if poison.kind == "Div" else "input"
    if poison.phrase.startswith(("at 1", "of a value beyond")):
        return f"its largest {what} is {values.number(seen.high)}"
    return f"its smallest {what} is {values.number(seen.low)}"


def _why(poison: Poison, loss: str) -> str:
    if poison.began == "data":
        return (
            "whatever is computed with NaN is NaN, the gradients included. After one step with "
            "it, so are the parameters."
        )
    if poison.began == "forward":
        gives = "gives infinity" if poison.overflows else "is NaN or infinite"
        return (
            f"{_doing(poison)}{', and' if poison.overflows else ''} {gives}. "
            f"{_dropped(poison, loss)}In backward that is a factor of the gradient, and even zero "
            "times that is NaN."
        )
    if not poison.phrase:
        return f"in this operation NaN or infinity comes into the gradient of `{loss}`."
    return (
        f"{_doing(poison)} has no finite derivative. {_dropped(poison, loss)}In backward it is a "
        "factor of the gradient, and even zero times that is NaN."
    )


def _dropped(poison: Poison, loss: str) -> str:
    """A word on values that are not used, and that do harm all the same."""
    passed, value = poison.passed, poison.loss
    if passed is None or value is None or not math.isfinite(value):
        return ""
    if "Where" in passed.kinds_above(poison.at):
        return (
            f"`torch.where` picks the other branch there, so `{loss}` is finite; but it does not "
            "protect in backward, where the branch that was not taken gets a gradient of zero. "
        )
    return f"`{loss}` itself is finite ({values.number(value)}). "


def _checked(case: Case, poison: Poison, loss: str) -> list[str]:
    trace, found = poison.trace, []
    if poison.passed is not None and poison.began != "data":
        node = poison.passed.nodes[poison.at]
        came, sent = node.incoming, [size for size in node.outgoing if size is not None]
        if came is not None and math.isfinite(came):
            bad = next((size for size in sent if not math.isfinite(size)), math.nan)
            found.append(
                f"the gradient was followed from `{loss}` in step {trace.step}: up to "
                f"{values.number(came)} arrives at {poison.op}, {values.number(bad)} leaves it."
            )
    if poison.seen is not None and is_finite(poison.seen) and poison.seen.size > 1:
        seen = poison.seen
        what = "divisors" if poison.kind == "Div" else "inputs"
        found.append(f"its {seen.size} {what} are {values.between(seen)}.")
    if poison.began == "forward":
        found.append("no value known from before that operation has NaN in it.")
    found.append("every parameter was finite before that step.")
    return found


# --- a pass that was not ------------------------------------------------------------------------


def _unfollowed(case: Case, nodes: list[int]) -> Iterator[Finding]:
    """It began in a step that was watched lightly: narrow it down as far as is honest."""
    question, names = case.question, case.names(nodes)
    first, last, loss = _when(question.sizes, question.step)
    trace = next((t for t in question.traces if not t.nodes and _was_finite(t)), None)
    if trace is not None:
        first = last = trace.step
    found = suspects(case, trace, loss)
    named = found if len(found) <= _MOST_SUSPECTS else []
    surface = values.backward_place(case, trace.number if trace is not None else -1)
    where = named[0].where if named else surface
    if where is None:
        return
    certain = bool(named) and named[0].seen is not None
    when = f"in step {first}" if first == last else f"between step {first} and step {last}"
    whom = words.listed(names, 2)
    title = f"the gradient of {whom} becomes NaN {when}"
    if len(named) == 1 or certain:
        title = f"{named[0].doing} makes the gradient of {whom} NaN {when}"
    yield Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Affected: {words.listed(names, 8)}.",
        location=location(where),
        label=_suspicion(named[0]) if named else "from here on, gradients have NaN in them",
        related=_others(named, surface, where),
        parameters=names,
        why=f"{named[0].doing} has no finite derivative. In backward it is a factor of the "
        "gradient, and even zero times that is NaN. After one step with it the parameters are NaN "
        "as well."
        if certain
        else "after one step with a NaN in the gradient the parameters are NaN, and so is all "
        "that is computed from them. It has to be stopped where it begins.",
        checked=_seen(first, last, loss, named if certain else []),
        inferred=[] if certain or not named else [_reasoning(named)],
        fix=_fix(named, certain, f"whygrad run --watch-step {first} {_script(case)}"),
        first_step=first,
    )


def _fix(named: list[Suspect], certain: bool, command: str) -> Fix:
    advice = remedies.for_operation(named[0].op, named[0].before) if named else ""
    title = f"watch that step closely: `{command}`"
    if certain:
        title = f"{advice}. To see that step operation by operation: `{command}`"
    elif advice:
        title = f"{title}. If it is {named[0].op}, {advice}"
    return Fix(
        title=title,
        safety="watching changes nothing in what the program does",
        deliberate="if the program skips such steps itself, silence this line.",
    )


def _when(sizes: list[Sizes], step: int) -> tuple[int, int, float | None]:
    """(first step that may be it, last one, the loss of the last one)."""
    finite = 0
    for look in sizes:
        if look.gradient is not None and not math.isfinite(look.gradient):
            return finite + 1 if finite else look.step, look.step, look.loss
        if look.gradient is not None or look.finite:
            finite = look.step
    return step, step, None


def _was_finite(trace: Trace) -> bool:
    return all(is_finite(seen) for seen in trace.parameters.values())


def _suspicion(suspect: Suspect) -> str:
    if suspect.seen is not None:
        return f"its {suspect.seen.size} inputs are {values.between(suspect.seen)}"
    return f"the derivative of {suspect.op} can be infinite, and nothing here prevents it"


def _others(named: list[Suspect], surface: Span | None, where: Span) -> list[Related]:
    found = [Related("operation", location(s.where), _suspicion(s)) for s in named[1:]]
    if surface is not None and surface != where:
        found.insert(0, Related("surfaced", location(surface), "gradients have NaN from here on"))
    return found


def _seen(first: int, last: int, loss: float | None, certain: list[Suspect]) -> list[str]:
    before = f"gradients were finite up to step {first - 1} and" if first > 1 else "gradients were"
    found = [f"{before} not finite in step {last}."]
    if loss is not None and math.isfinite(loss):
        found.append(f"the loss of step {last} was still finite ({values.number(loss)}).")
    found += [
        f"in that step {s.op} got values {values.between(s.seen)}."
        for s in certain
        if s.seen is not None
    ]
    return found


def _reasoning(named: list[Suspect]) -> str:
    if len(named) == 1:
        return (
            f"that step was not followed. {named[0].op} is the only operation of the pass whose "
            "derivative can be infinite and whose input is not kept away from that."
        )
    return (
        f"that step was not followed. These {len(named)} operations can have an infinite "
        "derivative; the others of the pass cannot."
    )


def _script(case: Case) -> str:
    """The file that was run, as far as one can see."""
    stacks = [*case.question.root_stacks.values(), case.question.stack]
    spans = case.places.spans(stacks[0])
    return os.path.basename(spans[-1].file) if spans else "SCRIPT.py"
