"""When gradients were computed and optimizers stepped: the order of things, in plain numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple

from whygrad.record import census
from whygrad.record.events import Pass
from whygrad.record.frames import CODE_SHIFT
from whygrad.record.ops import Role
from whygrad.record.recorder import Recorder

_MAX_PASSES = 512
_MAX_STEPS = 512
_MAX_PLACES = 64

# Where backward() and grad() take retain_graph and create_graph if not by name.
_RETAIN = {Role.BACKWARD: 2, Role.GRAD: 3}


class Step(NamedTuple):
    """An optimizer's step. It writes to parameters, and may do so unnoticed by autograd."""

    time: int
    stack: int
    optimizer: Any  # a weak reference
    name: str
    silent: bool


@dataclass(slots=True)
class OptimizerState:
    """What is known of one optimizer."""

    ref: Any  # a weak reference
    name: str
    pending: list[Any] = field(default_factory=list)  # weakly, parameters without gradient so far
    steps: int = 0
    size: int = -1
    last_backward: int = 0
    silent: bool = False
    places: dict[int, tuple[CodeType, int]] = field(default_factory=dict)  # of its steps


class Timeline:
    """The latest backward passes and optimizer steps."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.passes: deque[Pass] = deque(maxlen=_MAX_PASSES)
        self.steps: deque[Step] = deque(maxlen=_MAX_STEPS)
        self.trained: set[int] = set()  # parameters that had a gradient at some step

    def went_back(
        self, role: Role, roots: tuple[int, ...], stack: int, args: Any, kwargs: Any, number: int
    ) -> None:
        recorder = self.recorder
        call = "backward" if role is Role.BACKWARD else "grad"
        retained = _keeps_graph(role, args, kwargs) if kwargs or len(args) > 1 else False
        now = recorder.base + len(recorder.events)
        recorder.old_codes = 2 * now  # what was recorded up to here is old from now on
        self.passes.append(Pass(now, roots, stack, retained, call, number))

    def stepped(self, state: OptimizerState, frame: FrameType) -> None:
        recorder = self.recorder
        # One place where one optimizer steps: its callers are looked at once.
        caller = frame.f_back or frame
        code = caller.f_code
        place = id(code) * CODE_SHIFT + caller.f_lasti
        known = state.places.get(place)
        if known is None or known[0] is not code:
            if len(state.places) >= _MAX_PLACES:
                state.places.clear()
            known = state.places[place] = (code, recorder.frames.stack(frame))
        now = recorder.base + len(recorder.events)
        self.steps.append(Step(now, known[1], state.ref, state.name, state.silent))
        if state.silent:
            recorder.written_silently(now)

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


def _keeps_graph(role: Role, args: Any, kwargs: Any) -> bool:
    first, kwargs = _RETAIN[role], kwargs or {}
    retain = args[first] if len(args) > first else kwargs.get("retain_graph")
    create = args[first + 1] if len(args) > first + 1 else kwargs.get("create_graph")
    return bool(create) if retain is None else bool(retain)
