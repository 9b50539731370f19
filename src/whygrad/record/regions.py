"""Compiled regions run as they do without us: nothing of ours is in place while one runs.

Torch's compiler guards on the modes that are on and traces what it finds in torch's namespaces,
so a mode or a patch would change what it compiles. Every compiled function, however and whenever
it was made, tells torch when its region begins and ends. There we step aside and come back, and
take what the region gave into the record, with the history that autograd knows of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from whygrad.record import adoption, torch_api
from whygrad.record.events import GRAD_ON
from whygrad.record.mode import WatchingMode
from whygrad.record.ops import COMPILED
from whygrad.record.patches import CurrentMode, Patches, stand_in
from whygrad.record.recorder import Recorder

_MAX_RESULTS = 64  # tensors of one region's outcome
_MAX_DEPTH = 4
_MAX_PARAMETERS = 2000


@dataclass(slots=True)
class Region:
    """A compiled function that is running in this thread, the outermost one."""

    owner: int  # id of the frame that ends it, which lives that long
    mode: WatchingMode
    above: int | None  # modes of the program's own above ours; None if ours was not on
    training: Any  # the state of what is trained, when it began


class Regions:
    """Steps aside when a compiled region begins, and comes back when it ends."""

    def __init__(
        self,
        recorder: Recorder,
        current: CurrentMode,
        aside: Callable[[], Iterable[Patches]],
        training: Callable[[], Any],
        trained: Callable[[], None],
    ) -> None:
        self.recorder = recorder
        self.current = current
        self.aside = aside
        self.training = training
        self.trained = trained
        self._thread = threading.local()
        self._lock = threading.Lock()
        self._running = 0  # regions, in all threads
        self._stood_aside: list[Patches] = []

    def install(self, patches: Patches) -> None:
        """Torch's compiler is imported only if the program uses it."""
        installed: list[Any] = []

        def prepare(_: tuple[Any, ...] = ()) -> None:
            if not installed:
                installed.append(True)
                self._install(patches)

        compile_ = stand_in(self.recorder, torch.compile, before=prepare)
        patches.set_function(torch, "compile", compile_)
        if "torch._dynamo.eval_frame" in sys.modules:
            prepare()

    def _install(self, patches: Patches) -> None:
        frames = torch_api.compiler_frames()
        if frames is None:
            return
        switch: Callable[[Any], Any] = frames.set_eval_frame
        thread = self._thread

        def set_eval_frame(callback: Any) -> Any:
            # Off first and on last: torch would compile any function that we call in between.
            if callback is None:
                before = switch(None)
                region = getattr(thread, "region", None)
                if region is not None and region.owner == id(sys._getframe(1)):
                    self._leave(region, sys._getframe(1))
                return before
            if getattr(thread, "region", None) is None:
                self._enter(sys._getframe(1))
            return switch(callback)

        torch_api.never_compile(set_eval_frame)
        for name in ("set_eval_frame", "_maybe_set_eval_frame"):
            if vars(frames).get(name) is switch:
                patches.set(frames, name, set_eval_frame, stays=True)

    def _enter(self, frame: FrameType) -> None:
        try:
            mode = self.current()
            left = getattr(self._thread, "left", 0)
            if mode is None or left == id(frame) or torch_api.is_uncompiled(frame):
                return
            with torch_api.without_torch_function():
                training = self.training()
            self._thread.region = Region(id(frame), mode, torch_api.lift_mode(mode), training)
            with self._lock:
                self._running += 1
                if self._running == 1:
                    self._stood_aside = list(self.aside())
                    for patches in self._stood_aside:
                        patches.step_aside()
        except Exception as fault:
            self.recorder.fault(fault)

    def _leave(self, region: Region, frame: FrameType) -> None:
        self._thread.region, self._thread.left = None, region.owner
        try:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    for patches in self._stood_aside:
                        patches.come_back()
            if region.above is not None and self.current() is region.mode:
                torch_api.lower_mode(region.mode, region.above)
            if not region.mode.quiet and self.current() is region.mode:
                with torch_api.without_torch_function():
                    self._take_in(region, frame)
        except Exception as fault:
            self.recorder.fault(fault)
        self._thread.left = 0

    def _take_in(self, region: Region, frame: FrameType) -> None:
        """Give what came out of a region its place in the record."""
        if region.training != self.training():
            self.trained()
        recorder = self.recorder
        function, arguments, outcome = torch_api.compiled_call(frame)
        results: list[Any] = []
        _collect(outcome, results)
        unknown = [tensor for tensor in results if recorder.node_of(tensor) is None]
        # All of them before the first gets its event, or the second would seem to come from it.
        behind = [self._inputs(tensor, function, arguments, frame) for tensor in unknown]
        for tensor, inputs in zip(unknown, behind, strict=True):
            live = tensor.requires_grad and not tensor.is_leaf
            off = not live and not torch.is_grad_enabled()
            node = recorder.append(
                (
                    COMPILED,
                    recorder.frames.site(frame),
                    tuple(dict.fromkeys(inputs)),
                    live,
                    region.mode.switches.off_because() if off else GRAD_ON,
                    recorder.shape_of(tensor),
                    tensor.dtype,
                    torch_api.sequence_number(),
                    recorder.frames.stack(frame),
                    "",
                    False,
                )
            )
            if live:
                adoption.remember(recorder, tensor.grad_fn, node)
            recorder.tensors.put(tensor, node, tensor.requires_grad)

    def _inputs(self, tensor: Any, function: Any, arguments: Any, frame: FrameType) -> list[int]:
        """What a result was made of: by autograd's word, else all that went in."""
        if tensor.requires_grad and not tensor.is_leaf:
            return adoption.inputs_of(self.recorder, tensor.grad_fn)
        given: list[Any] = []
        _collect(arguments, given)
        if torch.is_grad_enabled():
            for value in torch_api.reached_by(function):
                if isinstance(value, torch.nn.Module):
                    parameters = [p for p in value.parameters() if p.requires_grad]
                    given += parameters[:_MAX_PARAMETERS]
                elif isinstance(value, torch.Tensor):
                    given.append(value)
        found: list[int] = []
        self.recorder.inputs_of(given, found, frame)
        return found


def _collect(value: Any, found: list[Any], depth: int = 0) -> None:
    """Tensors in a value and in the containers of which it consists."""
    if isinstance(value, torch.Tensor):
        if len(found) < _MAX_RESULTS:
            found.append(value)
    elif depth < _MAX_DEPTH and isinstance(value, (tuple, list)):
        for inner in value[:_MAX_RESULTS]:
            _collect(inner, found, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, dict):
        for inner in list(value.values())[:_MAX_RESULTS]:
            _collect(inner, found, depth + 1)
