"""Backward passes written down by hand, for queries on them."""

from __future__ import annotations

from whygrad.graph.tracing import Followed
from whygrad.record.accounts import Range, Trace, TraceNode


def values(low: float, high: float, size: int = 100) -> Range:
    return Range(low, high, size)


def op(
    name: str,
    came: float | None,
    sent: float | None | tuple[float | None, ...],
    feeds: int | tuple[int, ...],
    event: int | None = None,
    **saved: Range,
) -> TraceNode:
    """An operation; one gradient and one feed need no tuple."""
    outgoing = sent if isinstance(sent, tuple) else (sent,)
    fed = feeds if isinstance(feeds, tuple) else (feeds,)
    return TraceNode(event, f"{name}Backward0", came, outgoing, fed, saved=dict(saved))


def leaf(node: int) -> TraceNode:
    return TraceNode(None, "AccumulateGrad", None, (), (), leaf=node)


def followed(
    *nodes: TraceNode,
    parameters: dict[int, Range] | None = None,
    forward: dict[int, Range] | None = None,
) -> Followed:
    """A pass that starts at the first of its operations; `forward` are values by event."""
    trace = Trace(list(nodes), (0,), number=1, step=1, whole=True)
    trace.parameters = parameters or {}
    trace.values = forward or {}
    return Followed(trace)
