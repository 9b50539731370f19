"""Checkpointed blocks: what each of them runs, and what it did when it ran a second time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from whygrad.record import torch_api
from whygrad.record.events import Again, Block, Recomputed
from whygrad.record.frames import hide_callers
from whygrad.record.hooks import described
from whygrad.record.mode import WatchingMode
from whygrad.record.patches import Patches, imitate
from whygrad.record.recorder import Recorder

_MAX_LOGGED = 100_000  # operations of recomputations in all
_MAX_RUN = 4_000  # of one
_MAX_PARAMETERS = 2_000
_MAX_DEPTH = 3  # of what a function holds


class Recomputations:
    """Logs the operations of the latest recomputation."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.latest: Recomputed | None = None
        self.resting: Callable[[], bool] = lambda: False
        self._left = _MAX_LOGGED

    def install(self, patches: Patches) -> None:
        kind = torch_api.CHECKPOINT_FRAME
        if kind is None:
            return
        init = kind.__init__

        def patched_init(self_: Any, recompute: Any, *args: Any, **kwargs: Any) -> None:
            init(self_, self._watched(recompute, sys._getframe(1)), *args, **kwargs)

        patches.set(kind, "__init__", imitate(patched_init, init))

    def _watched(self, recompute: Any, frame: FrameType) -> Any:
        """A recomputation that is looked at when it comes."""
        try:
            first, stack = self.recorder.now, self.recorder.frames.stack(frame)
        except Exception as fault:
            self.recorder.fault(fault)
            return recompute

        def recompute_fn(*args: Any) -> Any:
            run = None if self.resting() or self._left <= 0 else self._begin(first, stack)
            if run is None:
                return recompute(*args)
            mode = _logging_mode(self.recorder, run)
            torch_api.push_mode(mode)
            try:
                result = recompute(*args)
                run.returned = True
                return result
            except BaseException as error:
                hide_callers(error, 1)
                raise
            finally:
                self._left -= len(run.operations)
                torch_api.remove_mode(mode)

        return recompute_fn

    def _begin(self, first: int, stack: int) -> Recomputed | None:
        try:
            outer = self.recorder.frames.stack(sys._getframe(2))
            self.latest = Recomputed(first, stack, outer)
            return self.latest
        except Exception as fault:
            self.recorder.fault(fault)
            return None


class _Log:
    """Stands in for the recorder: the mode tells it what it would tell a recorder."""

    code_in_backward = False

    def __init__(self, recorder: Recorder, run: Recomputed) -> None:
        self.frames = recorder.frames
        self.switch_table = recorder.switch_table
        self.fault = recorder.fault
        self.exits = recorder.exits
        self.shape_of = recorder.shape_of
        self.run = run

    def flow(
        self, op: str, writes: bool, args: Any, kwargs: Any, result: Any, frame: FrameType, _: Any
    ) -> None:
        if result is None and writes and args:
            result = args[0]
        tensor = result
        while isinstance(tensor, (tuple, list)):
            tensor = next(iter(tensor), None)
        handed_back = not writes and any(result is argument for argument in args)
        if isinstance(tensor, torch.Tensor) and not handed_back:
            self._note(op, tensor, frame)

    def exit(self, op: str, args: Any, result: Any, frame: FrameType, _: Any) -> None:
        self._note(op, args[0], frame)

    def _note(self, op: str, tensor: Any, frame: FrameType) -> None:
        if len(self.run.operations) < _MAX_RUN:
            frames = self.frames
            self.run.operations.append(
                Again(
                    op,
                    frames.site(frame),
                    frames.stack(frame),
                    self.shape_of(tensor),
                    tensor.dtype,
                )
            )

    def _nothing(self, *_: Any) -> None:
        """Of no interest in a second run."""

    returned = flag = data_set = when_read = when_set = when_hooked = heed_backward = _nothing


def _logging_mode(recorder: Recorder, run: Recomputed) -> WatchingMode:
    log: Any = _Log(recorder, run)
    nothing = log._nothing
    return WatchingMode(log, nothing, nothing, nothing, nothing)


def block(recorder: Recorder, frames: list[FrameType]) -> Block | None:
    """The block of a re-entrant checkpoint that was about to run, from torch's frames."""
    for frame in reversed(frames):
        if frame.f_code is torch_api.CHECKPOINT_CODE:
            function = frame.f_locals.get("run_function")
            use = described("checkpoint", function)
            held: dict[int, Any] = {}
            _collect(function, held, _MAX_DEPTH)
            nodes = [recorder.node_of(parameter) for parameter in held.values()]
            known = tuple(node for node in nodes if node is not None)
            return Block(use.name, use.file, use.line, known, bool(held))
    return None


def _collect(thing: Any, held: dict[int, Any], depth: int) -> None:
    """The trainable parameters that a callable holds: of a module, of what a closure refers to."""
    if depth < 0 or len(held) >= _MAX_PARAMETERS:
        return
    if isinstance(thing, torch.nn.Module):
        for module in thing.modules():
            for parameter in vars(module).get("_parameters", {}).values():
                if parameter is not None and parameter.requires_grad:
                    held[id(parameter)] = parameter
        return
    if isinstance(thing, (list, tuple)):
        for item in thing[:_MAX_PARAMETERS]:
            _collect(item, held, depth - 1)
        return
    for inner in _referred(thing):
        _collect(inner, held, depth - 1)


def _referred(thing: Any) -> list[Any]:
    """What a function can get at by itself."""
    found = [getattr(thing, "__self__", None), getattr(thing, "func", None)]
    found += getattr(thing, "args", None) or ()
    for cell in getattr(thing, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            continue
    code, names = getattr(thing, "__code__", None), getattr(thing, "__globals__", {})
    if code is not None:
        found += [names[name] for name in code.co_names if name in names]
    return [
        value
        for value in found
        if isinstance(value, (torch.nn.Module, list, tuple)) or hasattr(value, "__code__")
    ]
