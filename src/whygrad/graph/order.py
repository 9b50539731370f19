"""Which of two groups of parameters comes first on the way to a loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from whygrad.graph.flow import FlowGraph


class Order(NamedTuple):
    """What is known of two groups of parameters, `these` and `those`."""

    before: bool  # results of these are fed to those
    after: bool  # results of those are fed to these

    @property
    def upstream(self) -> bool:
        return self.before and not self.after

    @property
    def interleaved(self) -> bool:
        return self.before and self.after


def order(graph: FlowGraph, roots: Iterable[int], these: set[int], those: set[int]) -> Order:
    """How two groups of parameters lie to each other, in what led to some roots.

    What is made of parameters alone (a transposed or normalised weight) counts as they do.
    """
    own: dict[int, tuple[bool, bool]] = {}  # made of parameters alone: of these, of those
    fed: dict[int, tuple[bool, bool]] = {}  # made of data with them
    before = after = False
    for node in sorted(n for n in graph.ancestors(roots) if n >= 0 or graph.trainable_leaf(n)):
        if node < 0 or graph.trainable_leaf(node):
            own[node] = node in these, node in those
            continue
        inputs = graph.inputs(node)
        if inputs and all(i in own for i in inputs):
            own[node] = any(own[i][0] for i in inputs), any(own[i][1] for i in inputs)
            continue
        weights = [own[i] for i in inputs if i in own]
        values = [fed[i] for i in inputs if i in fed]
        before = before or (any(w[1] for w in weights) and any(v[0] for v in values))
        after = after or (any(w[0] for w in weights) and any(v[1] for v in values))
        both = [*weights, *values]
        fed[node] = any(b[0] for b in both), any(b[1] for b in both)
    return Order(before, after)
