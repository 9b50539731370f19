"""Which living tensor is which node. Weak references only, and no object of our own for each."""

from __future__ import annotations

import weakref
from typing import Any

from whygrad.record.torch_api import alive

_ref = weakref.ref
_FIRST_SWEEP = 8192


class Tensors:
    """Identity of tensors: by weak reference, since a dead tensor's id is soon used again.

    `codes` holds twice the node number, plus one if the tensor was seen to require grad:
    two dictionaries of plain values keep Python's garbage collector out of the hot path.
    """

    def __init__(self) -> None:
        self.refs: dict[int, Any] = {}
        self.codes: dict[int, int] = {}
        self._sweep_at = _FIRST_SWEEP

    def put(self, tensor: Any, node: int, live: bool) -> None:
        key = id(tensor)
        self.refs[key] = _ref(tensor)
        self.codes[key] = node * 2 + live
        if len(self.refs) > self._sweep_at:
            self.sweep()

    def node(self, tensor: Any) -> int | None:
        """The node of a tensor, if it is known."""
        key = id(tensor)
        ref = self.refs.get(key)
        return self.codes[key] >> 1 if ref is not None and ref() is tensor else None

    def set_live(self, tensor: Any, live: bool) -> None:
        key = id(tensor)
        self.codes[key] = self.codes[key] & ~1 | live

    def forget(self, tensor: Any) -> int | None:
        """Drop a tensor; torch refuses to swap tensors that have weak references."""
        node = self.node(tensor)
        if node is not None:
            del self.refs[id(tensor)], self.codes[id(tensor)]
        return node

    def sweep(self) -> None:
        """Drop what is dead."""
        for key in [key for key, ref in list(self.refs.items()) if alive(ref) is None]:
            del self.refs[key], self.codes[key]
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self.refs))
