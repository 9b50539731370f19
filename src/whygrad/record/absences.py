"""Gradients that the program read and that were not there: of which tensor, and where."""

from __future__ import annotations

from collections.abc import Iterable
from types import FrameType
from typing import Any

from whygrad.record.events import Absent
from whygrad.record.recorder import Recorder

_MAX_KEPT = 256
_MAX_ASKED = 32  # places that read gradients which will never come


class Absences:
    """Remembers the latest of them; an error that the None leads to may come a little later."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._kept: dict[Absent, None] = {}  # oldest first
        self._asked: set[tuple[int, int]] = set()

    def read(self, tensor: Any, frame: FrameType) -> bool:
        """`.grad` was None; tells whether it will stay so, which was not known of this place."""
        stack = self._keep(tensor, frame, ".grad", ())
        if tensor.is_leaf or tensor.retains_grad:
            return False
        event = self.recorder.event_of(tensor)
        place = stack, event.site if event is not None else -1
        if place in self._asked or len(self._asked) >= _MAX_ASKED:
            return False
        self._asked.add(place)
        return True

    def left_out(
        self, inputs: list[Any], results: Any, roots: Iterable[int], frame: FrameType
    ) -> None:
        """torch.autograd.grad() was allowed to leave out some of its inputs."""
        if len(inputs) == len(results):
            for tensor, result in zip(inputs, results, strict=True):
                if result is None:
                    self._keep(tensor, frame, "grad", tuple(roots))

    def _keep(self, tensor: Any, frame: FrameType, call: str, roots: tuple[int, ...]) -> int:
        recorder = self.recorder
        node = recorder.node_of(tensor)
        absent = Absent(
            node=recorder.source(tensor, frame) if node is None else node,
            stack=recorder.frames.stack(frame),
            call=call,
            leaf=bool(tensor.is_leaf),
            requires_grad=bool(tensor.requires_grad),
            roots=roots,
        )
        self._kept.pop(absent, None)
        self._kept[absent] = None
        if len(self._kept) > _MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return absent.stack

    def latest(self) -> list[Absent]:
        """The latest first."""
        return list(reversed(self._kept))
