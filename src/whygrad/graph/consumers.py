"""Who uses a node: the recorded operations read from the other end, in one pass over them."""

from __future__ import annotations

from collections.abc import Iterable

from whygrad.record.events import Event, Recording
from whygrad.record.ops import LIKE_ANOTHER

_OP, _INPUTS, _LIVE = (Event._fields.index(name) for name in ("op", "inputs", "live"))
_DIFFERENTIATION = "grad"  # torch.autograd.grad


class Consumers:
    """The operations with gradient that use each node, and what autograd.grad() was asked about."""

    def __init__(self, recording: Recording) -> None:
        self._live: dict[int, list[int]] = {}
        self.differentiated: set[int] = set()
        for node, fields in enumerate(recording.events, recording.base):
            op = fields[_OP]
            if op == _DIFFERENTIATION:
                self.differentiated.update(fields[_INPUTS])
            elif fields[_LIVE]:
                inputs = fields[_INPUTS][:1] if op in LIKE_ANOTHER else fields[_INPUTS]
                for feeder in inputs:
                    self._live.setdefault(feeder, []).append(node)

    def is_used(self, node: int) -> bool:
        """Whether an operation that carries gradient works on it."""
        return node in self._live

    def users(self, node: int) -> list[int]:
        """The operations that carry gradient and work on it, oldest first."""
        return self._live.get(node, [])

    def results(self, nodes: Iterable[int]) -> set[int]:
        """Everything with gradient that was computed from these nodes."""
        found: set[int] = set()
        waiting = list(nodes)
        while waiting:
            for user in self._live.get(waiting.pop(), ()):
                if user not in found:
                    found.add(user)
                    waiting.append(user)
        return found

    def ends(self, nodes: Iterable[int]) -> list[int]:
        """The results among these that nothing with gradient was computed from, oldest first."""
        return sorted(node for node in self.results(nodes) if node not in self._live)
