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
from whygrad.record.events import UNRECORDED
from whygrad.record.frames import CODE_SHIFT, TORCH, hide_callers, plain_relay
from whygrad.record.ops import REBUILDING, Role, role_of
from whygrad.record.recorder import Recorder
from whygrad.record.switches import ThreadSwitches

_getframe = sys._getframe
_is_tracing = torch_api.is_tracing
_unseen = torch_api.without_torch_function
_REENTRY = torch_api.REENTRY_CODE
_IGNORE, _FLOW, _EXIT = Role.IGNORE, Role.FLOW, Role.EXIT
_NO_KWARGS: dict[str, Any] = {}
_MAX_ROLES = 20_000

# How to look at a call: it tells a fact and needs no look, as it is, or without being seen.
_FACT, _PLAINLY, _CAREFUL, _GRADIENT, _BACKWARD = 0, 1, 2, 3, 4
Known = tuple[Role, str, bool, int]  # role, name, whether it writes, how to look

# Results of other types may run code of the program's own when they are looked at.
_PLAIN = frozenset([torch.Tensor, torch.nn.Parameter, tuple, list, type(None), float, int, bool])
# Properties that warn, and so must be read as if the program's own line did it.
_WARNING = frozenset(["volatile", "_grad"])

# Called with (role, op, args, kwargs, error, frame) when a watched call raises.
FailureHandler = Callable[[Role, str, Any, Any, BaseException, Any], None]
# Called with (role, args, kwargs, frame) before backward() or grad(), and when it went through.
BackwardHandler = Callable[[Role, Any, Any, Any], None]


