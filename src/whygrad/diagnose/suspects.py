"""Operations that may have made NaN in a pass that was not followed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from whygrad.diagnose.case import Case, is_library
from whygrad.record.accounts import Range, Trace
from whygrad.record.events import Event
from whygrad.record.ops import display_name
from whygrad.source.powers import is_whole_power
from whygrad.source.spans import Span

# Operation -> whether it is out of the question for values in this range. Those of the first
# table fail in backward alone; the others make the loss itself infinite or NaN, unless what they
# give is dropped on the way to it.
_IN_BACKWARD: dict[str, Callable[[Range], bool]] = {
    "sqrt": lambda seen: seen.low > 0,
    "pow": lambda seen: seen.low > 0,
    "acos": lambda seen: max(-seen.low, seen.high) < 1,
    "asin": lambda seen: max(-seen.low, seen.high) < 1,
    "arccos": lambda seen: max(-seen.low, seen.high) < 1,
    "hypot": lambda seen: not seen.low <= 0 <= seen.high,
    "atan2": lambda seen: not seen.low <= 0 <= seen.high,
}
_IN_FORWARD: dict[str, Callable[[Range], bool]] = {
    "log": lambda seen: seen.low > 0,
    "log2": lambda seen: seen.low > 0,
    "log10": lambda seen: seen.low > 0,
    "log1p": lambda seen: seen.low > -1,
    "rsqrt": lambda seen: seen.low > 0,
    "reciprocal": lambda seen: not seen.low <= 0 <= seen.high,
    "div": lambda seen: not seen.low <= 0 <= seen.high,
    "truediv": lambda seen: not seen.low <= 0 <= seen.high,
    "atanh": lambda seen: max(-seen.low, seen.high) < 1,
    "exp": lambda seen: seen.high < 80,
}
_DROPPING = frozenset(
    """
    where masked_fill masked_select nan_to_num nll_loss gather index take_along_dim index_select
    amax amin max min topk minimum maximum
    """.split()
)
# What keeps the next operation's input away from where it fails: `x + eps`, `x.clamp(min=eps)`.
_GUARDS = frozenset(["clamp", "clamp_min", "clip", "softplus", "exp", "cosh", "maximum"])


_ALL = {**_IN_BACKWARD, **_IN_FORWARD}


@dataclass(slots=True)
class Suspect:
    where: Span
    op: str
    seen: Range | None  # what came in, if it is known: then it is at fault for certain
    before: str = ""  # the operation that the values come from

    @property
    def doing(self) -> str:
        """`log` of 0, as far as that is known."""
        return f"{self.op} of 0" if self.seen is not None and self.seen.low == 0 else self.op


def suspects(case: Case, trace: Trace | None, loss: float | None) -> list[Suspect]:
    """One per line; those that are certain alone, if there are any."""
    found: dict[tuple[str, int], Suspect] = {}
    for suspect in _all(case, trace, loss is not None and math.isfinite(loss)):
        found.setdefault((suspect.where.file, suspect.where.line), suspect)
    certain = [suspect for suspect in found.values() if suspect.seen is not None]
    return certain or list(found.values())


def _all(case: Case, trace: Trace | None, finite_loss: bool) -> Iterator[Suspect]:
    graph = case.graph
    nodes = sorted(graph.ancestors(case.question.roots[:1]))
    events = [(n, e) for n in nodes if (e := graph.event(n)) is not None and e.live]
    dropped = any(display_name(event.op) in _DROPPING for _, event in events)
    possible = _IN_BACKWARD if finite_loss and not dropped else _ALL
    for node, event in events:
        op = display_name(event.op)
        where, fed = _place(case, node), _operand(event, op)
        if op not in _ALL or where is None or fed is None or not graph.live(fed):
            continue
        if op == "pow" and is_whole_power(where):
            continue
        seen = _known(trace, fed) if trace is not None else None
        if seen is not None and not _ALL[op](seen):
            yield Suspect(where, f"`{op}`", seen, _made_by(case, fed))
        elif seen is None and op in possible and not _is_guarded(case, fed):
            yield Suspect(where, f"`{op}`", None, _made_by(case, fed))


def _place(case: Case, node: int) -> Span | None:
    return next((s for s in case.places.node_spans(node) if not is_library(s.file)), None)


def _operand(event: Event, op: str) -> int | None:
    """The input at which an operation can fail; None where that is a plain number."""
    if op in ("div", "truediv"):
        return event.inputs[1] if len(event.inputs) > 1 else None
    return next(iter(event.inputs), None)


def _known(trace: Trace, node: int) -> Range | None:
    for known in (trace.values, trace.data, trace.parameters):
        if node in known:
            return known[node]
    return None


def _made_by(case: Case, node: int) -> str:
    event = case.graph.event(node)
    return display_name(event.op) if event is not None else ""


def _is_guarded(case: Case, node: int) -> bool:
    event = case.graph.event(node)
    if event is None:
        return False
    op = display_name(event.op)
    return op in _GUARDS or (op == "add" and len(event.inputs) == 1)
