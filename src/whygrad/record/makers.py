"""Where the program made torch's objects: optimizers, schedulers, scalers."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch
from torch.amp import grad_scaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler

from whygrad.record import torch_api
from whygrad.record.events import Made
from whygrad.record.patches import Patches, stand_in
from whygrad.record.recorder import Recorder

_REPLICA = "replica"
_KINDS: tuple[tuple[Any, str], ...] = (
    (torch.optim.Optimizer, "optimizer"),
    (lr_scheduler.LRScheduler, "scheduler"),
    (grad_scaler.GradScaler, "scaler"),
    (DistributedDataParallel, _REPLICA),
)
_MAX_MADE = 10_000


class Makers:
    """Remembers the line that made an object for as long as the object lives."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._made: weakref.WeakKeyDictionary[Any, Made] = weakref.WeakKeyDictionary()

    def install(self, patches: Patches) -> None:
        """The others have patches of their own, which call `note`."""

        def made(args: tuple[Any, ...], kwargs: Any, result: Any, frame: FrameType) -> None:
            self.note(args[0], frame)

        owners: tuple[Any, ...] = (lr_scheduler.LRScheduler, DistributedDataParallel)
        for owner in owners:
            patches.set(owner, "__init__", stand_in(self.recorder, owner.__init__, after=made))

    def replicas(self) -> list[tuple[Any, Made]]:
        """The living models that are wrapped for several processes."""
        found = list(self._made.items())
        return [(value, made) for value, made in found if made.kind.startswith(_REPLICA)]

    def searching_in_vain(self) -> Made | None:
        """One of them that searches for unused parameters though all were used; told once."""
        for replica, made in self.replicas():
            if made.kind == _REPLICA and torch_api.searches_in_vain(replica):
                self._made[replica] = made._replace(kind=f"{_REPLICA}, told")
                return made
        return None

    def note(self, value: Any, frame: FrameType) -> None:
        """An object was made."""
        kind = _kind(value)
        if kind and len(self._made) < _MAX_MADE:
            stack = self.recorder.frames.stack(frame)
            self._made[value] = Made(kind, type(value).__name__, stack, self.recorder.now)

    def of(self, values: Iterable[Any]) -> list[Made]:
        """Those of some values that are such objects."""
        return [
            self._made.get(value) or Made(kind, type(value).__name__, 0)
            for value in values
            if (kind := _kind(value))
        ]


def _kind(value: Any) -> str:
    return next((kind for owner, kind in _KINDS if isinstance(value, owner)), "")
