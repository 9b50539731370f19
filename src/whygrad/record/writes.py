"""In-place writes: a log of which memory changed when, and what a write means for the flow."""

from __future__ import annotations

from collections import deque
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from whygrad.record import torch_api
from whygrad.record.events import Event, Write
from whygrad.record.ops import DATA_WRITE
from whygrad.record.switches import ThreadSwitches

if TYPE_CHECKING:
    from whygrad.record.recorder import Recorder

Parameter = torch.nn.Parameter
_address = torch_api.data_address
_OP, _INPUTS = Event._fields.index("op"), Event._fields.index("inputs")

_MAX_WRITES = 20_000
_MAX_HOPS = 4  # views of views between `.data` and a write


class Writes:
    """The last in-place writes: numbers and places, no tensor."""

    def __init__(self) -> None:
        self.log: deque[Write] = deque(maxlen=_MAX_WRITES)
        self.into: dict[int, Write] = {}  # leaf -> the latest write to it, also through .data
        self.converted: dict[int, tuple[int, int]] = {}  # leaf -> when last, and where
        self.used_statistics = False  # batch_norm has kept its running statistics for backward

    def add(
        self,
        recorder: Recorder,
        op: str,
        tensor: Any,
        node: int,
        frame: FrameType,
        silent: bool = False,
    ) -> int:
        """Note that `tensor` (at `node` until now) was written to; returns the stack."""
        stack = recorder.frames.stack(frame)
        now = recorder.now
        silent = silent or (not tensor.requires_grad and _is_data(recorder, node))
        if silent and torch_api.is_check(frame):
            return stack  # gradcheck() moves its inputs a little, and back again
        if silent:
            recorder.written_silently(now)
        memory = extent(tensor)
        write = Write(now, *memory, version(tensor), op, stack, node, silent)
        self.log.append(write)
        ref = recorder.aliases.get(node)
        owner = torch_api.alive(ref) if ref is not None else None
        known = node if owner is None else recorder.node_of(owner)
        if known is not None and (known < 0 or (tensor.requires_grad and is_leaf(tensor))):
            self._note(known, write)
        return stack

    def _note(self, leaf: int, write: Write) -> None:
        if leaf in self.into or len(self.into) < _MAX_WRITES:
            self.into[leaf] = write

    def replaced(self, recorder: Recorder, tensor: Any, node: int, frame: FrameType) -> None:
        """`tensor.data = value`: the tensor looks at other memory from now on."""
        if torch_api.is_conversion(frame):
            # module.to(...), .float(): the same numbers in another place
            if node in self.converted or len(self.converted) < _MAX_WRITES:
                self.converted[node] = recorder.now, recorder.frames.stack(frame)
            return
        stack, now = recorder.frames.stack(frame), recorder.now
        recorder.written_silently(now)
        write = Write(now, 0, 0, version(tensor), DATA_WRITE, stack, node, True)
        self.log.append(write)
        self._note(node, write)


def hidden(recorder: Recorder, op: str, args: Any, kwargs: Any, frame: FrameType) -> None:
    """Some functions write to an argument without saying so in their name."""
    log = recorder.writes
    if op == "batch_norm":
        statistics = [t for t in args[1:3] if t is not None]
        if not kwargs.get("training"):
            log.used_statistics = True  # they are saved for backward
        elif log.used_statistics:
            for tensor in statistics:
                log.add(recorder, op, tensor, recorder.node_of(tensor) or 0, frame, silent=True)
    elif kwargs.get("max_norm") is not None and len(args) > 1:
        log.add(recorder, op, args[1], recorder.node_of(args[1]) or 0, frame)


def extent(tensor: Any) -> tuple[int, int]:
    """The addresses from a tensor's first element to behind its last one."""
    start = _address(tensor)
    if not start:
        return 0, 0
    try:
        count = tensor.numel()
        if not tensor.is_contiguous():
            steps = zip(tensor.shape, tensor.stride(), strict=True)
            count = 1 + sum((size - 1) * stride for size, stride in steps)
        return start, start + count * tensor.element_size()
    except RuntimeError:  # nested tensors have no one stride
        return start, start + 1


def version(tensor: Any) -> int:
    """Autograd's count of the in-place writes to a tensor."""
    try:
        return int(tensor._version)
    except RuntimeError:  # inference tensors have none
        return -1


def _is_data(recorder: Recorder, node: int) -> bool:
    """Whether a node is `x.data` or a view of it: autograd does not notice writes there."""
    for _ in range(_MAX_HOPS):
        index = node - recorder.base
        if node < 0 or not 0 <= index < len(recorder.events):
            return False
        event = recorder.events[index]
        if event[_OP] == "data":
            return True
        if not event[_INPUTS]:
            return False
        node = event[_INPUTS][0]
    return False


# --- what a write means for the flow ----------------------------------------------------------


def through_view(recorder: Recorder, view: Any, node: int, live: bool) -> None:
    """An in-place write to a view changes the tensor it looks into as well."""
    base = torch_api.base_of_view(view)
    if base is None or base is view or isinstance(base, Parameter):
        return
    before = recorder.node_of(base)
    event = recorder.event_of(view)
    if before is not None and event is not None:
        recorder.replace(view, event, inputs=(*event.inputs, before))
        recorder.tensors.put(base, node, live or base.requires_grad)


def into_leaf(
    recorder: Recorder,
    op: str,
    leaf: Any,
    node: int,
    values: Any,
    frame: FrameType,
    switches: ThreadSwitches,
) -> None:
    """New values for a leaf: remember where they came from, if from a tensor at all."""
    inputs: list[int] = []
    recorder.inputs_of(values, inputs, frame)
    if inputs:
        _new_values(recorder, op, leaf, node, inputs, frame, switches)


def _new_values(
    recorder: Recorder,
    op: str,
    tensor: Any,
    node: int,
    inputs: list[int],
    frame: FrameType,
    switches: ThreadSwitches,
) -> None:
    """Values, without their history, went into a tensor that keeps its own history."""
    source = recorder.sources.get(node)
    history = tensor.requires_grad
    if source is None and history and is_leaf(tensor):
        return
    written = recorder.record(op, inputs, False, tensor, frame, switches)
    if source is not None:
        source.origin = written
        return
    if history:
        written = recorder.record(op, [node, written], True, tensor, frame, switches)
    recorder.tensors.put(tensor, written, history)


def assign_data(
    recorder: Recorder, leaf: Any, value: Any, frame: FrameType, switches: ThreadSwitches
) -> None:
    """`leaf.data = value`: the values go in, their history does not."""
    node = recorder.node_of(leaf)
    if node is None:
        node = recorder.source(leaf, frame)
    recorder.writes.replaced(recorder, leaf, node, frame)
    into_leaf(recorder, DATA_WRITE, leaf, node, (value,), frame, switches)


def through_data(
    recorder: Recorder, inputs: list[int], node: int, frame: FrameType, switches: ThreadSwitches
) -> None:
    """`x.data.copy_(value)` writes into x behind autograd's back."""
    ref = recorder.aliases.get(inputs[0]) if len(inputs) > 1 else None
    written = torch_api.alive(ref) if ref is not None else None
    known = recorder.node_of(written) if written is not None else None
    if known is not None:
        recorder.aliases[node] = ref
        _new_values(recorder, DATA_WRITE, written, known, [node], frame, switches)


def is_leaf(tensor: Any) -> bool:
    try:
        return bool(tensor.is_leaf)
    except RuntimeError:  # a view made with gradients off, after a write to what it looks into
        return True
