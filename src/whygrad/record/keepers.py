"""Graphs of past steps that stay alive because something still holds their results.

Looked at rarely, at steps that grow further and further apart: a few times in the beginning, to
see whether the number of living graphs grows with every step, and then to see whether it stopped.
"""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections import Counter, deque
from typing import Any

from whygrad.record import adoption, torch_api
from whygrad.record.events import Event, Kept
from whygrad.record.recorder import Recorder
from whygrad.record.timeline import Timeline

_FIRST_LOOK = 8
_FEWEST = 6  # graphs alive before it is worth a word
_GROWTH = 0.7  # graphs more per step
_MAX_NODES = 100_000
_LIVE, _INPUTS, _SITE = (Event._fields.index(name) for name in ("live", "inputs", "site"))
_CONTAINERS = (list, tuple, dict, set, deque)


class Keepers:
    """Counts the steps whose graphs are alive, and says who keeps them."""

    def __init__(self, recorder: Recorder, timeline: Timeline) -> None:
        self.recorder = recorder
        self.timeline = timeline
        self.growing = False
        self._next_look = _FIRST_LOOK
        self._steps = 0
        self._before: tuple[int, int] | None = None  # step and count of the last look

    def look(self) -> Kept | None:
        """A step is being taken: if it is time to look, and graphs pile up, tell of them."""
        self._steps += 1
        if self._steps < self._next_look:
            return None
        self._next_look = self._steps + max(_FIRST_LOOK, self._steps // 2)
        borders = self._borders()
        tensors = self._results()
        alive = self._alive_steps(tensors, borders)
        before, self._before = self._before, (self._steps, len(alive))
        if before is None:
            return None
        grown, steps = len(alive) - before[1], self._steps - before[0]
        if self.growing:
            self.growing = grown != 0  # a fixed number is a window that somebody chose
            return None
        if len(alive) < _FEWEST or grown < _GROWTH * steps:
            return None
        found = self._confirm(tensors, borders)
        self.growing = found is not None
        return found

    def _borders(self) -> list[int]:
        """Where the steps of the optimizer that steps most begin."""
        steps = Counter(step.optimizer for step in self.timeline.steps)
        most, _ = steps.most_common(1)[0]
        return [step.time for step in self.timeline.steps if step.optimizer == most]

    def _results(self) -> list[tuple[int, Any]]:
        """Living tensors with a history."""
        tensors, base = self.recorder.tensors, self.recorder.base
        found = []
        for key, code in list(tensors.codes.items()):
            if code & 1 and code >= 2 * base:
                tensor = tensors.refs[key]()
                if tensor is not None and tensor.grad_fn is not None:
                    found.append((code >> 1, tensor))
        return found

    def _alive_steps(self, tensors: list[tuple[int, Any]], borders: list[int]) -> set[int]:
        """The steps whose operations the record sees behind these tensors."""
        events, base = self.recorder.events, self.recorder.base
        waiting = [node for node, _ in tensors]
        seen = set(waiting)
        steps: set[int] = set()
        while waiting and len(seen) < _MAX_NODES:
            index = waiting.pop() - base
            if not 0 <= index < len(events) or not events[index][_LIVE]:
                continue
            if events[index][_INPUTS]:
                steps.add(bisect_right(borders, index + base))
            for node in events[index][_INPUTS]:
                if node not in seen:
                    seen.add(node)
                    waiting.append(node)
        return steps - {len(borders) - 1, len(borders)}

    def _confirm(self, tensors: list[tuple[int, Any]], borders: list[int]) -> Kept | None:
        """Count on autograd's own graph, and find what holds on to it."""
        steps_of: dict[int, set[int]] = {}
        nodes = held = 0
        seen: set[Any] = set()
        memory: set[int] = set()
        for node, tensor in sorted(tensors, key=lambda pair: pair[0]):
            mine = steps_of.setdefault(node, set())
            waiting = [tensor.grad_fn]
            while waiting and len(seen) < _MAX_NODES:
                function = waiting.pop()
                if function is None or function in seen:
                    continue
                seen.add(function)
                if type(function).__name__ == "AccumulateGrad":
                    continue
                nodes += 1
                held += _held_bytes(function, memory)
                made = adoption.event_of(self.recorder, torch_api.node_sequence(function))
                if made is not None:
                    mine.add(bisect_right(borders, made))
                waiting += [following for following, _ in function.next_functions]
        steps = set().union(*steps_of.values()) - {len(borders) - 1, len(borders)}
        if len(steps) < _FEWEST:
            return None
        return self._keeper(tensors, steps_of, steps, nodes, held)

    def _keeper(
        self,
        tensors: list[tuple[int, Any]],
        steps_of: dict[int, set[int]],
        steps: set[int],
        nodes: int,
        held: int,
    ) -> Kept | None:
        events, base = self.recorder.events, self.recorder.base
        sites = Counter(events[node - base][_SITE] for node, _ in tensors)
        # One result that holds many steps is a sum; one result for each step, a collection.
        site, count = sites.most_common(1)[0]
        same = [pair for pair in tensors if events[pair[0] - base][_SITE] == site]
        newest, tensor = max(same, key=lambda pair: pair[0])
        chained = count < len(steps) / 2
        if chained:
            newest, tensor = max(tensors, key=lambda pair: (len(steps_of[pair[0]]), pair[0]))
        return Kept(
            node=newest,
            steps=len(steps),
            nodes=nodes,
            held_bytes=held,
            chained=chained,
            container="" if chained else _container_name(tensor, len(steps) // 2),
        )


def _held_bytes(function: Any, counted: set[int]) -> int:
    """How much memory the values take that a node still keeps for backward."""
    total = 0
    for name in torch_api.saved_names(function):
        for part in torch_api.raw_saved(function, name):
            tensor = part.data
            if tensor is None or (tensor.is_leaf and tensor.requires_grad):
                continue
            try:
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in counted:
                    counted.add(storage.data_ptr())
                    total += storage.nbytes()
            except (RuntimeError, NotImplementedError):
                continue
    return total


def _container_name(tensor: Any, fewest: int) -> str:
    """The attribute or global name of the collection that a tensor is in, if it has one."""
    level: list[Any] = [tensor]
    seen = {id(level)}
    for _ in range(4):
        ours = {id(level), id(seen)}
        referrers = [
            thing
            for thing in gc.get_referrers(*level)
            if type(thing) in _CONTAINERS and id(thing) not in ours and id(thing) not in seen
        ]
        for thing in referrers:
            if len(thing) >= fewest and type(thing) is not tuple:
                name = _name_in_owner(thing)
                if name:
                    return name
        seen.update(id(thing) for thing in referrers)
        level = referrers[:64]
        if not level:
            break
    return ""


def _name_in_owner(container: Any) -> str:
    for owner in gc.get_referrers(container):
        if type(owner) is dict:
            for key, value in list(owner.items()):
                if value is container and isinstance(key, str):
                    return key
    return ""
