"""Where a loss should have been reduced to one number, read from the graph behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from whygrad.diagnose.case import Case, is_library
from whygrad.record.events import Event
from whygrad.record.ops import display_name
from whygrad.source.spans import Span
from whygrad.source.tree import assigned_names, statement_at

Kind = Literal["loss", "output", "input"]

_SUMS = frozenset(["add", "sub"])
_SCALINGS = frozenset(["mul", "div", "truediv", "neg", "pos", "multiply", "divide", "true_divide"])
_MOVES = frozenset(
    """
    to cpu cuda float double half bfloat16 contiguous clone squeeze unsqueeze view reshape flatten
    type type_as
    """.split()
)
# What turns an output into a loss. Layers and activations do not.
_FORMULAS = _SUMS | _SCALINGS | frozenset(["pow", "abs", "square", "log", "clamp", "softplus"])
_LOSSES = frozenset(["cross_entropy", "kl_div", "logsigmoid", "log_prob", "cosine_similarity"])
_MAX_HOPS = 200


@dataclass(slots=True)
class Unreduced:
    """The operation that gave a root its shape, and the line at which to reduce it."""

    node: int
    where: Span
    shape: list[int]
    kind: Kind  # a loss that is not reduced, a model's output, or the derivative of an input


def find(case: Case, root: int) -> Unreduced | None:
    """None if the root is one number, or if its place is not known."""
    shape = case.shape(root)
    surface = case.user_span(case.question.stack)
    if shape is None or math.prod(shape) == 1 or surface is None:
        return None
    if case.question.kind == "grad-raised" and not _is_training(case):
        return Unreduced(root, surface, shape, "input")
    node = _per_sample(case, root, surface)
    where = _own_span(case, node)
    if where is None or case.graph.event(node) is None:
        return Unreduced(root, surface, shape, "output")
    if _is_output(case, node):
        return Unreduced(node, surface, shape, "output")
    return Unreduced(node, where, shape, "loss")


def _is_training(case: Case) -> bool:
    """Whether gradients of parameters are asked for: then what is differentiated is a loss."""
    targets = case.question.targets
    return bool(targets) and all(_is_weight(case, node) for node in targets)


def _own_span(case: Case, node: int) -> Span | None:
    spans = case.places.node_spans(node)
    return next((span for span in spans if not is_library(span.file)), None)


# --- back to what is left unreduced -----------------------------------------------------------


def _per_sample(case: Case, root: int, surface: Span) -> int:
    """The values that a root consists of, before they were scaled or added to other terms."""
    node, in_sum = root, False
    for _ in range(_MAX_HOPS):
        fed = _only_part(case, node)
        if fed is None:
            return node
        in_sum = in_sum or _adds_to_others(case, node, fed)
        if not in_sum and not _is_same_thing(case, node, fed, surface):
            return node
        node = fed
    return node


def _adds_to_others(case: Case, node: int, fed: int) -> bool:
    """Whether other terms, which are reduced, are added to this one."""
    event = case.graph.event(node)
    if event is None or display_name(event.op) not in _SUMS:
        return False
    return any(case.graph.live(i) for i in case.graph.inputs(node) if i != fed)


def _only_part(case: Case, node: int) -> int | None:
    """The one operand that an elementwise operation has its shape from."""
    event = case.graph.event(node)
    if event is None or display_name(event.op) not in _SUMS | _SCALINGS | _MOVES:
        return None
    large = [i for i in case.graph.inputs(node) if _elements(case, i) != 1]
    if len(large) != 1 or _elements(case, large[0]) != _elements(case, node):
        return None
    return large[0] if case.graph.event(large[0]) is not None else None


def _elements(case: Case, node: int) -> int:
    shape = case.shape(node)
    return -1 if shape is None else math.prod(shape)


def _is_same_thing(case: Case, node: int, fed: int, surface: Span) -> bool:
    """Whether an operation only scales what has the same name already, or has none."""
    here, there = _own_span(case, node), _own_span(case, fed)
    if here is None or there is None:
        return False
    statement = statement_at(here)
    if here.file == there.file and statement is statement_at(there):
        return True
    if here.file == surface.file and statement is statement_at(surface):
        return True
    names = set(assigned_names(here))
    calls = [s for s in case.places.node_spans(fed) if _function(s) == _function(here)]
    return any(names & set(assigned_names(span)) for span in calls if span != here)


# --- a model's output -------------------------------------------------------------------------


def _is_output(case: Case, node: int) -> bool:
    """Whether a value comes from a layer as it is: no loss was computed from it."""
    function = _function(_own_span(case, node))
    surfaces = {_function(span) for span in case.places.spans(case.question.stack)}
    current = node
    for _ in range(_MAX_HOPS):
        event = case.graph.event(current)
        if event is None or _is_loss(case, current, event, surfaces):
            return False
        if _is_layer(case, event):
            return function in {_function(s) for s in case.places.node_spans(current)}
        live = [i for i in case.graph.inputs(current) if case.graph.live(i)]
        live = [i for i in live if not _is_weight(case, i)]
        if not live:
            return False
        current = max(live)
    return False


def _is_loss(case: Case, node: int, event: Event, surfaces: set[tuple[str, int] | None]) -> bool:
    """A loss function, a formula in the code that trains, or a comparison with data."""
    op = display_name(event.op)
    if op in _LOSSES or op.endswith("_loss"):
        return True
    if op in _FORMULAS and _function(_own_span(case, node)) in surfaces:
        return True
    inputs = case.graph.inputs(node)
    data = [i for i in inputs if not case.graph.live(i) and not _is_weight(case, i)]
    return bool(data) and len(data) < len(inputs) and not _is_layer(case, event)


def _is_layer(case: Case, event: Event) -> bool:
    weights = [i for i in event.inputs if _is_weight(case, i)]
    return bool(weights) and len(weights) < len(event.inputs)


def _is_weight(case: Case, node: int) -> bool:
    source = case.graph.source(node)
    return (source is not None and source.parameter) or case.parameter(node) is not None


def _function(span: Span | None) -> tuple[str, int] | None:
    return None if span is None else (span.file, span.first_line)
