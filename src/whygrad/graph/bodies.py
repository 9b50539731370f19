"""What ran inside the forward of a custom Function: its gradient is the Function's own affair."""

from __future__ import annotations

from whygrad.record.events import GRAD_ON, Event, Recording


def function_bodies(recording: Recording) -> set[int]:
    """The operations inside custom Functions whose outputs carry gradient.

    Torch runs a Function's forward with gradients off, and many switch them off once more
    themselves. Neither is a cut: the output gets its history when the Function returns.
    """
    return _Bodies(recording).found


class _Bodies:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.found: set[int] = set()
        self._inside: dict[tuple[str, int], bool] = {}
        for fields in recording.events:
            event = Event(*fields)
            if event.live:
                self._walk(event.op, list(event.inputs))

    def _walk(self, function: str, waiting: list[int]) -> None:
        """Take in what feeds a Function's output, as far as it ran in its forward."""
        while waiting:
            node = waiting.pop()
            event = self.recording.event(node)
            if event is None or event.live or event.mode == GRAD_ON or node in self.found:
                continue
            if self._ran_in(function, event.stack):
                self.found.add(node)
                waiting += event.inputs

    def _ran_in(self, function: str, stack: int) -> bool:
        key = (function, stack)
        if key not in self._inside:
            codes = (self.recording.sites[site].code for site in self.recording.stacks[stack])
            name = f"{function}.forward"
            self._inside[key] = any(f".{code.co_qualname}".endswith(f".{name}") for code in codes)
        return self._inside[key]
