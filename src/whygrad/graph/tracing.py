"""Queries on a followed backward pass: where gradient ends, and where it stops being finite."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple

from whygrad.record.accounts import Range, Trace, TraceNode

_FRAME = re.compile(r"Backward[s\d]*$")
_RESULT = re.compile(r"result|output|inverse")
_MAX_DEPTH = 200  # operations between a zero and the leaf that it may come from

# For products: place of a gradient among those sent on -> place of the factor that it has.
FACTORS: dict[str, dict[int, int]] = {
    "Mul": {0: 1, 1: 0},
    "Mm": {0: 1, 1: 0},
    "Bmm": {0: 1, 1: 0},
    "Mv": {0: 1, 1: 0},
    "Dot": {0: 1, 1: 0},
    "Addmm": {1: 2, 2: 1},
    "Baddbmm": {1: 2, 2: 1},
    "Addcmul": {1: 2, 2: 1},
    "Convolution": {0: 1, 1: 0},
    "NativeBatchNorm": {0: 1},
    "NativeLayerNorm": {0: 1},
    "NativeGroupNorm": {0: 1},
    "ScaledDotProductFlashAttentionForCpu": {0: 1, 1: 0},
}

# Results that are zero if every operand at the places of one of the entries is.
_ZERO_IF: dict[str, tuple[tuple[int, ...], ...]] = {
    **dict.fromkeys(("Mul", "Mm", "Bmm", "Mv", "Dot"), ((0,), (1,))),
    **dict.fromkeys(("Addmm", "Baddbmm", "Addcmul"), ((0, 1), (0, 2))),
    **dict.fromkeys(("NativeBatchNorm", "NativeLayerNorm", "NativeGroupNorm"), ((1, 2),)),
    "Convolution": ((0, 2), (1, 2)),
    "Div": ((0,),),
}
_OPTIONAL = {("Convolution", 2)}  # an operand that may not be there: a bias
_ZERO_IF_ALL = frozenset(
    """
    T Transpose Permute View UnsafeView Reshape ReshapeAlias Unsqueeze Squeeze Expand Select Slice
    Split SplitWithSizes Unbind Cat Stack Clone Alias Add Sub Sum Mean Neg ToCopy Index IndexSelect
    Gather Embedding Repeat AsStrided Roll Flip Tril Triu Unfold Movedim Contiguous Where
    NativeDropout Relu LeakyRelu Gelu Silu Elu Tanh Sin Abs Sqrt Erf Amax Max AvgPool2D
    MaxPool2DWithIndices AdaptiveAvgPool2D
    """.split()
)


# Flat everywhere, whatever comes in.
STEPS = frozenset("Round Floor Ceil Trunc Sign Sgn Bernoulli".split())

# Names of kept operands -> their place among those of the operation.
_PLACES: dict[str, dict[str, int]] = {
    "Addmm": {"mat1": 1, "mat2": 2},
    "Baddbmm": {"batch1": 1, "batch2": 2},
    "Convolution": {"input": 0, "weight": 1},
}
_USUAL_PLACES = {"self": 0, "other": 1, "mat2": 1, "vec": 1, "tensor": 1, "exponent": 1}


class Death(NamedTuple):
    """Gradient came to an operation, and only zeros left it for one of its operands."""

    at: int
    place: int


def kind_of(node: TraceNode) -> str:
    """Autograd's name for an operation without what all of them have: `Tanh`."""
    return _FRAME.sub("", node.function)


def is_zero(values: Range | None) -> bool:
    return values is not None and values.low == 0 == values.high


def is_finite(values: Range) -> bool:
    return math.isfinite(values.low) and math.isfinite(values.high)


