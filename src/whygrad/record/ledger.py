"""Keeps account of gradients: which pass made them, who cleared them, which step used them.

Looked at on occasion only (a backward pass, a clearing, a step), and only while it is active:
in the closely watched steps. Nothing is hung on tensors; parameters are held weakly.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from whygrad.record.accounts import (
    Account,
    Act,
    ClearUse,
    ClipSight,
    ClipUse,
    OptimizerUse,
    PassUse,
    Registration,
    ScalerUse,
    ScheduleUse,
    StepUse,
)
from whygrad.record.events import Write
from whygrad.record.frames import TORCH
from whygrad.record.looks import is_all_zero
from whygrad.record.recorder import Recorder
from whygrad.record.torch_api import alive
from whygrad.record.writes import extent, is_leaf, version

_MAX_ACTS = 1_000
_MAX_LEAVES = 50_000
_MAX_REGISTRATIONS = 1_000
_MAX_OPTIMIZERS = 256
_RECENT = 64  # calls of scalers
_MAX_REOPENING = 16  # optimizers for which the ledger is opened again


@dataclass(slots=True)
class Leaf:
    """A tensor that gradients are stored in."""

    ref: Any
    node: int
    passes: list[int] = field(default_factory=list)  # in its gradient, and used by no step yet
    used: list[int] = field(default_factory=list)  # in its gradient, and used by a step
    mark: tuple[int, int] = (0, -1)  # identity and version of the gradient when it was used


@dataclass(slots=True)
class Held:
    """An optimizer as the ledger knows it."""

    ref: Any
    number: int
    name: str
    stack: int
    born: int  # the number of the next event when it was made
    steps: int = 0
    cleared: int = 0
    nodes: frozenset[int] = frozenset()


class Ledger:
    """The acts of the closely watched steps, in order."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._open = True
        self.switched: Callable[[], None] = lambda: None  # called when that changes
        self.complete = True
        self.scaled = False
        self.laid_out: dict[int, int] = {}  # gradients with strides of their own -> assigned where
        self.scaling: deque[ScalerUse] = deque(maxlen=_RECENT)  # also when not active
        self.acts: list[Act] = []
        self.registrations: list[Registration] = []
        self.leaves: dict[int, Leaf] = {}  # by id of the tensor
        self.optimizers: weakref.WeakKeyDictionary[Any, Held] = weakref.WeakKeyDictionary()
        self.known: list[Held] = []  # all of them, also those that are gone
        self.touched: set[int] = set()  # parameters that some pass has given a gradient
        self.in_closure = False  # an optimizer is at work and runs passes of its own
        self.by_hand: list[StepUse] = []
        self._times: deque[int] = deque(maxlen=_MAX_ACTS)  # of the passes, in events
        self._passes: dict[int, PassUse] = {}
        self._pending: dict[int, set[int]] = {}  # pass -> leaves that hold its gradients unused

    # --- who takes part -----------------------------------------------------------------------

    def made(self, optimizer: Any, frame: FrameType | None) -> Held | None:
        """An optimizer was made, or is met for the first time."""
        held = self.optimizers.get(optimizer)
        if held is not None or len(self.known) >= _MAX_OPTIMIZERS:
            return held
        number, stack = len(self.known), self.recorder.frames.stack(frame)
        born = self.recorder.now
        held = Held(weakref.ref(optimizer), number, type(optimizer).__name__, stack, born)
        self.optimizers[optimizer] = held
        self.known.append(held)
        if number < _MAX_REOPENING:
            self.resume()
        return held

    def registered(self, name: str, value: Any, frame: FrameType) -> None:
        """A module got a parameter or a submodule, after an optimizer had been made."""
        if not self.known or len(self.registrations) >= _MAX_REGISTRATIONS:
            return
        tensors = [value] if isinstance(value, torch.Tensor) else _parameters(value)
        nodes = {node for t in tensors if (node := self.recorder.node_of(t)) is not None}
        if nodes:
            stack = self.recorder.frames.stack(frame)
            built = self._in_constructor(frame)
            self.registrations.append(Registration(stack, name, frozenset(nodes), built))

    def _in_constructor(self, frame: FrameType | None) -> bool:
        """Whether torch's code, or the program's nearest to it, is making an object."""
        while frame is not None:
            if frame.f_code.co_name == "__init__":
                return True
            if self.recorder.frames.kind(frame) < TORCH:
                return False
            frame = frame.f_back
        return False

    @property
    def active(self) -> bool:
        """Whether it is being kept; never beside another thread's backward pass."""
        return self._open and self.recorder.gate.is_clear()

    def leaf(self, tensor: Any) -> Leaf | None:
        known = self.leaves.get(id(tensor))
        if known is not None and known.ref() is tensor:
            return known
        if len(self.leaves) >= _MAX_LEAVES:
            self.leaves = {
                key: leaf for key, leaf in self.leaves.items() if alive(leaf.ref) is not None
            }
            if len(self.leaves) >= _MAX_LEAVES:
                return None
        node = self.recorder.node_of(tensor)
        if node is None:
            node = self.recorder.source(tensor, None)
        known = self.leaves[id(tensor)] = Leaf(self.recorder.tensors.refs[id(tensor)], node)
        return known

    def forget(self, tensor: Any) -> None:
        self.leaves.pop(id(tensor), None)

    # --- the acts -----------------------------------------------------------------------------

    def _add(self, act: Act) -> None:
        if len(self.acts) >= _MAX_ACTS:
            self.stop()
            return
        act.order = len(self.acts) + 1
        self.acts.append(act)

    def stop(self) -> None:
        """The closely watched steps are over."""
        self._open = False
        self.leaves.clear()
        self._pending.clear()
        self.switched()

    def resume(self) -> None:
        """Look closely again; what happened in between is not known."""
        if not self._open:
            self._open, self.complete = True, False
            self.acts.clear()
            self._passes.clear()
            self.switched()

    def before_pass(self, tensors: Iterable[Any]) -> None:
        """A backward() is about to add to gradients: have the old ones been used or cleared?"""
        if not self.known:
            self._updated_by_hand()
        cleared = []
        for tensor in tensors:
            leaf = self.leaves.get(id(tensor))
            if leaf is None or leaf.ref() is not tensor or not (leaf.passes or leaf.used):
                continue
            gradient = _gradient(tensor)
            if gradient is None:
                cleared.append(leaf)
                continue
            changed = leaf.mark != _mark(gradient)
            # A write through .data leaves no mark: what a step has used is looked at anyway.
            if (changed or leaf.used) and is_all_zero(gradient):
                cleared.append(leaf)
            elif changed and not leaf.passes:
                leaf.used.clear()  # changed by hand: no longer what the step had used
        self._clear_by_hand(cleared)

    def _updated_by_hand(self) -> None:
        """No optimizer steps: has the program itself used the gradients since the last pass?"""
        last = self._times[-1] if self._times else self.recorder.now
        into = self.recorder.writes.into
        stacks = {node: write.stack for node, write in into.items() if write.time >= last}
        leaves = [leaf for leaf in self.leaves.values() if leaf.node in stacks]
        fresh = {number for leaf in leaves for number in leaf.passes}
        if not fresh:
            return
        again = {number for leaf in leaves for number in leaf.used} - fresh
        act = StepUse(-1, stacks[leaves[0].node], tuple(sorted(fresh)), tuple(sorted(again)), 0, 0)
        act.stale = frozenset(leaf.node for leaf in leaves if leaf.used)
        self.by_hand.append(act)
        for leaf in leaves:
            leaf.used += leaf.passes
            leaf.passes.clear()

    def went_back(
        self, number: int, roots: tuple[int, ...], stack: int, leaves: Iterable[Any]
    ) -> None:
        """A backward() has added to the gradients of these tensors."""
        self._times.append(self.recorder.now)
        touched = []
        for tensor in leaves:
            leaf = self.leaf(tensor)
            if leaf is not None and _gradient(tensor) is not None:
                leaf.passes.append(number)
                leaf.mark = _mark(tensor.grad)
                touched.append(leaf.node)
        # In a closure, an optimizer uses each pass at once.
        act = PassUse(number, stack, roots, frozenset(touched), read=self.in_closure)
        if len(self.touched) < _MAX_LEAVES:
            self.touched.update(touched)
        self._passes[number] = act
        self._pending[number] = set(touched)
        self._add(act)

    def cleared(self, owner: Any, tensors: Iterable[Any], call: str, frame: FrameType) -> None:
        """zero_grad() was called."""
        held = self.optimizers.get(owner) if call == "optimizer.zero_grad" else None
        if held is not None:
            held.cleared += 1
        stack = self.recorder.frames.stack(frame)
        act = ClearUse(stack, call, held.number if held is not None else -1)
        self._add(act)
        leaves = [leaf for t in tensors if (leaf := self.leaves.get(id(t))) is not None]
        self._clear([leaf for leaf in leaves if alive(leaf.ref) is not None], act)

    def assigned(self, tensor: Any, frame: FrameType) -> None:
        """The program has assigned to a gradient; None is the usual thing to assign."""
        if tensor.grad is not None and tensor.grad.stride() != tensor.stride():
            node = self.recorder.node_of(tensor)
            if node is not None and len(self.laid_out) < _MAX_ACTS:
                self.laid_out[node] = self.recorder.frames.stack(frame)
        leaf = self.leaves.get(id(tensor))
        if leaf is None or leaf.ref() is not tensor or not (leaf.passes or leaf.used):
            return
        if tensor.grad is None:
            self._clear([leaf], self._by_hand_at(self.recorder.frames.stack(frame)))

    def _by_hand_at(self, stack: int) -> ClearUse:
        """One clearing, however many parameters a loop goes through."""
        last = self.acts[-1] if self.acts else None
        if isinstance(last, ClearUse) and not last.call and last.stack == stack:
            return last
        act = ClearUse(stack, "", -1)
        self._add(act)
        return act

    def _clear_by_hand(self, leaves: list[Leaf]) -> None:
        """Seen by its effect: perhaps the log of writes knows the line."""
        for leaf in leaves:
            gradient = _gradient(alive(leaf.ref))
            address = extent(gradient)[0] if gradient is not None else 0
            log = self.recorder.writes.log
            stacks = (write.stack for write in reversed(log) if write.address == address)
            self._clear([leaf], self._by_hand_at(next(stacks, 0) if address else 0))

    def _clear(self, leaves: list[Leaf], act: ClearUse) -> None:
        for leaf in leaves:
            for number in leaf.passes:
                waiting = self._pending.get(number)
                if waiting is None:
                    continue
                waiting.discard(leaf.node)
                made = self._passes.get(number)
                if not waiting and made is not None and not made.used_by:
                    made.lost, made.cleared_by = True, act.order
            leaf.passes.clear()
            leaf.used.clear()

    def read(self, tensor: Any) -> None:
        """The program looks at a gradient: a use of its own."""
        leaf = self.leaves.get(id(tensor))
        if leaf is not None:
            for number in (*leaf.passes, *leaf.used):
                if number in self._passes:
                    self._passes[number].read = True

    def stepping(self, optimizer: Any, stack: int) -> StepUse:
        """An optimizer uses the gradients of its parameters."""
        held = self.optimizers.get(optimizer)
        fresh: set[int] = set()
        again: set[int] = set()
        without = total = 0
        cleared, stale = [], []
        for tensor in parameters_of(optimizer):
            total += 1
            gradient, leaf = _gradient(tensor), self.leaf(tensor)
            if gradient is None:
                without += 1
                if leaf is not None and (leaf.passes or leaf.used):
                    cleared.append(leaf)
            elif leaf is not None:
                fresh.update(leaf.passes)
                again.update(leaf.used)
                if leaf.used:
                    stale.append(leaf.node)
        self._clear_by_hand(cleared)
        act = StepUse(
            optimizer=held.number if held is not None else -1,
            stack=stack,
            passes=tuple(sorted(fresh)),
            again=tuple(sorted(again - fresh)),
            without=without,
            of=total,
            stale=frozenset(stale),
        )
        self._add(act)
        for number in fresh:
            if number in self._passes:
                self._passes[number].used_by.append(act.order)
        return act

    def stepped(self, optimizer: Any) -> None:
        """The step is done: its gradients are used from now on."""
        held = self.optimizers.get(optimizer)
        if held is not None:
            held.nodes = self._nodes(optimizer)
        for tensor in parameters_of(optimizer):
            gradient, leaf = _gradient(tensor), self.leaves.get(id(tensor))
            if gradient is None or leaf is None:
                continue
            leaf.used += leaf.passes
            leaf.passes.clear()
            leaf.mark = _mark(gradient)

    def clipping(self, name: str, tensors: list[Any], frame: FrameType) -> None:
        """Gradients are about to be clipped."""
        sight: ClipSight = "none"
        nodes = set()
        for tensor in tensors:
            leaf = self.leaf(tensor)
            if leaf is None:
                continue
            nodes.add(leaf.node)
            gradient = _gradient(tensor)
            if gradient is None or sight == "fresh":
                continue
            if leaf.passes:
                sight = "fresh"
            elif leaf.used:
                sight = "used"
            elif sight == "none":
                sight = "zero" if is_all_zero(gradient) else "fresh"
        stack = self.recorder.frames.stack(frame)
        self._add(ClipUse(stack, name, sight, frozenset(nodes)))

    def clipped(self, tensors: list[Any]) -> None:
        """Clipping writes to gradients, but they are still the ones that a step has used."""
        for tensor in tensors:
            gradient, leaf = _gradient(tensor), self.leaves.get(id(tensor))
            if gradient is not None and leaf is not None and leaf.used and not leaf.passes:
                leaf.mark = _mark(gradient)

    def scheduled(self, name: str, optimizer: Any, frame: FrameType) -> None:
        """The program lets a learning-rate scheduler step."""
        held = self.optimizers.get(optimizer)
        if held is not None:
            stack = self.recorder.frames.stack(frame)
            self._add(ScheduleUse(stack, name, held.number, held.steps))

    def used_scaler(self, use: ScalerUse) -> None:
        """The program has called a gradient scaler."""
        self.scaling.append(use)
        if self.active:
            self._add(use)

    @property
    def held_nodes(self) -> set[int]:
        """The parameters that any optimizer holds, or has held."""
        for held in self.known:
            optimizer = held.ref()
            if optimizer is not None:
                held.nodes |= self._nodes(optimizer)
        return {node for held in self.known for node in held.nodes}

    # --- the account --------------------------------------------------------------------------

    def _nodes(self, optimizer: Any) -> frozenset[int]:
        known = (self.recorder.node_of(tensor) for tensor in parameters_of(optimizer))
        return frozenset(node for node in known if node is not None)

    @property
    def written(self) -> set[int]:
        """What the program itself has changed in place, parameters after their first pass only.

        Before it, they are only being initialised.
        """
        into = self.recorder.writes.into
        return {node for node, write in into.items() if self._is_update(write, node)}

    def _is_update(self, write: Write, node: int) -> bool:
        source = self.recorder.sources.get(node)
        born = source.born if source is not None else 0
        return any(born <= time <= write.time for time in self._times)

    def account(self, final: bool = False) -> Account:
        uses = []
        for held in self.known:
            optimizer = held.ref()
            if optimizer is not None:
                held.nodes = self._nodes(optimizer)
            uses.append(
                OptimizerUse(
                    number=held.number,
                    name=held.name,
                    stack=held.stack,
                    nodes=held.nodes,
                    steps=held.steps,
                    cleared=held.cleared,
                    alive=optimizer is not None,
                )
            )
        return Account(
            acts=list(self.acts),
            optimizers=uses,
            registrations=list(self.registrations),
            written=frozenset(self.written),
            scaled=self.scaled,
            laid_out=dict(self.laid_out),
            by_hand=list(self.by_hand),
            complete=self.complete,
            final=final,
        )


def parameters_of(optimizer: Any) -> list[Any]:
    """The tensors that an optimizer holds."""
    return [
        tensor
        for group in getattr(optimizer, "param_groups", ())
        for tensor in group.get("params", ())
    ]


def _parameters(module: Any) -> list[Any]:
    """A module's parameters, without running code of its own."""
    found, waiting, seen = [], [module], set()
    while waiting:
        current = waiting.pop()
        if id(current) in seen or current is None:
            continue
        seen.add(id(current))
        inside = getattr(current, "__dict__", {})
        found += [p for p in inside.get("_parameters", {}).values() if p is not None]
        waiting += inside.get("_modules", {}).values()
    return found


def _gradient(tensor: Any) -> Any:
    return tensor.grad if tensor is not None and is_leaf(tensor) else None


def _mark(gradient: Any) -> tuple[int, int]:
    return id(gradient), version(gradient)
