"""Operations that may have made NaN in a pass that was not followed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from whygrad.diagnose import values
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
    # Of a row of -inf; asked only where something is masked.
    "softmax": lambda seen: seen.low > -math.inf,
    "log_softmax": lambda seen: seen.low > -math.inf,
    "scaled_dot_product_attention": lambda seen: True,
}
_MASKED = frozenset(["softmax", "log_softmax", "scaled_dot_product_attention"])
_MASKING = frozenset(["masked_fill", "masked_fill_", "where", "__setitem__"])
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
    return certain or list(found.values()) or list(_custom(case))


def _all(case: Case, trace: Trace | None, finite_loss: bool) -> Iterator[Suspect]:
    graph = case.graph
    start, in_forward = _first_nan(case, trace)
    nodes = sorted(graph.ancestors(start))
    events = [(n, e) for n in nodes if (e := graph.event(n)) is not None and e.live]
    dropped = any(display_name(event.op) in _DROPPING for _, event in events)
    possible = _IN_BACKWARD if finite_loss and not (dropped or in_forward) else _ALL
    for node, event in events:
        op = display_name(event.op)
        where, fed = _place(case, node), _operand(event, op)
        if op not in _ALL or where is None or fed is None:
            continue
        if (op == "pow" and is_whole_power(where)) or (op in _MASKED and not _masked(case, node)):
            continue
        seen = _known(trace, fed) if trace is not None else None
        if seen is not None and not _ALL[op](seen):
            yield Suspect(where, f"`{op}`", seen, _made_by(case, fed))
        elif seen is None and op in possible and graph.live(fed) and not _is_guarded(case, fed):
            yield Suspect(where, f"`{op}`", None, _made_by(case, fed))


def _first_nan(case: Case, trace: Trace | None) -> tuple[tuple[int, ...], bool]:
    """The earliest value known to have NaN in it; the loss, if none is."""
    roots = case.question.roots[:1]
    if trace is None:
        return roots, False
    behind = case.graph.ancestors(roots)
    spoilt = [n for n, seen in trace.values.items() if n in behind and math.isnan(seen.low)]
    return ((min(spoilt),), True) if spoilt else (roots, False)


def _masked(case: Case, node: int) -> bool:
    """Whether some scores may have been set to -inf on purpose."""
    events = (case.graph.event(n) for n in case.graph.ancestors([node]))
    return any(event is not None and event.op in _MASKING for event in events)


def _custom(case: Case) -> Iterator[Suspect]:
    """Custom Functions, whose backward is the program's own."""
    for node in sorted(case.graph.ancestors(case.question.roots[:1])):
        event, where = case.graph.event(node), _place(case, node)
        if event is not None and where is not None and values.is_custom(case, node):
            yield Suspect(where, f"`{event.op}.backward()`", None)


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
