"""The watching mode: sees every public torch call, makes it, and records what flowed.

This is the hot path. Each line of `__torch_function__` runs once per torch call of the watched
program, so it does one dictionary look-up to know what a function means and little else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from whygrad.record import torch_api
from whygrad.record.frames import TORCH, relay_key
from whygrad.record.ops import REBUILDING, Role, role_of
from whygrad.record.recorder import Recorder
from whygrad.record.switches import ThreadSwitches

_getframe = sys._getframe
_REENTRY = torch_api.REENTRY_CODE
_IGNORE, _FLOW, _EXIT = Role.IGNORE, Role.FLOW, Role.EXIT
_NO_KWARGS: dict[str, Any] = {}
_MAX_ROLES = 20_000

# Called with (role, args, kwargs, error, frame) when a watched call raises.
FailureHandler = Callable[[Role, Any, Any, BaseException, Any], None]
# Called with (role, args, kwargs, frame) when backward() or grad() went through.
BackwardHandler = Callable[[Role, Any, Any, Any], None]


class WatchingMode(TorchFunctionMode):
    """One per watched thread; all of them share the recorder."""

    def __init__(
        self,
        recorder: Recorder,
        on_failure: FailureHandler,
        on_backward: BackwardHandler,
    ) -> None:
        super().__init__()
        self.recorder = recorder
        self.switches = ThreadSwitches(recorder.switch_table)
        self.on_failure = on_failure
        self.on_backward = on_backward
        self.paused = False
        self.roles: dict[Any, tuple[Role, str, bool]] = {}
        self.relays = recorder.frames.relays

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = self.roles.get(func)
        if known is None:
            known = self._learn(func)
        role, op, writes = known
        if role is _IGNORE or self.paused:
            return func(*args, **kwargs) if kwargs else func(*args)
        frame: Any = _getframe(1)
        if frame.f_code is _REENTRY and frame.f_back is not None:
            frame = frame.f_back.f_back or frame
        relay = self.relays.get(relay_key(frame))
        if relay is None:
            relay = self.recorder.frames.relay(frame)
        try:
            result = relay(func, args, kwargs or _NO_KWARGS)
        except BaseException as error:
            self._failed(role, args, kwargs, error, frame)
            # Our frames must not keep the arguments alive in the program's traceback.
            trace, args, kwargs, frame = error.__traceback__, None, None, None
            inner = trace.tb_next.tb_next if trace is not None and trace.tb_next else None
            raise error.with_traceback(inner)  # noqa: B904 (the same error, not a new one)
        try:
            if types:
                with torch._C.DisableTorchFunctionSubclass():
                    self._record(role, op, writes, args, kwargs, result, frame)
            else:
                self._record(role, op, writes, args, kwargs, result, frame)
        except Exception as fault:
            self.recorder.fault(fault)
        return result

    def _record(
        self, role: Role, op: str, writes: bool, args: Any, kwargs: Any, result: Any, frame: Any
    ) -> None:
        recorder = self.recorder
        if role is _FLOW:
            recorder.flow(op, writes, args, kwargs, result, frame, self.switches)
            if op in REBUILDING and recorder.exits.nodes:
                recorder.returned(op, args, kwargs, result)
        elif role is _EXIT:
            if not isinstance(result, torch.Tensor):
                recorder.exit(op, args, result, frame, self.switches)
        elif role is Role.GRAD_SWITCH:
            self.switches.grad_switch(bool(args[0]), frame)
        elif role is Role.FLAG:
            recorder.flag(args[0], frame)
        elif role is Role.GRADIENT:
            # Optimizers and clipping read gradients all the time; only the program's own reads
            # can make a loss of them.
            if result is not None and recorder.frames.kind(frame) < TORCH:
                recorder.flow(op, writes, args, kwargs, result, frame, self.switches)
        else:
            if role is Role.GRAD:
                recorder.flow(op, writes, args, kwargs, result, frame, self.switches)
            self.on_backward(role, args, kwargs, frame)

    def _failed(self, role: Role, args: Any, kwargs: Any, error: BaseException, frame: Any) -> None:
        try:
            if isinstance(error, RuntimeError):
                self.on_failure(role, args, kwargs, error, frame)
        except Exception as fault:
            self.recorder.fault(fault)

    def _learn(self, func: Any) -> tuple[Role, str, bool]:
        known = role_of(func)
        # Functions made on the fly would otherwise live as long as this table.
        if len(self.roles) < _MAX_ROLES:
            self.roles[func] = known
        return known
