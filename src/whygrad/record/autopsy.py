"""Reads autograd's own graph: which values it kept are gone, stale, or not what they were."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import torch

from whygrad.record import adoption, census, torch_api
from whygrad.record.events import Autopsy, Change, Event, SavedState, SavedValue
from whygrad.record.ops import DATA_WRITE
from whygrad.record.recorder import Recorder
from whygrad.record.timeline import Timeline
from whygrad.record.writes import extent

Parameter = torch.nn.Parameter
_LIVE, _INPUTS = Event._fields.index("live"), Event._fields.index("inputs")
_MAX_WALK = 200_000

_SECOND_TIME = "backward through the graph a second time"
_STALE = "modified by an inplace operation"
_DETACHED = "detached in-place"
_EXPECTED = re.compile(r"expected version (\d+)")
_MESSAGE = re.compile(r"Tensor \[([\d, ]*)\]\].* is at version (\d+); expected version (\d+)")

Range = tuple[int, int]  # of addresses


def concerns_saved_values(text: str) -> bool:
    """Whether an error text is about what autograd kept."""
    return _SECOND_TIME in text or _STALE in text or _DETACHED in text


def examine(recorder: Recorder, timeline: Timeline, roots: list[Any], error_text: str) -> Autopsy:
    """Look at the graph behind tensors whose backward() has just failed."""
    freed: set[int] = set()
    saved: list[SavedValue] = []
    memory = Memory(recorder, timeline)
    for function, event in functions(recorder, roots):
        for name in torch_api.saved_names(function):
            parts = torch_api.raw_saved(function, name)
            text = torch_api.complaint(function, name) if parts else ""
            if _SECOND_TIME in text:
                if event is not None:
                    freed.add(event)
            elif _STALE in text or _DETACHED in text:
                state: SavedState = "stale" if _STALE in text else "detached"
                value = _saved_value(recorder, function, event, name, state)
                memory.explain(value, parts, text)
                saved.append(value)
    if _STALE in error_text and not any(value.changes for value in saved):
        saved += memory.by_message(error_text)
    return _autopsy(saved, freed, recorder, timeline)


def examine_silently_written(
    recorder: Recorder, timeline: Timeline, roots: list[Any]
) -> Autopsy | None:
    """Before a backward(): has what it needs been written to behind autograd's back?"""
    since = recorder.last_silent
    if not _reaches_before(recorder, roots, since):
        return None
    memory = Memory(recorder, timeline)
    saved: list[SavedValue] = []
    for function, event in functions(recorder, roots):
        if event is None:
            continue
        if adoption.time_of(recorder, torch_api.node_sequence(function)) >= since:
            continue
        for name in torch_api.saved_names(function):
            if torch_api.is_unused(function, name):
                continue
            parts = torch_api.raw_saved(function, name)
            value = _saved_value(recorder, function, event, name, "overwritten")
            if memory.silently_changed(value, parts) and not torch_api.complaint(function, name):
                saved.append(value)
    return _autopsy(saved, set(), recorder, timeline) if saved else None


def _autopsy(
    saved: list[SavedValue], freed: set[int], recorder: Recorder, timeline: Timeline
) -> Autopsy:
    saved.sort(key=lambda value: -value.order)
    steps = [(step.time, frozenset(nodes)) for step, nodes in timeline.moved()]
    sources = recorder.sources
    by_hand = [
        write.time
        for write in recorder.writes.log
        if write.node in sources and sources[write.node].parameter
    ]
    return Autopsy(
        saved=saved,
        freed=frozenset(freed),
        passes=list(timeline.passes),
        steps=steps,
        updates=sorted([step.time for step in timeline.steps] + by_hand),
        optimizers=census.optimizers(recorder),
    )


def _saved_value(
    recorder: Recorder, function: Any, event: int | None, name: str, state: SavedState
) -> SavedValue:
    # Through the type: a custom Function's context may have a `name` of its own.
    own_name = str(type(function).name(function)).removeprefix("torch::autograd::")
    order = torch_api.node_sequence(function)
    since = adoption.time_of(recorder, order)
    return SavedValue(event, own_name, name, state, order=order, since=since)


