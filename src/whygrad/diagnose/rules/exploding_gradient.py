"""Gradients that grow from step to step, or along one pass, until they overflow."""

from __future__ import annotations

import math
from collections.abc import Iterator

from whygrad.diagnose import explosions, poisons, values, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.explosions import Growth, Loop
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location

CODE = "exploding-gradient"


def diagnose(case: Case) -> Iterator[Finding]:
    if case.question.kind != "health":
        return
    growth = explosions.find(case)
    if growth is None:
        return
    loop = explosions.loop(case, growth)
    made = _optimizer_made(case)
    where = loop.where if loop is not None else made or values.backward_place(case, -1)
    if where is not None:
        yield _finding(case, growth, loop, where)


def _optimizer_made(case: Case) -> Span | None:
    """Where the learning rate was chosen: the optimizer that holds what exploded."""
    account = case.question.account
    if account is None:
        return None
    bad = set(poisons.poisoned_parameters(case))
    held = [use for use in account.optimizers if use.stack and (use.nodes & bad or not bad)]
    return case.user_span(held[0].stack) if len(held) == 1 else None


def _finding(case: Case, growth: Growth, loop: Loop | None, where: Span) -> Finding:
    bad = poisons.poisoned_parameters(case)
    nodes = bad or [i.node for i in case.question.parameters if i.in_optimizer and i.requires_grad]
    names = case.names(nodes)
    step, size = growth.looks[-1]
    grows = f"to {values.number(size)} in step {step}"
    if growth.overflow is not None:
        grows += f", and in step {growth.overflow} it overflows"
    title = f"the {growth.what} grows {grows}"
    if loop is not None:
        title = f"{loop.op} makes the {growth.what} grow {grows}"
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Affected: {words.listed(names, 8)}.",
        location=location(where),
        label=_label(loop),
        related=_related(case, where),
        parameters=names,
        why=_why(loop),
        checked=_checked(growth, loop),
        inferred=_reasoning(growth, loop),
        fix=Fix(
            title=_advice(loop),
            safety="changes how the parameters move",
            deliberate="if such growth is expected, silence this line.",
        ),
        first_step=growth.looks[0][0],
    )


def _label(loop: Loop | None) -> str:
    if loop is None:
        return "steps of this size lead further away each time"
    visited = f"visited {loop.visits} times in one pass"
    if loop.factor is None:
        return visited
    each = math.exp(math.log(loop.factor) / loop.visits)
    return f"{visited}; each time the gradient grows {values.number(each)}-fold"


def _related(case: Case, where: Span) -> list[Related]:
    return values.surfaced(case, -1, where, "gradients are no longer finite")


def _why(loop: Loop | None) -> str:
    if loop is None:
        return (
            "where a step overshoots by more than it gains, the next gradient is larger and the "
            "next step overshoots further. The growth is exponential, and ends in inf and NaN."
        )
    return (
        "backward multiplies the gradient once by every matrix that forward has multiplied by. A "
        "factor above one, visited again and again, grows exponentially."
    )


def _checked(growth: Growth, loop: Loop | None) -> list[str]:
    shown = growth.looks if len(growth.looks) <= 5 else [*growth.looks[:2], *growth.looks[-3:]]
    steps = ", ".join(f"{values.number(size)} (step {step})" for step, size in shown)
    what = "largest gradient" if growth.what == "gradient" else "loss"
    found = [f"{what} in the steps looked at: {steps}."]
    if growth.overflow is not None:
        found.append(f"in step {growth.overflow} it was infinite or NaN.")
    if loop is not None and loop.factor is not None:
        found.append(
            f"in the pass that was followed the gradient grew {values.number(loop.factor)}-fold at "
            "this line, and nowhere else as much."
        )
    return found


def _reasoning(growth: Growth, loop: Loop | None) -> list[str]:
    if loop is not None:
        return [] if loop.factor is not None else ["no other line is visited as often in a pass."]
    if growth.is_long:
        return [
            "no single operation stands out: it is from step to step that it grows, which speaks "
            "for a learning rate that is too large."
        ]
    return ["no single operation stands out; the gradient is too large from the first step on."]


def _advice(loop: Loop | None) -> str:
    if loop is None:
        return (
            "lower the learning rate (by a factor of ten to begin with), normalise inputs and "
            "targets, and clip with `torch.nn.utils.clip_grad_norm_` between backward() and step()"
        )
    return (
        "keep the factor near one: scale or orthogonalise the weights, bound the state (tanh, "
        "normalisation), or cut the loop into shorter windows; `clip_grad_norm_` between "
        "backward() and step() helps as long as gradients are finite"
    )
