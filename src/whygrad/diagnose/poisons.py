"""Where NaN or infinity came into the gradient, or into the values before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whygrad.diagnose import values
from whygrad.diagnose.case import Case
from whygrad.diagnose.singularities import SPOILING, forward_trouble, trouble
from whygrad.graph.tracing import Followed, is_finite, kind_of
from whygrad.record.accounts import Range, Trace
from whygrad.record.ops import display_name
from whygrad.source.powers import is_whole_power
from whygrad.source.spans import Span

_OVERFLOWS = "overflows"
_LARGE = 100.0  # what squares to infinity in half precision

Began = Literal["backward", "forward", "data"]


@dataclass(slots=True)
class Poison:
    """The first operation to blame in one backward pass."""

    trace: Trace
    where: Span
    op: str  # quoted
    kind: str  # autograd's name
    began: Began
    phrase: str = ""  # what it fails at: "of 0"
    seen: Range | None = None  # the values that did it
    passed: Followed | None = None
    at: int = -1
    loss: float | None = None  # of that pass

    @property
    def overflows(self) -> bool:
        return self.phrase == _OVERFLOWS

    @property
    def is_clear(self) -> bool:
        """Whether one value explains it, and not just its size."""
        return bool(self.phrase) and not self.overflows


def poisoned_parameters(case: Case) -> list[int]:
    return [
        info.node
        for info in case.question.parameters
        if info.gradient == "non-finite" and info.requires_grad
    ]


def find(case: Case) -> Poison | None:
    """The operation to blame in the first pass that went wrong, if that pass was followed."""
    for trace in case.question.traces:
        if not all(is_finite(seen) for seen in trace.parameters.values()):
            return None  # it came from an earlier step
        passed = Followed(trace)
        hits = passed.poisoned()
        if hits:
            found = _in_backward(case, passed, hits) or _in_forward(case, passed, hits[0])
            if found is not None:
                looks = [s.loss for s in case.question.sizes if s.step == trace.step]
                found.loss = next(iter(looks), None)
            return found
    return None


def _in_backward(case: Case, passed: Followed, hits: list[int]) -> Poison | None:
    """An operation that fails although all that it was given is finite."""
    for index in hits:
        phrase = trouble(passed, index)
        if phrase and not (_is_bad_below(passed, index) or _is_tame(case, passed, index)):
            return _poison(case, passed, index, "backward", phrase)
    return None


def _is_tame(case: Case, passed: Followed, index: int) -> bool:
    """`x ** 2`, which fails by the size of the gradient alone."""
    where = values.place_of(case, passed.nodes[index])
    return kind_of(passed.nodes[index]) == "Pow" and where is not None and is_whole_power(where)


def _in_forward(case: Case, passed: Followed, hit: int) -> Poison | None:
    """Follow a value that is not finite down to the operation that made it."""
    below = passed.below(hit)
    for index in sorted(below, key=lambda index: _event(passed, index)):
        phrase = forward_trouble(passed, index)
        if phrase and not _has_nan(case, passed, index):
            return _poison(case, passed, index, "forward", phrase)
    return (
        _in_data(case, passed, below)
        or _overflow(case, passed, below)
        or _poison(case, passed, hit, "backward", "")
    )


def _overflow(case: Case, passed: Followed, below: set[int]) -> Poison | None:
    """The first operation that made infinity out of large numbers."""
    found: set[int] = set()
    for index in below:
        waiting = passed.spoilt_operands(index)
        while waiting:
            fed = waiting.pop()
            given = passed.inputs(fed).values()
            if not given:
                waiting += [f for f in passed.nodes[fed].feeds if f >= 0]  # a sum keeps nothing
            elif all(is_finite(s) and max(abs(s.low), abs(s.high)) > _LARGE for s in given):
                found.add(fed)
    if not found:
        return None
    return _poison(case, passed, min(found, key=lambda i: _event(passed, i)), "forward", _OVERFLOWS)


def _event(passed: Followed, index: int) -> int:
    event = passed.nodes[index].event
    return 1 << 62 if event is None else event


def _poison(case: Case, passed: Followed, index: int, began: Began, phrase: str) -> Poison | None:
    node = passed.nodes[index]
    where = values.place_of(case, node)
    if where is None:
        return None
    kind = kind_of(node)
    seen = node.saved.get("other") if kind == "Div" else passed.input(index)
    op = values.spoken(case, node)
    return Poison(passed.trace, where, op, kind, began, phrase, seen, passed, index)


def _is_bad_below(passed: Followed, index: int) -> bool:
    """Whether an operand is known to be NaN."""
    outputs = (passed.output(fed) for fed in passed.nodes[index].feeds if fed >= 0)
    return any(seen is not None and math.isnan(seen.low) for seen in outputs)


def _has_nan(case: Case, passed: Followed, index: int) -> bool:
    """Whether NaN is known to come into an operation from the operations or the data before it."""
    if any(
        (seen := passed.output(other)) is not None and math.isnan(seen.low)
        for other in passed.below(index) - {index}
    ):
        return True
    return _bad_data(case, passed.trace, [passed.nodes[index].event]) is not None


# --- data ---------------------------------------------------------------------------------------


def _in_data(case: Case, passed: Followed, indices: set[int]) -> Poison | None:
    """NaN that comes from values without a gradient: at the line that made them, or uses them."""
    events = sorted({e for i in indices if (e := passed.nodes[i].event) is not None})
    found = _bad_data(case, passed.trace, events)
    if found is None:
        return None
    node, user, seen = found
    made = case.graph.event(node)
    op = display_name(made.op) if made is not None else ""
    where = case.places.node_span(node if op in SPOILING else user)
    if where is None:
        return None
    maker = f"`{op}`" if op in SPOILING else ""
    return Poison(passed.trace, where, maker, "", "data", "", seen, passed)


def _bad_data(
    case: Case, trace: Trace, events: Sequence[int | None]
) -> tuple[int, int, Range] | None:
    """(the first value with NaN that needs no gradient, what uses it, its numbers)."""
    graph = case.graph
    for event in events:
        if event is None:
            continue
        for fed in graph.inputs(event):
            if graph.live(fed) or not (seen := _known_nan(trace, fed)):
                continue
            node, earlier = fed, _spoilt_input(case, trace, fed)
            while earlier is not None:
                node, earlier = earlier, _spoilt_input(case, trace, earlier)
            return node, event, seen
    return None


def _spoilt_input(case: Case, trace: Trace, node: int) -> int | None:
    return next((fed for fed in case.graph.inputs(node) if _known_nan(trace, fed)), None)


def _known_nan(trace: Trace, node: int) -> Range | None:
    seen = trace.data.get(node) or trace.values.get(node)
    return seen if seen is not None and math.isnan(seen.low) else None
