"""Tensors that are results of operations where a leaf was meant: what made them, from which."""

from __future__ import annotations

from dataclasses import dataclass

from whygrad.diagnose.case import Case, is_library
from whygrad.record.ops import GRADIENT, display_name
from whygrad.source.callbacks import Stored, stored_argument
from whygrad.source.returns import is_given_back
from whygrad.source.spans import Span

# The same thing in another form: one who applies these to a leaf still thinks of it as that leaf.
_FORMS = frozenset(
    """
    to float double half bfloat16 type type_as cuda cpu clone contiguous requires_grad_ view
    view_as reshape reshape_as squeeze unsqueeze squeeze_ unsqueeze_ flatten unflatten ravel
    expand expand_as repeat permute transpose t T mT swapaxes movedim mul multiply add sub subtract
    div divide true_divide truediv neg negative pow clamp clip __mul__ __rmul__ __imul__ __add__
    __radd__ __iadd__ __sub__ __rsub__ __isub__ __truediv__ __itruediv__ __neg__ __pow__
    __getitem__ mul_ add_ sub_ div_ detach_ abs sqrt exp log as_subclass pin_memory Variable
    Parameter Tensor
    """.split()
)
_MAX_CHAIN = 10_000


@dataclass(slots=True)
class Result:
    """A tensor that an operation computed."""

    node: int
    where: Span  # the line at which a leaf became a result, or that computed the result
    op: str  # the operation there
    leaf: int | None = None  # the leaf that it is another form of
    made: Span | None = None  # where that leaf was made, or first seen
    updated: bool = False  # the operation takes a step along a gradient
    stored: Stored | None = None  # where a callback keeps it, for who reads it later

    @property
    def operation(self) -> str:
        return display_name(self.op)


def result(case: Case, node: int) -> Result | None:
    """What a tensor that is not a leaf was computed by; None if that is not known."""
    chain, leaf = _forms(case, node)
    if leaf is not None and chain:
        first = chain[-1]
        found = _computed(case, first, node)
        if found is not None:
            found.leaf, found.made = leaf, place(case, leaf)
            found.updated = _is_update(case, first)
            return found
    found = _computed(case, node, node)
    if found is not None:
        found.where = _named_at(case, node) or found.where
    return found


def find_store(case: Case, found: Result, read: Span | None) -> None:
    """For a result that was handed to a callback: the line that keeps it, not the caller's."""
    if found.leaf is not None or read is None or is_library(read.file):
        return
    stored = stored_argument(read)
    spans = case.places.node_spans(found.node)
    callers = {(span.file, span.function.rpartition(".")[2]) for span in spans}
    # A function that was computing the value itself is no callback for it.
    if stored is not None and (stored.where.file, stored.function) not in callers:
        found.stored, found.where = stored, stored.where


def _named_at(case: Case, node: int) -> Span | None:
    """The line that has a result for itself, not one in a function that only returns it."""
    spans = [span for span in case.places.node_spans(node) if not is_library(span.file)]
    return next((span for span in spans if not is_given_back(span)), None)


def _computed(case: Case, by: int, node: int) -> Result | None:
    event, where = case.graph.event(by), place(case, by)
    if event is None or where is None:
        return None
    return Result(node, where, event.op)


def place(case: Case, node: int) -> Span | None:
    """The program's own line at which a node came to be."""
    spans = case.places.node_spans(node)
    return next((span for span in spans if not is_library(span.file)), spans[0] if spans else None)


def _forms(case: Case, node: int) -> tuple[list[int], int | None]:
    """The operations from a tensor back to the one leaf that it is another form of, if it is."""
    graph, chain = case.graph, list[int]()
    while len(chain) < _MAX_CHAIN:
        event = graph.event(node)
        if event is None:
            return chain, node if graph.source(node) is not None and chain else None
        if chain and (not event.live or not graph.inputs(node)):
            return chain, node
        feeders = dict.fromkeys(graph.inputs(node))
        carriers = [n for n in feeders if graph.live(n)] or _asked_later(case, feeders)
        if event.op not in _FORMS or len(carriers) != 1:
            return chain, None
        chain.append(node)
        node = carriers[0]
    return chain, None


def _asked_later(case: Case, nodes: dict[int, None]) -> list[int]:
    """Made without history, and asked for a gradient after: `x = rand(3); x.requires_grad_()`."""
    return [n for n in nodes if case.graph.floating(n)][:1]


def _is_update(case: Case, node: int) -> bool:
    """Whether a gradient takes part in an operation, beside the tensor itself."""
    others = [n for n in case.graph.inputs(node) if not case.graph.live(n)]
    events = (case.graph.event(n) for n in case.graph.ancestors(others))
    return any(event is not None and event.op in (GRADIENT, "grad") for event in events)