class WatchingMode(TorchFunctionMode):
    """One per watched thread; all of them share the recorder."""

    def __init__(
        self,
        recorder: Recorder,
        on_failure: FailureHandler,
        before_backward: BackwardHandler,
        after_backward: Callable[[bool], None],
        on_backward: BackwardHandler,
    ) -> None:
        super().__init__()
        self.recorder = recorder
        self.switches = ThreadSwitches(recorder.switch_table)
        self.on_failure = on_failure
        self.before_backward = before_backward
        self.after_backward = after_backward
        self.on_backward = on_backward
        self.quiet = False  # calls are made, and nothing is recorded but writes
        self._paused = self._expecting = self._in_backward = False
        self.roles: dict[Any, Known] = {}
        self.relays = recorder.frames.relays
        # The program's own modes beneath this one would see us look at tensors.
        self._look = _PLAINLY if torch_api.mode_depth() == 0 else _CAREFUL

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame: Any = None
        relay: Any = None
        goes_back = False
        try:
            role, op, writes, look = self.roles.get(func) or self._learn(func)
            if look is not _FACT:
                frame = _getframe(1)
                if look is _GRADIENT and self.recorder.frames.kind(frame) == TORCH:
                    # Optimizers and clipping read gradients all the time; only the program's
                    # own reads can make a loss of them.
                    role = _IGNORE
                elif frame.f_code is _REENTRY and frame.f_back is not None:
                    frame = frame.f_back.f_back or frame
                relay = self.relays.get(id(frame.f_code) * CODE_SHIFT + frame.f_lasti)
                if relay is None:
                    relay = self.recorder.frames.relay(frame)
                if look is _BACKWARD:
                    goes_back = self._going_back(role, args, kwargs, frame)
        except Exception as fault:
            self.recorder.fault(fault)
            role, op, writes, look, relay = _IGNORE, "", False, _CAREFUL, plain_relay
        try:
            if look is _FACT:
                return func(*args, **kwargs) if kwargs else func(*args)
            if kwargs and "_stacklevel" in kwargs:
                kwargs = _past_our_frames(kwargs)
            result = relay(func, args, kwargs or _NO_KWARGS)
            if goes_back:
                self._came_back(True)
        except BaseException as error:
            if goes_back:
                self._came_back(False)
            self._failed(role, op, args, kwargs, error, frame)
            hide_callers(error, 1 if look is _FACT else 2)
            if _getframe(1).f_code is _REENTRY:
                # Our frame stays in, to mark those of torch, but without the arguments.
                args = kwargs = frame = None
                raise error
            raise
        if role is _IGNORE or self.quiet or _is_tracing():
            if role is _FLOW and self._in_backward and not self._paused:
                self._record_write(op, writes, args, kwargs, result, frame)
            return result
        try:
            if look is _PLAINLY and not types and type(result) in _PLAIN:
                if role is _FLOW:
                    self.recorder.flow(op, writes, args, kwargs, result, frame, self.switches)
                else:
                    self._record(role, op, writes, args, kwargs, result, frame)
            else:
                with _unseen():
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
        elif role is Role.DATA_SET:
            recorder.data_set(args[0], args[1], frame, self.switches)
        elif role is Role.GRADIENT:
            recorder.flow(op, writes, args, kwargs, result, frame, self.switches)
            recorder.when_read(args[0])
            if result is None:
                recorder.when_absent(args[0], frame)
        elif role is Role.GRADIENT_SET:
            recorder.when_set(args[0], frame)
        elif role is Role.HOOK:
            recorder.when_hooked(op, args, kwargs, result, frame)
        else:
            if role is Role.GRAD:
                recorder.flow(op, writes, args, kwargs, result, frame, self.switches)
                if any(gradient is None for gradient in result):
                    recorder.when_left_out(args, kwargs, result, frame)
            self.on_backward(role, args, kwargs, frame)

    def _failed(self, role: Role, op: str, args: Any, kwargs: Any, error: Any, frame: Any) -> None:
        try:
            if isinstance(error, Exception) and not self.quiet:
                with _unseen():
                    self.on_failure(role, op, args, kwargs, error, frame)
        except Exception as fault:
            self.recorder.fault(fault)

    @property
    def paused(self) -> bool:
        return self._paused

    @paused.setter
    def paused(self, value: bool) -> None:
        self._paused = value
        self.quiet = value or self._in_backward

    def enter_backward(self) -> None:
        """Autograd sets to work: hooks and custom Functions run the program's own code in it."""
        if self._expecting:
            self._expecting, self._in_backward = False, True
            self.quiet = True
            torch_api.push_mode(self)

    def _came_back(self, went_through: bool) -> None:
        if self._expecting:
            self._expecting = False  # it never got as far as the engine
        elif self._in_backward:
            self._in_backward = False
            self.quiet = self._paused
            if not torch_api.pop_mode_if_on_top(self):
                torch_api.remove_mode(self)
        try:
            with _unseen():
                self.after_backward(went_through)
        except Exception as fault:
            self.recorder.fault(fault)

    def _record_write(
        self, op: str, writes: bool, args: Any, kwargs: Any, result: Any, frame: Any
    ) -> None:
        """A hook may overwrite what the rest of the backward pass still needs."""
        try:
            if writes or (kwargs and kwargs.get("inplace") is True):
                with _unseen():
                    written = result if isinstance(result, torch.Tensor) else args[0]
                    node = self.recorder.node_of(written)
                    if node is None:
                        node = UNRECORDED
                    self.recorder.writes.add(self.recorder, op, written, node, frame)
        except Exception as fault:
            self.recorder.fault(fault)

    def _going_back(self, role: Role, args: Any, kwargs: Any, frame: Any) -> bool:
        """Look before a backward(); returns whether `_came_back` must be called after it."""
        if self.quiet:
            return False
        try:
            with _unseen():
                self.before_backward(role, args, kwargs, frame)
        except Exception as fault:
            self.recorder.fault(fault)
        self._expecting = self.recorder.code_in_backward
        return True

    def _learn(self, func: Any) -> Known:
        role, op, writes = role_of(func)
        look = _CAREFUL if op in REBUILDING else self._look
        if role is Role.GRADIENT or role is Role.GRADIENT_SET:
            look = _GRADIENT
        elif role in (Role.BACKWARD, Role.GRAD):
            look = _BACKWARD
        elif role is _IGNORE and _is_property(func) and op not in _WARNING:
            look = _FACT
        if role is Role.HOOK:
            self.recorder.heed_backward()
        known = role, op, writes, look
        # Functions made on the fly would otherwise live as long as this table.
        if len(self.roles) < _MAX_ROLES:
            self.roles[func] = known
        return known


def _is_property(func: Any) -> bool:
    return getattr(func, "__name__", "") in ("__get__", "__set__")


def _past_our_frames(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Some functions take the number of frames between them and the line to warn about.

    The relay stands in for one caller; to get at callers further out, the number must count
    what lies between: the relay, our handler, torch's way to it and the function's first frame.
    """
    level = kwargs["_stacklevel"]
    return {**kwargs, "_stacklevel": level + 4} if level > 3 else kwargs
