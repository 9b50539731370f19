"""What ran inside the forward of a custom Function: its gradient is the Function's own affair."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType

from whygrad.record.events import GRAD_ON, Event, Recording

Body = tuple[CodeType, tuple[int, ...]]  # a forward, and the sites from which it was called


class FunctionBodies:
    """The calls of custom Functions whose outputs carry gradient.

    Torch runs a Function's forward with gradients off, and many switch them off once more
    themselves. Neither is a cut: the output gets its history when the Function returns.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._inside: dict[int, bool] = {}
        self._bodies: set[Body] = set()
        looked_at: set[tuple[str, int]] = set()
        for fields in recording.events:
            event = Event(*fields)
            for node in event.inputs if event.live else ():
                inner = recording.event(node)
                if inner is None or inner.live or inner.mode == GRAD_ON:
                    continue
                if (event.op, inner.stack) not in looked_at:
                    looked_at.add((event.op, inner.stack))
                    self._bodies.update(self._forwards(event.op, inner.stack))

    def hold(self, stack: int) -> bool:
        """Whether what happened at this stack happened inside one of them."""
        if stack not in self._inside:
            self._inside[stack] = any(frame in self._bodies for frame in self._frames(stack))
        return self._inside[stack]

    def _forwards(self, function: str, stack: int) -> Iterator[Body]:
        """The calls, among those of a stack, of the forward of the Function with this name."""
        for code, callers in self._frames(stack):
            if f".{code.co_qualname}".endswith(f".{function}.forward"):
                yield code, callers

    def _frames(self, stack: int) -> Iterator[Body]:
        sites = self.recording.stacks[stack]
        for depth, site in enumerate(sites):
            yield self.recording.sites[site].code, sites[depth + 1 :]
