"""Switches recording on and off: the mode in each thread, the hooks and the patches."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from whygrad.record import collectives, patches, step_patches, torch_api
from whygrad.record.asker import Asker
from whygrad.record.events import INSIDE_FUNCTION, Question
from whygrad.record.mode import WatchingMode
from whygrad.record.recorder import Recorder
from whygrad.record.regions import Regions
from whygrad.record.tempo import FULL_STEPS, Tempo

_OPTIMIZER_WORK = ("Optimizer.step#", "Optimizer.zero_grad#")  # names that torch gives it


class Watcher:
    """Everything that must be put in place to watch, and taken away after."""

    def __init__(
        self,
        answer: Callable[[Question], None],
        max_operations: int,
        watch_steps: frozenset[int] = frozenset(),
        eager: bool = False,
    ) -> None:
        self.eager = eager
        self.recorder = Recorder(max_operations)
        self.asker = Asker(self.recorder, answer, watch_steps)
        self._thread = threading.local()
        self._patches = patches.Patches()
        self._step_patches = patches.Patches()  # not in place while resting
        self._ledger_patches = patches.Patches()  # in place only while the ledger is kept
        self.tempo = Tempo(watch_steps)
        self.resting = False
        self._mode: WatchingMode | None = None
        self._modes: weakref.WeakSet[WatchingMode] = weakref.WeakSet()
        self._process = os.getpid()

    def start(self) -> None:
        patches.install(self._patches, self.recorder, self.current_mode, self.asker.forget)
        patches.watch_threads(self._patches, self._enter_thread, self._leave_thread)
        makers = self.asker.complaints.makers
        step_patches.install(self._patches, self.recorder, self.asker.health.ledger, makers)
        self.asker.complaints.hooks.install(self._patches)
        self.asker.complaints.recomputations.install(self._patches)
        self.asker.complaints.recomputations.resting = lambda: self.resting
        self.asker.complaints.gradients_off = self._gradients_off
        patches.watch_warnings(self._patches, self.recorder, self.asker.on_warning)
        self._watch_steps()
        self._keep_ledger()
        self.asker.health.ledger.switched = self._keep_ledger
        self._patches.add_hook(register_optimizer_step_post_hook(self._after_step))
        for handle in step_patches.hooks(self.recorder, self.asker.health.ledger):
            self._patches.add_hook(handle)
        collectives.install(self._patches, self.recorder, self.current_mode)
        self._watch_compiler()
        _watching.add(self)
        self._mode = self._enter()

    def _watch_steps(self) -> None:
        patches.around_record_function(self._step_patches, self._entering, self._resume)
        self._step_patches.add_hook(register_optimizer_step_pre_hook(self._before_step))

    def _watch_compiler(self) -> None:
        if self.eager:
            patches.run_eagerly(self._patches, self.recorder)
            return
        regions = Regions(
            self.recorder,
            self.current_mode,
            lambda: (self._patches, self._step_patches, self._ledger_patches),
            self.asker.training_state,
            self.asker.trained_out_of_sight,
        )
        regions.install(self._patches)

    def _keep_ledger(self) -> None:
        """The ledger is opened or closed."""
        ledger = self.asker.health.ledger
        self._ledger_patches.undo()
        if ledger.active:
            step_patches.watch(self._ledger_patches, self.recorder, ledger)

    def stop(self) -> None:
        """Take everything away again; harmless when called twice."""
        if self._mode is None:
            return
        mode, self._mode = self._mode, None
        _watching.discard(self)
        torch_api.remove_mode(mode)
        mode.paused = True  # torch puts it back if this happens inside a call
        self._thread.mode = None
        for other in list(self._modes):
            other.paused = True  # of threads that live on
        self.asker.health.ledger.switched = lambda: None
        self._ledger_patches.undo()
        self._step_patches.undo()
        self._patches.undo()

    def _gradients_off(self) -> bool:
        """Whether the program, and not torch for itself, keeps gradients off right now."""
        mode = self.current_mode()
        return mode is not None and mode.switches.off_because() != INSIDE_FUNCTION

    def current_mode(self) -> WatchingMode | None:
        """The mode of this thread, if it is watched."""
        return getattr(self._thread, "mode", None)

    def _enter(self) -> WatchingMode:
        asker = self.asker
        mode = WatchingMode(
            self.recorder,
            asker.on_failure,
            asker.before_backward,
            asker.after_backward,
            asker.on_backward,
        )
        mode.__enter__()  # type: ignore[no-untyped-call]
        self._thread.mode = mode
        self._modes.add(mode)
        return mode

    def _enter_thread(self, thread: threading.Thread) -> None:
        try:
            target = getattr(thread, "_target", None)
            module = str(getattr(target, "__module__", None) or type(thread).__module__)
            watching = self._mode is not None and os.getpid() == self._process
            if watching and module.partition(".")[0] != "torch":
                self.recorder.lock = self.recorder.lock or threading.RLock()
                self._enter()
        except Exception as fault:
            self.recorder.fault(fault)

    def _leave_thread(self) -> None:
        mode = self.current_mode()
        if mode is not None:
            torch_api.remove_mode(mode)
            self._thread.mode = None

    # --- optimizer steps: one event "these parameters are about to move", and no other ---------

    def _entering(self, name: str) -> None:
        """An optimizer begins to step or to clear gradients: none of its calls is of interest."""
        mode = self.current_mode()
        if mode is None or mode.paused or not isinstance(name, str):
            return
        if name.startswith(_OPTIMIZER_WORK):
            self._pause(mode)

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.current_mode() is None:
            return
        try:
            closure = any(callable(argument) for argument in (*args[1:], *kwargs.values()))
            if closure:
                self._resume()  # the program's own forward and backward run inside the step
            with torch_api.without_torch_function():
                self.asker.before_step(optimizer, sys._getframe(1), closure)
        except Exception as fault:
            self.recorder.fault(fault)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder, tempo = self.recorder, self.tempo
        step = recorder.step
        recorder.step = step + 1
        quiet = self.resting and step % tempo.look_every and step < tempo.wake_after
        if quiet and recorder.parameters_made == self.asker.health.parameters_made:
            return
        recorder.step = step
        self._after_watched_step(optimizer)
        recorder.step = step + 1

    def _after_watched_step(self, optimizer: Any) -> None:
        mode, recorder = self.current_mode(), self.recorder
        if mode is None:
            return
        try:
            with torch_api.without_torch_function():
                if not self.resting:
                    self.asker.after_step(optimizer)
                    if recorder.step >= FULL_STEPS and self._may_rest():
                        self._rest(mode, optimizer)
                elif recorder.step >= self.tempo.wake_after or self._is_off(optimizer):
                    self._wake(mode)
        except Exception as fault:
            recorder.fault(fault)

    # --- resting: the program runs almost alone -----------------------------------------------

    def _may_rest(self) -> bool:
        if not self.tempo.may_rest(self.recorder.step) or len(self._modes) > 1:
            return False
        return not (self.asker.health.is_close or self.asker.keepers.growing)

    def _rest(self, mode: WatchingMode, optimizer: Any) -> None:
        self.resting = mode.paused = True
        torch_api.remove_mode(mode)
        self._step_patches.undo()
        self.tempo.rest(optimizer, self.recorder.step)

    def _wake(self, mode: WatchingMode) -> None:
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return  # by a switch that nobody has seen
        mode.switches.forget()
        self._watch_steps()
        self.resting = mode.paused = False
        self._thread.popped = False
        torch_api.push_mode(mode)

    def _is_off(self, optimizer: Any) -> bool:
        if self.recorder.parameters_made != self.asker.health.parameters_made:
            return True
        if not self.tempo.is_off(self.recorder.step):
            return False
        self.asker.health.noticed(optimizer, self.tempo.finite_until)
        return not self.asker.health.told_non_finite

    def _pause(self, mode: WatchingMode) -> None:
        self._thread.popped = torch_api.pop_mode_if_on_top(mode)
        if self._thread.popped:
            self._thread.beneath = torch_api.top_mode()
        mode.paused = True

    def _resume(self) -> None:
        """Watch again after a step, however it ended."""
        mode = self.current_mode()
        if mode is None or not mode.paused or self._mode is None or self.resting:
            return
        if getattr(self._thread, "popped", False):
            if torch_api.top_mode() is not self._thread.beneath:
                return  # inside a mode that the step itself entered, which must be left first
            self._thread.popped, self._thread.beneath = False, None
            torch_api.push_mode(mode)
        mode.paused = False

    def switch_off_for_good(self) -> None:
        """In a forked child: the parent's record is not this process's to write."""
        mode = self.current_mode()
        if mode is not None:
            mode.paused = True
            torch_api.remove_mode(mode)
            self._thread.mode = None


_watching: weakref.WeakSet[Watcher] = weakref.WeakSet()


def _forget_in_child() -> None:
    for watcher in list(_watching):
        watcher.switch_off_for_good()


if hasattr(os, "register_at_fork"):  # once: it cannot be taken back
    os.register_at_fork(after_in_child=_forget_in_child)


def torch_version() -> str:
    return str(torch.__version__)
