"""Calls of torch.utils.checkpoint in the source and in the record."""

from __future__ import annotations

from collections.abc import Iterable

from whygrad.diagnose.case import Case
from whygrad.session import Fix
from whygrad.source.edits import add_keyword
from whygrad.source.spans import Span
from whygrad.source.tree import callee_name

_CALLS = ("checkpoint", "checkpoint_sequential")


def reentrant_calls(case: Case, nodes: Iterable[int]) -> list[tuple[Span, int]]:
    """Re-entrant checkpoints that some values were computed in: their lines, latest first.

    Each comes with the latest of the values.
    """
    found: dict[Span, int] = {}
    for node in sorted(nodes, reverse=True):
        where = reentrant_call(case, node)
        if where is not None:
            found.setdefault(where, node)
    return list(found.items())


def reentrant_call(case: Case, node: int) -> Span | None:
    """The line of the re-entrant checkpoint inside which a value was computed."""
    event = case.graph.event(node)
    if event is None or event.mode <= 0:
        return None
    switch = case.graph.recording.switches[event.mode]
    return case.blame(switch.stack, None)[0] if switch.checkpoint else None


def not_reentrant(where: Span, title: str = "pass `use_reentrant=False`") -> Fix:
    """The other kind of checkpoint, as an edit where the call is written out."""
    name = (callee_name(where) or "").rpartition(".")[2]
    return Fix(
        title=title,
        edits=add_keyword(where, "use_reentrant=False") if name in _CALLS else [],
        safety="forward values stay equal",
    )
