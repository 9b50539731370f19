"""Tensors with a history that no recorded call gave them: there autograd's own graph knows more.

Custom Functions and scripted code run out of sight. Their outputs are taken into the record when
they are first used, with the inputs that autograd remembers.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from types import FrameType
from typing import TYPE_CHECKING, Any

from whygrad.record import torch_api
from whygrad.record.events import GRAD_ON, Event

if TYPE_CHECKING:
    from whygrad.record.recorder import Recorder

_MAX_ADOPTED = 4096
_MAX_WALK = 2000
_LIVE, _SEQUENCE, _STACK = (Event._fields.index(n) for n in ("live", "sequence", "stack"))


def wake(recorder: Recorder, tensor: Any, node: int, frame: FrameType | None) -> int:
    """The node of a tensor recorded without gradient that has one now.

    It was flagged with requires_grad_(), or it is the output of a custom Function, whose forward
    runs with gradients off.
    """
    if not tensor.is_leaf:
        return adopt(recorder, tensor, frame, node)
    if node in recorder.sources:
        recorder.sources[node].requires_grad = True
    recorder.tensors.set_live(tensor, True)
    return node


def adopt(
    recorder: Recorder, tensor: Any, frame: FrameType | None, inner: int | None = None
) -> int:
    """Make an event for the unseen call behind a tensor; `inner` is what ran inside of it."""
    function = tensor.grad_fn
    if torch_api.is_custom(function) and not torch_api.is_compiled(function):
        recorder.heed_backward()
    # A checkpoint computes again what ran inside: gradient passes there, and nowhere else.
    recomputed = inner is not None and torch_api.is_checkpoint(function)
    inputs = [] if recomputed else inputs_of(recorder, function)
    if inner is not None:
        inputs.append(inner)
    name = _name_of(function)
    node = recorder.append(
        (
            name,
            _call_site(recorder, name, inner) or recorder.frames.site(frame),
            tuple(inputs),
            True,
            GRAD_ON,
            recorder.shape_of(tensor),
            tensor.dtype,
            torch_api.sequence_number(),
            0,
            "",
            False,
        )
    )
    remember(recorder, function, node)
    recorder.tensors.put(tensor, node, True)
    return node


def remember(recorder: Recorder, function: Any, node: int) -> None:
    """This autograd node is that node of the record."""
    sequence = torch_api.node_sequence(function)
    if sequence >= 0:
        recorder.adopted[sequence] = node
        if len(recorder.adopted) > _MAX_ADOPTED:
            del recorder.adopted[next(iter(recorder.adopted))]


def _call_site(recorder: Recorder, name: str, inner: int | None) -> int | None:
    """Where a custom Function was called, if something that its forward did was seen."""
    index = -1 if inner is None else inner - recorder.base
    if not 0 <= index < len(recorder.events):
        return None
    frames = recorder.frames
    sites: tuple[int, ...] = frames.stacks[recorder.events[index][_STACK]]
    for inside, caller in pairwise(sites):
        if f".{frames.sites[inside].code.co_qualname}".endswith(f".{name}.forward"):
            return caller
    return None


def _name_of(function: Any) -> str:
    # Through the type: a custom Function's context may have a `name` of its own.
    name = type(function).name(function) if function is not None else "unknown"
    return str(name).removeprefix("torch::autograd::").removesuffix("Backward")


def inputs_of(recorder: Recorder, function: Any) -> list[int]:
    """Nodes that feed an autograd node, through unseen nodes in between."""
    found: list[int] = []
    waiting: list[Any] = [function]
    seen: set[Any] = set()
    while waiting and len(seen) < _MAX_WALK:
        for following, _ in getattr(waiting.pop(), "next_functions", ()):
            if following is None or following in seen:
                continue
            seen.add(following)
            # By the name of its type: a custom Function may have a `variable` of its own.
            if type(following).__name__ == "AccumulateGrad":
                variable = following.variable
                known = recorder.node_of(variable)
                found.append(recorder.source(variable, None) if known is None else known)
                continue
            node = event_of(recorder, torch_api.node_sequence(following))
            if node is None:
                waiting.append(following)
            else:
                found.append(node)
    return found


def time_of(recorder: Recorder, sequence: int) -> int:
    """The last event that had begun when autograd made its node with this number.

    An unseen call gets its event when its output is first used, which may be much later.
    """
    index = bisect_right(recorder.events, sequence, key=lambda event: event[_SEQUENCE])
    return recorder.base + index - (sequence in recorder.adopted)


def event_of(recorder: Recorder, sequence: int) -> int | None:
    """The event during which autograd made its node with this number."""
    if sequence < 0:
        return None
    if sequence in recorder.adopted:
        return recorder.adopted[sequence]
    events = recorder.events
    index = bisect_right(events, sequence, key=lambda event: event[_SEQUENCE])
    if index >= len(events):
        return None
    earlier = events[index - 1][_SEQUENCE] if index else sequence
    if earlier > sequence:
        return None
    # One call can leave several events: for what carries gradient, and for what does not.
    made = events[index][_SEQUENCE]
    while index < len(events) and events[index][_SEQUENCE] == made:
        if events[index][_LIVE]:
            return recorder.base + index
        index += 1
    return None
