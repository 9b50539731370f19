"""Keeps our looks at gradients and other threads' backward passes apart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Knows which threads are in a backward pass.

    Autograd writes gradients without Python's lock. To read `.grad` of a parameter while another
    thread's pass may be about to replace it is not safe, not even for Python's own objects. So a
    look keeps other passes from beginning, and does not happen if one is under way. A program
    that trains in several threads at once is then left alone for good.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside: dict[int, int] = {}  # thread -> passes within passes
        self.crowded = False

    def enter(self) -> None:
        """This thread begins a pass."""
        with self._lock:
            me = threading.get_ident()
            self._inside[me] = self._inside.get(me, 0) + 1
            self.crowded = self.crowded or len(self._inside) > 1

    def leave(self) -> None:
        """It has ended."""
        with self._lock:
            me = threading.get_ident()
            left = self._inside.pop(me, 0) - 1
            if left > 0:
                self._inside[me] = left

    def is_clear(self) -> bool:
        """Whether no other thread is in a pass, and none has ever been beside another."""
        if len(self._inside) > (threading.get_ident() in self._inside):
            self.crowded = True
        return not self.crowded

    @contextmanager
    def look(self) -> Iterator[bool]:
        """Whether gradients may be looked at; while they are, no other thread begins a pass."""
        with self._lock:
            yield self.is_clear()
