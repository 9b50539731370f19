"""When to record every step and when to let the program run almost alone.

The first minute is recorded in full, and so is every step in which something may be off. After
that only samples are, further and further apart; in between, a hook counts steps and looks at
one gradient.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

from whygrad.record import looks
from whygrad.record.ledger import parameters_of
from whygrad.record.torch_api import alive

FULL_STEPS = 256  # at least so many steps are recorded,
FULL_SECONDS = 60.0  # and for so long: what is over by then has been recorded as a whole
_LOOK_EVERY = 4  # steps, while resting,
_LOOK_EVERY_WAITING = 16  # where a look has to wait for a device


class Tempo:
    """Decides, after each step, whether the next one is recorded."""

    def __init__(self, watch_steps: frozenset[int]) -> None:
        self.watch_steps = watch_steps
        self.full_until = time.monotonic() + FULL_SECONDS
        self._sentinel: Any = None  # weakly, a parameter whose gradient stands for all
        self.look_every = _LOOK_EVERY
        self.wake_after = 0  # a step
        self.finite_until = 0  # the last step whose gradient was seen to be finite

    def may_rest(self, step: int) -> bool:
        """Whether the step after this one can go unrecorded."""
        following = step + 1
        if step < FULL_STEPS or following in self.watch_steps:
            return False
        # Powers of two are samples.
        return bool(following & step) and time.monotonic() > self.full_until

    def rest(self, optimizer: Any, step: int) -> None:
        """Choose what to look at while resting, and until when."""
        first = next((p for p in parameters_of(optimizer) if p.grad is not None), None)
        self._sentinel = None if first is None else weakref.ref(first)
        waits = first is not None and first.device.type != "cpu"
        self.look_every = _LOOK_EVERY_WAITING if waits else _LOOK_EVERY
        sample = 1 << (step + 1).bit_length()
        self.wake_after = min([sample, *(s for s in self.watch_steps if s > step + 1)]) - 1

    def is_off(self, step: int) -> bool:
        """Whether the gradient that stands for all is not finite."""
        parameter = alive(self._sentinel) if self._sentinel is not None else None
        if parameter is None or parameter.grad is None:
            return False
        if looks.seems_finite(parameter.grad):
            self.finite_until = step
            return False
        return True