class Followed:
    """A trace, read in both directions."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.nodes = trace.nodes
        self.leaves: dict[int, int] = {}  # leaf -> index
        self._above: list[list[tuple[int, int]]] = [[] for _ in trace.nodes]
        for index, node in enumerate(trace.nodes):
            if node.leaf is not None:
                self.leaves[node.leaf] = index
            for place, fed in enumerate(node.feeds):
                if fed >= 0:
                    self._above[fed].append((index, place))
        self._leaves_below: dict[int, set[int]] = {}
        self._fates: dict[int, frozenset[Death] | None] = {}
        self._zeros: dict[int, frozenset[int] | None] = {}

    # --- going round the graph ----------------------------------------------------------------

    def below(self, start: int) -> set[int]:
        """Everything between an operation and the leaves, itself included."""
        return self._reach(start, lambda index: self.nodes[index].feeds)

    def above(self, start: int) -> set[int]:
        """Everything between an operation and the loss, itself included."""
        return self._reach(start, self.consumers)

    def consumers(self, index: int) -> list[int]:
        """The operations from which an operation gets its gradient: the users of its result."""
        return [consumer for consumer, _ in self._above[index]]

    def _reach(self, start: int, step: Callable[[int], Iterable[int]]) -> set[int]:
        seen, waiting = {start}, [start]
        while waiting:
            for index in step(waiting.pop()):
                if index >= 0 and index not in seen:
                    seen.add(index)
                    waiting.append(index)
        return seen

    def kinds_above(self, start: int) -> set[str]:
        """What lies between an operation and the loss, by autograd's names."""
        return {kind_of(self.nodes[index]) for index in self.above(start)} if start >= 0 else set()

    def leaves_below(self, start: int) -> set[int]:
        if start not in self._leaves_below:
            found = (self.nodes[index].leaf for index in self.below(start))
            self._leaves_below[start] = {leaf for leaf in found if leaf is not None}
        return self._leaves_below[start]

    @cached_property
    def _outermost(self) -> set[int]:
        """Operations whose result is that of the whole recorded call they belong to."""
        return {
            index
            for index, consumers in enumerate(self._above)
            if all(self.nodes[c].event != self.nodes[index].event for c, _ in consumers)
        }

    # --- forward values -----------------------------------------------------------------------

    def output(self, index: int) -> Range | None:
        """The values that an operation gave, if they are known."""
        node = self.nodes[index]
        if node.leaf is not None:
            return self.trace.parameters.get(node.leaf)
        for name, values in node.saved.items():
            if _RESULT.match(name):
                return values
        if node.event is None or index not in self._outermost:
            return None
        return self.trace.values.get(node.event)

    def inputs(self, index: int) -> dict[str, Range]:
        """What an operation kept of the values that it got."""
        saved = self.nodes[index].saved
        return {name: values for name, values in saved.items() if not _RESULT.match(name)}

    def spoilt_operands(self, index: int) -> list[int]:
        """The operations whose results came to this one with NaN or infinity in them."""
        node = self.nodes[index]
        places = _PLACES.get(kind_of(node), _USUAL_PLACES)
        found = {
            places.get(name, 0) for name, seen in self.inputs(index).items() if not is_finite(seen)
        }
        return [node.feeds[at] for at in found if at < len(node.feeds) and node.feeds[at] >= 0]

    def input(self, index: int) -> Range | None:
        """The values that an operation with one operand got, if they are known."""
        node = self.nodes[index]
        fed = [at for at in node.feeds if at >= 0]
        known = node.saved.get("self")
        return known if known is not None or len(fed) != 1 else self.output(fed[0])

    def loss(self) -> Range | None:
        """The value that the pass started from."""
        return self.output(self.trace.roots[0]) if len(self.trace.roots) == 1 else None

    # --- where gradient ends ------------------------------------------------------------------

    def deaths(self, leaf: int) -> frozenset[Death] | None:
        """The operations at which all gradient on its way to a leaf ends.

        None if that is not how its gradient became zero: what arrived was summed away, changed
        by a hook, or never measured.
        """
        start = self.leaves[leaf]
        waiting = [start]
        while waiting:
            at = waiting[-1]
            later = [c for c, place in self._above[at] if self._is_silent(c, place)]
            missing = [c for c in later if c not in self._fates]
            if missing and at not in self._fates:
                waiting += missing
            else:
                waiting.pop()
                self._fates[at] = self._fate(at)
        return self._fates[start]

    def _is_silent(self, index: int, place: int) -> bool:
        """Whether zeros came to an operation, and zeros were sent on."""
        node = self.nodes[index]
        return node.outgoing[place] == 0 == node.incoming

    def _fate(self, index: int) -> frozenset[Death] | None:
        found: set[Death] = set()
        summed_away = False
        for consumer, place in self._above[index]:
            node = self.nodes[consumer]
            sent, came = node.outgoing[place], node.incoming
            if sent is None:
                continue  # autograd's way to say that there is nothing
            if came is None or not math.isfinite(came):
                return None
            if sent != 0:
                summed_away = True
                continue
            if came != 0:
                found.add(Death(consumer, place))
                continue
            further = self._fates[consumer]
            if further is None:
                return None
            found |= further
        if summed_away:
            # `x + (x.round() - x)`: what comes past the flat operation comes twice, and cancels.
            found = {death for death in found if kind_of(self.nodes[death.at]) in STEPS}
        # None too for zeros that nobody sent: the pass itself started with them.
        return frozenset(found) or None

    def factor(self, death: Death) -> int | None:
        """The operation (or leaf) whose values the lost gradient was multiplied with."""
        node = self.nodes[death.at]
        place = FACTORS.get(kind_of(node), {}).get(death.place)
        if place is None or place >= len(node.feeds) or node.feeds[place] < 0:
            return None
        return node.feeds[place]

    def zero_because(self, index: int, depth: int = _MAX_DEPTH) -> frozenset[int] | None:
        """The all-zero leaves by which a result is all zero; None if it is not, or for others."""
        if index not in self._zeros:
            self._zeros[index] = self._find_zero(index, depth - 1) if depth else None
        return self._zeros[index]

    def _find_zero(self, index: int, depth: int) -> frozenset[int] | None:
        node, kind = self.nodes[index], kind_of(self.nodes[index])
        if node.leaf is not None:
            return frozenset([node.leaf]) if is_zero(self.output(index)) else None
        if kind in _ZERO_IF_ALL:
            alternatives: tuple[tuple[int, ...], ...] = (tuple(range(len(node.feeds))),)
        else:
            alternatives = _ZERO_IF.get(kind, ())
        found: set[int] = set()
        for places in alternatives:
            reasons = [self._zero_operand(node, kind, place, depth) for place in places]
            if reasons and None not in reasons:
                found.update(*(reason for reason in reasons if reason is not None))
        return frozenset(found) or None

    def _zero_operand(
        self, node: TraceNode, kind: str, place: int, depth: int
    ) -> frozenset[int] | None:
        fed = node.feeds[place] if place < len(node.feeds) else -1
        if fed >= 0:
            return self.zero_because(fed, depth)
        return frozenset() if (kind, place) in _OPTIONAL else None

    # --- where gradient stops being finite ----------------------------------------------------

    def poisoned(self) -> list[int]:
        """Operations that got a finite gradient and sent on one that is not, from the loss on."""
        return [
            index
            for index, node in enumerate(self.nodes)
            if node.incoming is not None
            and math.isfinite(node.incoming)
            and any(sent is not None and not math.isfinite(sent) for sent in node.outgoing)
        ]
