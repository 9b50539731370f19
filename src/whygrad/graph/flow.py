"""The flow graph: who feeds whom, what carries gradient, and where gradient cannot pass."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal, NamedTuple

from whygrad.graph.bodies import FunctionBodies
from whygrad.record.events import (
    GRAD_ON,
    INFERENCE_UNSEEN,
    INSIDE_FUNCTION,
    Event,
    Recording,
    Source,
)
from whygrad.record.ops import (
    COMPILED,
    DETACHING,
    EXITS,
    GRADIENT,
    LIKE_ANOTHER,
    NEVER_DIFFERENTIABLE,
    REBUILDING,
)

BlockKind = Literal[
    "detach",
    "switch",
    "torch-switch",
    "exit",
    "rebuilt",
    "compiled",
    "not-differentiable",
    "gradient",
]

# What crossing a block costs when paths are compared. Where several cuts each explain a missing
# gradient alone, the cheapest is named first: an explicit detach is more often the mistake than
# a block that was put under no_grad, and a mask or an index is rarely meant to carry gradient.
COST: dict[BlockKind, float] = {
    "detach": 1.0,
    "rebuilt": 1.0,
    "exit": 1.05,
    "switch": 1.1,
    "torch-switch": 1.15,
    "compiled": 1.15,
    "not-differentiable": 1.2,
    "gradient": 1.5,
}
CONTROL_EDGE = 0.3  # an integer or boolean tensor that only steers what others compute
INFERRED_EDGE = 0.2
SMUGGLED_EDGE = 2.0  # a value kept from inside a checkpoint, past its output: no history
STEP = 1e-6


class Block(NamedTuple):
    """Why gradient cannot pass a node. Nodes under one switch share one key: they are one cut."""

    kind: BlockKind
    key: tuple[Any, ...]
    node: int
    inside_function: bool = False  # in a custom Function's forward: a cut only if it recomputes


class FlowGraph:
    """A reading of a recording. Links found in the source are added with `link`."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.links: dict[int, list[int]] = {}  # return -> exits, inferred from the source
        self._events: dict[int, Event | None] = {}
        self._blocks: dict[int, Block | None] = {}

    def event(self, node: int) -> Event | None:
        if node not in self._events:
            self._events[node] = self.recording.event(node)
        return self._events[node]

    def source(self, node: int) -> Source | None:
        return self.recording.sources.get(node)

    def link(self, node: int, exits: Iterable[int]) -> None:
        """Values that left at `exits` came back at `node` (or into the source `node`)."""
        known = self.links.setdefault(node, [])
        known += [exit_node for exit_node in exits if exit_node not in known]
        self._blocks.pop(node, None)

    def inputs(self, node: int) -> tuple[int, ...]:
        """The nodes whose values flow into this one."""
        event = self.event(node)
        if event is not None:
            found = event.inputs[:1] if event.op in LIKE_ANOTHER else event.inputs
        else:
            source = self.source(node)
            found = () if source is None or source.origin is None else (source.origin,)
        extra = self.links.get(node)
        return (*found, *extra) if extra else found

    def live(self, node: int) -> bool:
        """Whether the node's output requires grad."""
        event = self.event(node)
        if event is not None:
            return event.live
        source = self.source(node)
        return source is not None and source.requires_grad

    def trainable_leaf(self, node: int) -> bool:
        """A tensor that asks for its own gradient: a parameter, or randn(requires_grad=True)."""
        event = self.event(node)
        if event is not None:
            return event.live and not event.inputs
        source = self.source(node)
        return source is not None and source.requires_grad

    def is_exit(self, node: int) -> bool:
        event = self.event(node)
        return event is not None and event.op in EXITS

    def floating(self, node: int) -> bool:
        """Whether the numbers could carry gradient at all; unknown counts as yes."""
        if self.is_exit(node):
            return True
        event = self.event(node)
        dtype = event.dtype if event is not None else getattr(self.source(node), "dtype", None)
        return bool(getattr(dtype, "is_floating_point", True) or getattr(dtype, "is_complex", True))

    def block(self, node: int) -> Block | None:
        """Why gradient could not pass from this node's output to its inputs, if it could not."""
        if node not in self._blocks:
            self._blocks[node] = self._find_block(node)
        return self._blocks[node]

    def _find_block(self, node: int) -> Block | None:
        event = self.event(node)
        if event is None:
            source = self.source(node)
            if source is not None and source.origin is not None and source.made_by:
                return Block("rebuilt", ("rebuilt", source.stack), node)
            return None
        if event.live or not (event.inputs or node in self.links):
            return None
        if event.op in ("grad", GRADIENT):
            return Block("gradient", ("gradient", event.site), node)
        if self._inside_function(event):
            found = self._own_block(node, event)
            return None if found is None else found._replace(inside_function=True)
        return self._switch_block(node, event) or self._own_block(node, event)

    def _inside_function(self, event: Event) -> bool:
        if event.mode > 0:
            return self._bodies.hold(event.stack)
        return event.mode == INSIDE_FUNCTION

    @cached_property
    def _bodies(self) -> FunctionBodies:
        return FunctionBodies(self.recording)

    def is_smuggled(self, feeder: int, node: int) -> bool:
        """Whether a value left a checkpoint or Function in another way than as its output."""
        inside, outside = self.event(feeder), self.event(node)
        if inside is None or outside is None or inside.live or outside.live:
            return False
        return inside.mode != GRAD_ON == outside.mode and self.block(feeder) is None

    def _switch_block(self, node: int, event: Event) -> Block | None:
        """Gradients were off, whatever the operation is."""
        if event.op in EXITS:
            return None
        if event.mode == INFERENCE_UNSEEN:
            return Block("switch", ("switch", event.mode, event.site), node)
        if event.mode > 0:
            switch = self.recording.switches[event.mode]
            if not switch.inside_torch:
                # One place in the source is one cut, however often and from where it is entered.
                return Block("switch", ("switch", switch.decorated or switch.site), node)
            if switch.site == event.site and not switch.checkpoint:
                return Block("torch-switch", ("torch-switch", event.site), node)
            # else torch runs the program's own code with gradients off: checkpoint()
        return None

    def _own_block(self, node: int, event: Event) -> Block | None:
        """The operation itself lets no gradient pass."""
        if event.op in EXITS:
            return Block("exit", ("exit", event.site, event.op), node)
        if event.op in DETACHING:
            return Block("detach", ("detach", event.site), node)
        if event.op in REBUILDING:
            if all(self.is_exit(i) for i in self.inputs(node)):
                return None  # the cut is where the values left
            return Block("rebuilt", ("rebuilt", event.site), node)
        tensors = [i for i in self.inputs(node) if not self.is_exit(i)]
        if event.op == COMPILED:
            lost = event.mode == GRAD_ON and any(self._live_value(i) for i in tensors)
            return Block("compiled", ("compiled", event.site), node) if lost else None
        if self.floating(node):
            lost = event.mode == GRAD_ON and any(self._live_value(i) for i in tensors)
            without_derivative = lost or event.op in NEVER_DIFFERENTIABLE
        else:
            without_derivative = any(self.floating(i) for i in tensors)
        if without_derivative:
            return Block("not-differentiable", ("op", event.site, event.op), node)
        return None

    def _live_value(self, node: int) -> bool:
        return self.live(node) and self.floating(node)

    def ancestors(self, roots: Iterable[int]) -> set[int]:
        """Every node whose values reach the roots, cut or not."""
        seen = set(roots)
        waiting = list(seen)
        while waiting:
            for node in self.inputs(waiting.pop()):
                if node not in seen:
                    seen.add(node)
                    waiting.append(node)
        return seen
