"""Ways out of torch: what two rules need to know to tell their cases apart."""

from __future__ import annotations

from whygrad.diagnose.case import Case
from whygrad.graph.flow import Block
from whygrad.graph.separate import Separation
from whygrad.source.tree import callee_name

# Constructors that take tensors apart number by number: torch.Tensor([a, b]).
_CONSTRUCTORS = ("Tensor", "tensor", "as_tensor", "asarray")


def exit_of(case: Case, separation: Separation) -> int | None:
    """The exit that a separation is about: its first cut, or what a detach only prepares.

    Torch demands `.detach()` before `.numpy()`: there the way out is the cause.
    """
    cuts = separation.cuts
    if cuts[0].kind == "exit":
        return cuts[0].node
    if cuts[0].kind == "detach" and len(cuts) > 1 and cuts[1].kind == "exit":
        first, second = (case.places.node_span(cut.node) for cut in cuts[:2])
        if first is not None and second is not None:
            overlap = first.line <= second.end_line and second.line <= first.end_line
            if first.file == second.file and overlap:
                return cuts[1].node
    return None


def further_cuts(case: Case, separation: Separation) -> list[Block]:
    """The cuts after the first, where a detach and the exit it prepares count as one."""
    prepared = separation.first.kind == "detach" and exit_of(case, separation) is not None
    return separation.cuts[2:] if prepared else separation.cuts[1:]


def rebuilds(case: Case, exit_node: int) -> bool:
    """Whether the exit is a constructor reading tensors: `torch.Tensor([a, b])`."""
    span = case.places.node_span(exit_node)
    name = callee_name(span) if span is not None else None
    return name is not None and name.startswith("torch.") and name.endswith(_CONSTRUCTORS)
