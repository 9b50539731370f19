"""When gradients were computed and optimizers stepped: the order of things, in plain numbers."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from whygrad.record import census
from whygrad.record.events import Pass
from whygrad.record.ops import Role
from whygrad.record.recorder import Recorder

_MAX_PASSES = 512
_MAX_STEPS = 512

# Where backward() and grad() take retain_graph and create_graph if not by name.
_RETAIN = {Role.BACKWARD: 2, Role.GRAD: 3}


class Step(NamedTuple):
    """An optimizer's step. It writes to parameters, and may do so unnoticed by autograd."""

    time: int
    stack: int
    optimizer: Any  # a weak reference
    name: str
    silent: bool


class Timeline:
    """The latest backward passes and optimizer steps."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.passes: deque[Pass] = deque(maxlen=_MAX_PASSES)
        self.steps: deque[Step] = deque(maxlen=_MAX_STEPS)
        self._stacks: dict[tuple[Any, int], int] = {}
        self.trained: set[int] = set()  # parameters that had a gradient at some step

    def went_back(
        self, role: Role, roots: tuple[int, ...], stack: int, args: Any, kwargs: Any, number: int
    ) -> None:
        recorder = self.recorder
        call = "backward" if role is Role.BACKWARD else "grad"
        retained = bool(kwargs or len(args) > 1) and _keeps_graph(role, args, kwargs or {})
        now = recorder.now
        recorder.old_codes = 2 * now  # what was recorded up to here is old from now on
        self.passes.append(Pass(now, roots, stack, retained, call, number))

    def stepped(self, optimizer: Any, frame: Any, silent: bool) -> None:
        recorder = self.recorder
        now, ref = recorder.now, weakref.ref(optimizer)
        # One place where one optimizer steps: its callers are looked at once.
        key = (ref, recorder.frames.site(frame))
        stack = self._stacks.get(key)
        if stack is None:
            if len(self._stacks) >= _MAX_STEPS:
                self._stacks.clear()
            stack = self._stacks[key] = recorder.frames.stack(frame)
        self.steps.append(Step(now, stack, ref, type(optimizer).__name__, silent))
        if silent:
            recorder.writes.last_silent = now

    def moved(self) -> Iterator[tuple[Step, set[int]]]:
        """Each step with the nodes of the parameters that its optimizer holds."""
        held: dict[Any, set[int]] = {}
        for step in self.steps:
            optimizer = step.optimizer()
            if optimizer is None:
                continue
            if step.optimizer not in held:
                held[step.optimizer] = census.nodes_of(self.recorder, optimizer)
            yield step, held[step.optimizer]


def is_silent(optimizer: Any) -> bool:
    """Whether a step may change parameters without autograd's version counters telling.

    Fused kernels do, and so does an optimizer that writes through `.data`.
    """
    if not type(optimizer).__module__.startswith("torch.optim"):
        return True
    return any(group.get("fused") for group in optimizer.param_groups)


def _keeps_graph(role: Role, args: Any, kwargs: dict[str, Any]) -> bool:
    first = _RETAIN[role]
    retain = args[first] if len(args) > first else kwargs.get("retain_graph")
    create = args[first + 1] if len(args) > first + 1 else kwargs.get("create_graph")
    return bool(create) if retain is None else bool(retain)