def functions(
    recorder: Recorder, roots: list[Any], seen: set[Any] | None = None
) -> Iterator[tuple[Any, int | None]]:
    """Every autograd node behind the roots that was not seen, with the event that made it."""
    waiting = [root.grad_fn for root in roots]
    seen = set() if seen is None else seen
    while waiting and len(seen) < _MAX_WALK:
        function = waiting.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        if type(function).__name__ == "AccumulateGrad":
            continue
        yield function, adoption.event_of(recorder, torch_api.node_sequence(function))
        waiting += [following for following, _ in function.next_functions]


def _reaches_before(recorder: Recorder, roots: list[Any], time: int) -> bool:
    """Whether the record says that something behind the roots was computed before a time."""
    nodes = [node for root in roots if (node := recorder.node_of(root)) is not None]
    return any(inputs and node < time for node, inputs in recorded_behind(recorder, nodes))


def recorded_behind(
    recorder: Recorder, nodes: Iterable[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Every recorded operation with gradient behind some nodes, these included, and its inputs."""
    events, base = recorder.events, recorder.base
    waiting = list(nodes)
    seen = set(waiting)
    while waiting and len(seen) < _MAX_WALK:
        index = waiting.pop() - base
        if not 0 <= index < len(events) or not events[index][_LIVE]:
            continue
        inputs: tuple[int, ...] = events[index][_INPUTS]
        yield index + base, inputs
        for node in inputs:
            if node not in seen:
                seen.add(node)
                waiting.append(node)


class Memory:
    """Ties memory to parameters and to the writes that changed it."""

    def __init__(self, recorder: Recorder, timeline: Timeline) -> None:
        self.recorder = recorder
        self.timeline = timeline
        self._leaves: dict[int, int] | None = None
        self._steps = list(timeline.moved())

    def explain(self, value: SavedValue, parts: list[Any], text: str) -> None:
        """Find what changed a value that autograd says is not as it was kept."""
        found = _EXPECTED.search(text)
        expected = int(found.group(1)) if found else -1
        for part in parts:
            tensor, memory = _memory(part)
            if tensor is None:
                continue
            leaf = self.leaf(tensor)
            changes = [
                Change("call", write.op, write.time, write.stack, write.node)
                # Time stands still inside a backward(); versions tell what came first there.
                for write in self._writes(value.since - 1, memory)
                if not write.silent
                and (write.version > expected if value.state == "stale" else write.op == "detach_")
            ]
            changes += self._steps_after(value.since, leaf, lambda step: True)
            if changes or not value.shape:
                value.shape, value.leaf = tuple(tensor.shape), leaf
                value.changes = sorted(changes, key=lambda change: change.time)

    def by_message(self, text: str) -> list[SavedValue]:
        """What the message itself tells: a shape and two versions, if they fit one line only.

        For values that autograd does not show: what a checkpoint or another hook has packed.
        """
        found = _MESSAGE.search(text)
        if found is None:
            return []
        shape = tuple(int(size) for size in found.group(1).split(",") if size.strip())
        version, expected = int(found.group(2)), int(found.group(3))
        possible = [
            (write, self.recorder.known_shape(write.node))
            for write in self.recorder.writes.log
            if expected < write.version <= version and not write.silent
        ]
        fitting = [write for write, own in possible if own == shape]
        # A linear layer keeps its input flattened to two dimensions.
        fitting = fitting or [w for w, own in possible if own and _flat(own) == _flat(shape)]
        leaf = self._leaf_like(shape, version) if not fitting else None
        changes = [Change("call", w.op, w.time, w.stack, w.node) for w in fitting]
        changes = changes[-1:] or self._steps_after(-1, leaf, lambda step: True)[-1:]
        if not changes or len({self.recorder.frames.line(w.stack) for w in fitting}) > 1:
            return []
        return [SavedValue(None, "", "", "stale", shape, leaf, changes)]

    def _leaf_like(self, shape: tuple[int, ...], version: int) -> int | None:
        """The one parameter with this shape (or its transpose's) and this version."""
        tensors = self.recorder.tensors
        found = []
        for key, ref in list(tensors.refs.items()):
            tensor = torch_api.alive(ref)
            if not isinstance(tensor, Parameter) or tensor._version != version:
                continue
            if tuple(tensor.shape) in (shape, shape[::-1]):
                found.append(tensors.codes[key] >> 1)
        return found[0] if len(found) == 1 else None

    def silently_changed(self, value: SavedValue, parts: list[Any]) -> bool:
        """Whether something was written to a value without autograd noticing."""
        for part in parts:
            tensor, memory = _memory(part)
            if tensor is None:
                continue
            leaf = self.leaf(tensor)
            own = self._before_data_was_set(tensor)
            first, end = extent(tensor)
            changes = [
                Change("data", write.op, write.time, write.stack, write.node)
                for write in self._writes(value.since, memory, own)
                if write.silent
                and (not write.address or (write.address < end and first < write.end))
            ]
            if leaf is not None and leaf in self.timeline.trained:
                changes += self._steps_after(value.since, leaf, lambda step: step.silent)
            if changes:
                value.shape, value.leaf = tuple(tensor.shape), leaf
                value.changes = sorted(changes, key=lambda change: change.time)
                return True
        return False

    def _before_data_was_set(self, tensor: Any) -> int | None:
        """The node of a tensor whose `.data` was assigned to, from before that."""
        event = self.recorder.event_of(tensor)
        if event is not None and event.op == DATA_WRITE and event.inputs:
            return event.inputs[0]
        return self.recorder.node_of(tensor)

    def leaf(self, tensor: Any) -> int | None:
        """The parameter, or other leaf that wants a gradient, whose memory this is."""
        if self._leaves is None:
            self._leaves = dict(self._known_leaves())
        return self._leaves.get(storage_of(tensor)[0])

    def writes_to(self, tensor: Any) -> list[Change]:
        """Every write to a tensor's memory since it was made."""
        node = self.recorder.node_of(tensor)
        writes = self._writes(-1 if node is None else node, storage_of(tensor))
        changes = [Change("call", w.op, w.time, w.stack, w.node) for w in writes]
        return sorted(changes, key=lambda change: change.time)

    def writes_since(self, tensor: Any, time: int) -> list[Change]:
        """The writes to a tensor's own elements after a time, oldest first."""
        first, end = extent(tensor)
        found = [
            Change("call", w.op, w.time, w.stack, w.node)
            for w in self._writes(time, storage_of(tensor))
            if w.address < end and first < w.end
        ]
        return found[::-1]

    def _known_leaves(self) -> Iterator[tuple[int, int]]:
        tensors = self.recorder.tensors
        for key, ref in list(tensors.refs.items()):
            tensor = torch_api.alive(ref)
            if tensor is None:
                continue
            if isinstance(tensor, Parameter) or (tensor.requires_grad and tensor.is_leaf):
                start = storage_of(tensor)[0]
                if start:
                    yield start, tensors.codes[key] >> 1

    def _writes(self, since: int, memory: Range, own: int | None = None) -> Iterable[Any]:
        for write in reversed(self.recorder.writes.log):
            if write.time <= since:
                return
            if write.address:
                if memory[0] <= write.address < memory[1]:
                    yield write
            elif own is not None and write.node == own:
                yield write

    def _steps_after(self, since: int, leaf: int | None, which: Any) -> list[Change]:
        return [
            Change("step", step.name, step.time, step.stack)
            for step, nodes in self._steps
            if leaf is not None and step.time > since and leaf in nodes and which(step)
        ]


def _flat(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (prod(shape[:-1]), shape[-1]) if shape else ()


def _memory(part: Any) -> tuple[Any, Range]:
    tensor = part.data
    if not isinstance(tensor, torch.Tensor):
        return None, (0, 0)
    return tensor, storage_of(tensor)


def storage_of(tensor: Any) -> Range:
    """The addresses of the memory that a tensor shares with its views."""
    try:
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        return start, start + storage.nbytes()
    except RuntimeError:  # sparse and other tensors without one
        return 0, 0
