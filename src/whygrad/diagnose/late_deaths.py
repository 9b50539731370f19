"""Gradients that flowed and are exactly zero since: a step led to where an operation is flat."""

from __future__ import annotations

import math
from dataclasses import dataclass

from whygrad.diagnose import values, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.dead_end_story import get
from whygrad.diagnose.dead_ends import RELU, SATURATED
from whygrad.diagnose.flat_operations import FLAT_IN_PART, RELUS, is_penalty
from whygrad.graph.tracing import Followed, kind_of
from whygrad.record.accounts import Sizes
from whygrad.session import Finding, Fix
from whygrad.source.spans import Span, location

_LOOKS = 3  # with nothing but zeros, one after the other


@dataclass(slots=True)
class LateDeath:
    code: str
    where: Span
    op: str
    nodes: list[int]
    looks: list[Sizes]  # those with zeros


def late_death(case: Case) -> LateDeath | None:
    """Nothing has a gradient any more, and one operation lies between everything and the loss."""
    question = case.question
    account = question.account
    if account is None or not account.final or sum(o.steps > 0 for o in account.optimizers) != 1:
        return None
    looks = _zero_looks(question.sizes)
    held = [i for i in question.parameters if i.in_optimizer and i.requires_grad]
    if len(looks) < _LOOKS or not any(info.gradient == "flows" for info in held):
        return None
    nodes = [info.node for info in held]
    for trace in question.traces:
        passed = Followed(trace)
        gate = _gate(passed, set(nodes)) if trace.nodes else []
        if any(is_penalty(case, passed, index) for index in gate):
            continue
        places = {values.place_of(case, trace.nodes[index]) for index in gate}
        kinds = {kind_of(trace.nodes[index]) for index in gate}
        where = next(iter(places), None)
        if where is None or len(places) > 1 or len(kinds) > 1:
            continue
        code = RELU if kinds <= RELUS else SATURATED
        return LateDeath(code, where, values.spoken(case, trace.nodes[gate[0]]), nodes, looks)
    return None


def _zero_looks(sizes: list[Sizes]) -> list[Sizes]:
    """The latest looks, if all of them saw zeros while there was still something to learn."""
    found: list[Sizes] = []
    for look in reversed(sizes):
        if look.loss is None or not math.isfinite(look.loss) or look.loss == 0:
            break
        if look.gradient is not None and look.gradient != 0:
            break
        if look.gradient is not None:
            found.insert(0, look)
    return found


def _gate(passed: Followed, wanted: set[int]) -> list[int]:
    """The operations that are flat in part and that all gradient must pass, nearest the loss."""
    gate: list[int] = []
    seen, waiting = set(passed.trace.roots), list(passed.trace.roots)
    while waiting:
        index = waiting.pop()
        node = passed.nodes[index]
        if node.leaf in wanted:
            return []
        if kind_of(node) in FLAT_IN_PART:
            gate.append(index)
            continue
        for fed in node.feeds:
            if fed >= 0 and fed not in seen:
                seen.add(fed)
                waiting.append(fed)
    return gate


def late_finding(case: Case, late: LateDeath, *, why: str, fix: Fix) -> Finding:
    names, first = case.names(late.nodes), late.looks[0].step
    whom = words.listed(names, 2)
    since = f"{whom} {get(names)} only zeros since step {first}"
    title = f"{late.op} lets no gradient through any more: {since}"
    steps = ", ".join(str(look.step) for look in late.looks[:6])
    return Finding(
        code=late.code,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Affected: {words.listed(names, 8)}.",
        location=location(late.where),
        label="flat for every value that comes here by now",
        related=values.surfaced(case, -1, late.where, "runs, and gives only zeros"),
        parameters=names,
        why=why,
        checked=[
            f"every gradient was exactly zero in each of the last steps looked at ({steps}), while "
            f"the loss was not ({values.number(late.looks[-1].loss or 0)}). In an earlier step "
            "there was a gradient."
        ],
        inferred=[
            f"these steps were not followed. All ways from the parameters to the loss lead "
            f"through {late.op}, and nothing behind it is flat."
        ],
        fix=fix,
        first_step=first,
        at_end=True,
    )
