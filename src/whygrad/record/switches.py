"""Who turned gradients off: the nested switches of one thread, in order."""

from __future__ import annotations

from types import FrameType

import torch

from whygrad.record import torch_api
from whygrad.record.events import INFERENCE_UNSEEN, INSIDE_FUNCTION, Switch
from whygrad.record.frames import MACHINERY, TORCH, Frames

_MAX_DEPTH = 64
_GRAD_MODE_FILE = torch.autograd.grad_mode.__file__


class SwitchTable:
    """Interns switches, so that the thousandth pass through a block costs no memory."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.switches: list[Switch] = [Switch("none", True, -1, 0, None, False)]
        self._numbers: dict[Switch, int] = {}

    def intern(self, kind: str, enabled: bool, caller: FrameType | None) -> int:
        """The number of the switch that the code at `caller` throws."""
        frames = self.frames
        decorated, inside_torch = None, False
        while caller is not None:
            function = torch_api.decorated_function(caller)
            if function is None:
                whose = frames.kind(caller)
                # Between the program and the switch: contextlib, or a wrapper around an object
                # that has no code of its own, as in `torch.no_grad()(model)(x)`.
                if whose == MACHINERY or torch_api.is_decoration(caller):
                    caller = caller.f_back
                    continue
                inside_torch = whose == TORCH
            elif frames.file_kind(function.co_filename) >= TORCH:
                inside_torch = True
            else:
                decorated = (function.co_filename, function.co_firstlineno)
            break
        switch = Switch(
            kind,
            enabled,
            frames.site(caller),
            frames.stack(caller),
            decorated,
            inside_torch,
            inside_torch and caller is not None and caller.f_code is torch_api.CHECKPOINT_CODE,
        )
        number = self._numbers.get(switch)
        if number is None:
            number = self._numbers[switch] = len(self.switches)
            self.switches.append(switch)
        return number


class ThreadSwitches:
    """The switches in force in one thread, outermost first."""

    def __init__(self, table: SwitchTable) -> None:
        self.table = table
        self.gradients: list[tuple[int, bool]] = []  # (switch, called but not entered)
        self.inference: list[int] = []

    def forget(self) -> None:
        """Gradients are on, whatever was switched while nobody looked."""
        self.gradients.clear()
        self.inference.clear()

    def grad_switch(self, enabled: bool, frame: FrameType | None) -> None:
        """`torch._C._set_grad_enabled(enabled)` was called from `frame`."""
        kind, phase = "set_grad_enabled", "called"
        # The context managers call each other: the outermost of their methods tells the phase.
        while frame is not None and frame.f_code.co_filename == _GRAD_MODE_FILE:
            kind, _, phase = frame.f_code.co_qualname.partition(".")
            frame = frame.f_back
        stack = self.gradients
        if phase in ("__exit__", "__call__"):
            if stack:
                stack.pop()
            return
        number = self.table.intern(kind, enabled, frame)
        entered = phase == "__enter__"
        if stack and stack[-1][1]:
            top = stack[-1][0]
            if entered and self._same_place(top, number):
                stack[-1] = (number, False)  # `with set_grad_enabled(...)`: called, then entered
                return
            if not entered and top == number:
                return
        if self._changes_nothing(number):
            number = stack[-1][0]  # what keeps gradients off already stays the reason
        if len(stack) >= _MAX_DEPTH:
            del stack[0]
        stack.append((number, not entered))

    def _changes_nothing(self, number: int) -> bool:
        """Whether torch, for itself, switches off what is off already."""
        switches = self.table.switches
        off = bool(self.gradients) and not switches[self.gradients[-1][0]].enabled
        return off and switches[number].inside_torch and not switches[number].enabled

    def _same_place(self, one: int, other: int) -> bool:
        # The `with` calls and enters at two instructions of one line, in one frame.
        switches, sites = self.table.switches, self.table.frames.sites
        if switches[one].kind != switches[other].kind:
            return False
        first, second = switches[one].site, switches[other].site
        if first < 0 or second < 0:
            return first == second
        return sites[first].code is sites[second].code

    def off_because(self) -> int:
        """The switch that keeps gradients off right now (they are off)."""
        if torch.is_inference_mode_enabled():
            return self.inference[-1] if self.inference else INFERENCE_UNSEEN
        if self.gradients and not self.table.switches[self.gradients[-1][0]].enabled:
            return self.gradients[-1][0]
        return INSIDE_FUNCTION
