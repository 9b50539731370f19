"""Watches over training: the first steps of each optimizer closely, later ones at little cost.

Closely means: the ledger is kept, gradients are looked at before each step and parameters after
it, and the first backward pass is followed through autograd's graph. If something is off, so are
the next ones.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from whygrad.record import census, looks
from whygrad.record.accounts import Sizes, Trace
from whygrad.record.events import ParameterInfo
from whygrad.record.ledger import Held, Ledger, parameters_of
from whygrad.record.looks import Truth
from whygrad.record.probe import Probe, Walk, aftermath
from whygrad.record.recorder import Recorder
from whygrad.record.torch_api import alive, may_compute

CLOSE_STEPS = 3  # of each optimizer
_MAX_REOPENED = 8  # times that new parameters make us look closely again
_MAX_PROBES = 12  # passes followed because something was off
_MAX_ASKED = 16
_MAX_TRACES = 6
_PASSES_WITHOUT_STEP = (4, 16, 64)
_PASSES_WITHOUT_OPTIMIZER = 64
_LOOK_EVERY = 16  # steps, where a look has to wait for a device
_MAX_SIZES = 64
_MAX_TRUTHS = 100_000


class _Pass(threading.local):
    """The backward pass that a thread is in: others may be in passes of their own.

    Hooks must be taken away by the thread that put them in place. While autograd runs them,
    those of another thread are not to be touched: torch does not hold on to them.
    """

    def __init__(self) -> None:
        self.loss: float | None = None
        self.leaves: list[Any] = []
        self.probe: Probe | None = None
        self.only_if_raised = False  # else what it saw is of no interest
        self.snapshots: list[tuple[Any, Truth, Any]] = []  # of the step that follows it


class Health:
    """What gradients and parameters look like, and when somebody should be told."""

    def __init__(self, recorder: Recorder, watch_steps: frozenset[int] = frozenset()) -> None:
        self.recorder = recorder
        self.watch_steps = watch_steps
        self.ledger = Ledger(recorder)
        self.truths: dict[int, Truth] = {}
        self.traces: deque[Trace] = deque(maxlen=_MAX_TRACES)
        self.failed: Trace | None = None  # of a pass that raised
        self.sizes: deque[Sizes] = deque(maxlen=_MAX_SIZES)
        self.census: list[ParameterInfo] = []
        self.ask: Callable[[bool], None] = lambda final: None
        self.passes = self._number = 0
        self._until: dict[int, int] = {}  # optimizer's number -> last closely watched step
        self.parameters_made = recorder.parameters_made  # when they were last looked for
        self._reopened = self._asked = self._probed = 0
        self._off: set[int] = set()  # parameters with a gradient of zeros, or not finite
        self.told_non_finite = False
        self._pass = _Pass()
        self._step = 0  # where one with a closure began

    # --- backward passes ----------------------------------------------------------------------

    def before_backward(self, roots: list[Any]) -> None:
        """A backward() is about to run."""
        self.passes += 1
        close = self.ledger.active
        named = self.recorder.step in self.watch_steps
        self._pass.loss = self._value(roots, close or named)
        diverged = self._pass.loss is not None and not math.isfinite(self._pass.loss)
        follow = named or self._may_follow(diverged)
        # Anomaly mode looks at every gradient anyway, and tells less.
        anomaly = torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()
        if not (close or follow or anomaly):
            return
        walk = Walk(roots)
        self._pass.leaves = [tensor for _, tensor in walk.leaves]
        if close:
            self.ledger.before_pass(self._pass.leaves)
        whole = named or diverged or self._concerns(walk)
        # The first pass in any case, since a NaN of the first step is everywhere in the second.
        usual = follow and (whole or self.passes == 1)
        if walk.complete and (usual or anomaly):
            self._follow(walk, whole)
            self._pass.only_if_raised = not usual

    def _value(self, roots: list[Any], close: bool) -> float | None:
        """The loss, where a look at it has not to wait for a device."""
        loss = roots[0] if len(roots) == 1 and type(roots[0]) is torch.Tensor else None
        if loss is None or loss.numel() != 1 or loss.is_complex() or not may_compute():
            return None
        return float(loss.item()) if close or loss.device.type == "cpu" else None

    def _may_follow(self, diverged: bool) -> bool:
        if self._probed >= _MAX_PROBES or self.told_non_finite:
            return False
        return diverged or bool(self._off) or self.passes == 1

    def _concerns(self, walk: Walk) -> bool:
        """Whether something that was off takes part in a pass."""
        return any(self.recorder.node_of(tensor) in self._off for _, tensor in walk.leaves)

    def _follow(self, walk: Walk, whole: bool) -> None:
        self._probed += 1
        probe = self._pass.probe = Probe(self.recorder, walk, whole)
        if whole:
            probe.look_at_values()
        probe.install()

    def after_backward(self, went_through: bool) -> None:
        """It has ended, one way or another."""
        if self._pass.probe is not None:
            self._pass.probe.finish()
        if not went_through:
            if self._pass.probe is not None:
                self.failed = self._pass.probe.trace(self._number + 1, self.recorder.step)
            self._pass.probe, self._pass.leaves = None, []

    def went_back(self, number: int, roots: tuple[int, ...], stack: int) -> None:
        """It went through."""
        self._number = number
        probe, self._pass.probe = self._pass.probe, None
        leaves, self._pass.leaves = self._pass.leaves, []
        if probe is not None and not self._pass.only_if_raised:
            self.traces.append(probe.trace(number, self.recorder.step))
        if self._pass.loss is not None:
            self.sizes.append(Sizes(self.recorder.step, self._pass.loss, None))
        if not self.ledger.active:
            return
        self.ledger.went_back(number, roots, stack, leaves)
        known = self.ledger.known
        if self.passes in _PASSES_WITHOUT_STEP and known and not any(h.steps for h in known):
            self._look(None, close=True)
            self._ask()
        if self.passes > _PASSES_WITHOUT_OPTIMIZER and not self.ledger.known:
            self.ledger.stop()

    # --- steps --------------------------------------------------------------------------------

    def before_step(
        self, optimizer: Any, stack: int, frame: FrameType, closure: bool = False
    ) -> None:
        """An optimizer is about to step; with a closure, backward passes are part of it."""
        ledger = self.ledger
        held = ledger.made(optimizer, frame)
        if held is None:
            return
        held.steps += 1
        if self.recorder.parameters_made != self.parameters_made or self.recorder.thawed:
            self._reopen()
        close = held.steps <= self._until.get(held.number, CLOSE_STEPS)
        if not (close or ledger.active or self._is_time(held, optimizer)):
            return
        if close and ledger.active:
            self._pass.snapshots = [
                (weakref.ref(tensor), truth, before)
                for tensor in parameters_of(optimizer)
                if not (truth := self._truth(tensor)[1]).moved
                and (before := looks.snapshot(tensor)) is not None
            ]
        ledger.in_closure = closure
        if closure:
            self._step = stack
        else:
            self._use(optimizer, stack, close)

    def _use(self, optimizer: Any, stack: int, close: bool) -> None:
        """A step uses the gradients that are there now."""
        ledger = self.ledger
        act = ledger.stepping(optimizer, stack) if ledger.active else None
        sizes = self._look(optimizer, close) if close or self._off or act is None else {}
        if act is not None:
            act.zeros = sum(sizes.get(id(t)) == 0 for t in parameters_of(optimizer))

    def _reopen(self) -> None:
        """New parameters were made, or old ones thawed: perhaps no optimizer knows of them."""
        made = self.recorder.parameters_made != self.parameters_made
        thawed, self.recorder.thawed = self.recorder.thawed, set()
        if not made and thawed <= self.ledger.held_nodes:
            return
        self.parameters_made = self.recorder.parameters_made
        if self._reopened >= _MAX_REOPENED or not any(h.steps > 1 for h in self.ledger.known):
            return
        self._reopened += 1
        self.ledger.resume()
        for held in self.ledger.known:
            if held.steps > self._until.get(held.number, CLOSE_STEPS):
                self._until[held.number] = held.steps - 1 + CLOSE_STEPS

    def _is_time(self, held: Held, optimizer: Any) -> bool:
        """Whether a step is looked at that is not watched closely."""
        if self._off or self.recorder.step in self.watch_steps:
            return True
        if not held.steps & (held.steps - 1) or not held.steps % _LOOK_EVERY:
            return True
        return self._sentinel(optimizer)

    def _sentinel(self, optimizer: Any) -> bool:
        """Whether the first gradient, which all others led to, is not finite.

        Not asked where the answer would have to wait for a device.
        """
        for tensor in parameters_of(optimizer):
            if tensor.grad is not None:
                return tensor.device.type == "cpu" and not looks.seems_finite(tensor.grad)
        return False

    @property
    def is_close(self) -> bool:
        """Whether an optimizer is still, or again, in its closely watched steps."""
        return any(
            0 < held.steps < self._until.get(held.number, CLOSE_STEPS)
            for held in self.ledger.known
            if held.ref() is not None
        )

    def noticed(self, optimizer: Any, finite_until: int) -> None:
        """A gradient that is not finite was seen while nothing was recorded."""
        if not self.told_non_finite:
            self.sizes.append(Sizes(finite_until, None, None, finite=True))
            self._look(optimizer, close=False)
            self.told_non_finite = True
            self._ask()

    def _look(self, optimizer: Any, close: bool) -> dict[int, float]:
        """Look at the gradients that the step will use, and at those that no step uses."""
        tensors = {id(tensor): tensor for tensor in parameters_of(optimizer)}
        if close:
            others = [] if optimizer is None else list(self.ledger.optimizers)
            held = {id(t) for other in others for t in parameters_of(other)}
            for leaf in list(self.ledger.leaves.values()):
                tensor = alive(leaf.ref)
                if tensor is not None and id(tensor) not in held:
                    tensors[id(tensor)] = tensor
        having = [t for t in tensors.values() if t.is_leaf and t.grad is not None]
        if not having:
            return {}
        found = zip(having, looks.sizes_of([tensor.grad for tensor in having]), strict=True)
        seen = [(tensor, size) for tensor, size in found if size is not None]
        sizes = [size for _, size in seen]
        if not sizes:
            return {}
        for tensor, size in seen:
            node, truth = self._truth(tensor)
            truth.saw(size)
            if truth.state == "flows":
                self._off.discard(node)
            elif close or truth.state == "non-finite":
                self._off.add(node)
        finite = all(math.isfinite(size) for size in sizes)
        self._note_size(max(sizes) if finite else math.inf)
        if not finite and not self.told_non_finite:
            followed = self.traces and self.traces[-1].number == self._number
            if not followed:
                trace = aftermath(self.recorder, having, self._number, self.recorder.step)
                self.traces.append(trace)
        return {id(tensor): size for tensor, size in seen}

    def _note_size(self, largest: float) -> None:
        step = self.recorder.step
        if self.sizes and self.sizes[-1].step == step:
            self.sizes[-1].gradient = largest
        else:
            self.sizes.append(Sizes(step, None, largest))

    def _truth(self, tensor: Any) -> tuple[int, Truth]:
        node = self.recorder.node_of(tensor)
        if node is None:
            node = self.recorder.source(tensor, None)
        truth = self.truths.get(node)
        if truth is None:
            truth = Truth()
            if len(self.truths) < _MAX_TRUTHS:
                self.truths[node] = truth
        return node, truth

    def after_step(self, optimizer: Any) -> None:
        """It has stepped."""
        held = self.ledger.optimizers.get(optimizer)
        if held is None:
            return
        last = self._until.get(held.number, CLOSE_STEPS)
        if self.ledger.in_closure:
            self.ledger.in_closure = False
            self._use(optimizer, self._step, held.steps <= last)
        if held.steps > last and not self._off and not self.ledger.active:
            return
        if self.ledger.active:
            self.ledger.stepped(optimizer)
            self._compare()
        diverged = self._diverged()
        if held.steps == last or (diverged and not self.told_non_finite):
            self.told_non_finite = self.told_non_finite or diverged
            self._ask()
        if self.ledger.active and all(
            h.steps >= self._until.get(h.number, CLOSE_STEPS)
            for h in self.ledger.known
            if h.ref() is not None
        ):
            self.ledger.stop()

    def _diverged(self) -> bool:
        latest = self.sizes[-1].gradient if self.sizes else None
        return latest is not None and not math.isfinite(latest)

    def _compare(self) -> None:
        """Which parameters has the step changed?"""
        snapshots, self._pass.snapshots = self._pass.snapshots, []
        for ref, truth, before in snapshots:
            tensor = alive(ref)
            if tensor is not None:
                truth.moved = looks.has_changed(tensor, before)

    # --- telling ------------------------------------------------------------------------------

    def take_census(self) -> list[ParameterInfo]:
        """Every parameter by name, with what is known of its gradient."""
        numbers = {id(o): held.number for o, held in list(self.ledger.optimizers.items())}
        self.census = census.take(self.recorder, numbers)
        for info in self.census:
            truth = self.truths.get(info.node)
            if not info.requires_grad:
                info.gradient = "frozen"
            elif truth is not None:
                info.gradient, info.norm, info.moved = truth.state, truth.norm, truth.moved
                info.looks = truth.looks
        return self.census

    def _ask(self) -> None:
        if self._asked < _MAX_ASKED:
            self._asked += 1
            self.ask(False)

    @property
    def flowing(self) -> set[int]:
        """Parameters whose gradient was finite and not zero at some look."""
        return {node for node, truth in self.truths.items() if truth.flowed}
