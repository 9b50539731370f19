"""Graphs of past steps that stay alive because something still holds their results.

Looked at rarely, at steps that grow further and further apart: a few times in the beginning, to
see whether the number of living graphs grows with every step, and then to see whether it stopped.
"""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections import Counter, OrderedDict, defaultdict, deque
from types import FrameType
from typing import Any

from whygrad.record import autopsy, torch_api
from whygrad.record.events import Event, Kept
from whygrad.record.recorder import Recorder
from whygrad.record.timeline import Timeline

_FIRST_LOOK = 8
_FEWEST = 6  # graphs alive before it is worth a word
_GROWTH = 0.7  # graphs more per step
_SITE = Event._fields.index("site")
_KEYED = (defaultdict, OrderedDict)
_CONTAINERS = (list, tuple, dict, set, deque, *_KEYED)
_MAX_DEPTH, _MAX_BREADTH = 4, 64  # of the search for who holds a result


class Keepers:
    """Counts the steps whose graphs are alive, and says who keeps them."""

    def __init__(self, recorder: Recorder, timeline: Timeline) -> None:
        self.recorder = recorder
        self.timeline = timeline
        self.growing = False
        self.confirmed = False  # it went on growing after it was told
        self.steps = 0
        self.next_look = _FIRST_LOOK
        self._before: tuple[int, int] | None = None  # time and count of the last look
        self._most = 0  # graphs alive at any look

    def look(self) -> Kept | None:
        """It is time to look again: if graphs pile up, tell of them."""
        self.next_look = 2 * self.steps
        borders = self._borders()
        tensors = self._results()
        alive = len(self._alive_steps(tensors, borders))
        before, self._before = self._before, (self.recorder.now, alive)
        if before is None:
            return None
        grows = alive - before[1] >= _GROWTH * sum(border > before[0] for border in borders)
        if self.growing:
            self.confirmed = self.confirmed or grows
            # A number that stays is a window that somebody chose, unless the record itself ends.
            known = sum(border >= self.recorder.base for border in borders)
            self.growing = grows or alive >= _GROWTH * known or abs(alive - self._most) > 1
            self._most = max(self._most, alive)
            return None
        self._most = max(self._most, alive)
        found = self._confirm(tensors, borders) if grows and alive >= _FEWEST else None
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
                tensor = torch_api.alive(tensors.refs[key])
                if tensor is not None and tensor.grad_fn is not None:
                    found.append((code >> 1, tensor))
        return found

    def _alive_steps(self, tensors: list[tuple[int, Any]], borders: list[int]) -> set[int]:
        """The steps whose operations the record sees behind these tensors."""
        behind = autopsy.recorded_behind(self.recorder, [node for node, _ in tensors])
        steps = {bisect_right(borders, node) for node, inputs in behind if inputs}
        return steps - {len(borders) - 1, len(borders)}

    def _confirm(self, tensors: list[tuple[int, Any]], borders: list[int]) -> Kept | None:
        """Count on autograd's own graph, and find what holds on to it."""
        steps_of: dict[int, set[int]] = {}
        nodes = held = 0
        seen: set[Any] = set()
        memory: set[int] = set()
        # The newest first: what it holds is not counted again for those behind it.
        for node, tensor in sorted(tensors, key=lambda pair: -pair[0]):
            mine = steps_of.setdefault(node, set())
            for function, made in autopsy.functions(self.recorder, [tensor], seen):
                nodes += 1
                held += _held_bytes(function, memory)
                if made is not None:
                    mine.add(bisect_right(borders, made))
        steps = set().union(*steps_of.values()) - {len(borders) - 1, len(borders)}
        if len(steps) < _FEWEST:
            return None
        return self._keeper(tensors, steps_of, steps, borders, nodes, held)

    def _keeper(
        self,
        tensors: list[tuple[int, Any]],
        steps_of: dict[int, set[int]],
        steps: set[int],
        borders: list[int],
        nodes: int,
        held: int,
    ) -> Kept:
        events, base = self.recorder.events, self.recorder.base
        # What lies behind another living result may be alive just because of that one.
        behind = self._behind(tensors)
        ends = [pair for pair in tensors if pair[0] not in behind]
        sites = Counter(events[node - base][_SITE] for node, _ in ends)
        site, count = sites.most_common(1)[0]
        # One result for each step is a collection; one that holds many steps, a running sum.
        chained = count < len(steps) / 2
        if chained:
            node = max((node for node, _ in ends), key=lambda node: (len(steps_of[node]), node))
            node, name = self._newest_link(node, borders), ""
        else:
            # The oldest: this step's own result may not have been stored yet.
            same = [pair for pair in ends if events[pair[0] - base][_SITE] == site]
            node, tensor = min(same, key=lambda pair: pair[0])
            name = _container_name(tensor, len(steps) // 2)
        return Kept(node, len(steps), nodes, held, chained, name)

    def _newest_link(self, end: int, borders: list[int]) -> int:
        """The latest operation behind a result that ties a step to one before it."""
        behind = dict(autopsy.recorded_behind(self.recorder, [end]))
        links = [
            node
            for node, inputs in behind.items()
            if any(behind.get(i) and _is_earlier(borders, i, node) for i in inputs)
        ]
        return max(links, default=end)

    def _behind(self, tensors: list[tuple[int, Any]]) -> set[int]:
        """The nodes from which some living result was computed."""
        behind = autopsy.recorded_behind(self.recorder, [node for node, _ in tensors])
        return {node for _, inputs in behind for node in inputs}


def _is_earlier(borders: list[int], node: int, other: int) -> bool:
    """Whether a node belongs to an earlier step than another."""
    return bisect_right(borders, node) < bisect_right(borders, other)


def _held_bytes(function: Any, counted: set[int]) -> int:
    """How much memory the values take that a node still keeps for backward."""
    total = 0
    for name in torch_api.saved_names(function):
        for part in torch_api.raw_saved(function, name):
            tensor = part.data
            if tensor is None or (tensor.is_leaf and tensor.requires_grad):
                continue
            start, end = autopsy.storage_of(tensor)
            if start not in counted:
                counted.add(start)
                total += end - start
    return total


def _container_name(tensor: Any, fewest: int) -> str:
    """The attribute or variable of a module that holds the collection a tensor is in."""
    level: list[Any] = [tensor]
    seen: set[int] = set()
    for _ in range(_MAX_DEPTH):
        holders = [
            thing
            for thing in gc.get_referrers(*level)
            if type(thing) in _CONTAINERS and thing is not level and id(thing) not in seen
        ]
        for thing in holders:
            name = _attribute(thing) if len(thing) >= fewest and type(thing) is not tuple else ""
            if name:
                return name
        seen.update(id(thing) for thing in holders)
        level = [thing for thing in holders if not _is_namespace(thing)][:_MAX_BREADTH]
        if not level:
            break
    return ""


def _is_namespace(thing: Any) -> bool:
    return type(thing) is dict and "__builtins__" in thing


def _attribute(container: Any) -> str:
    """The name under which an object or a module holds a container, itself or in a dict."""
    for owner in gc.get_referrers(container):
        kind = type(owner)
        if kind is dict or kind in _KEYED:
            if _is_namespace(owner) or _is_instance_dict(owner):
                for key, value in list(owner.items()):
                    if value is container and isinstance(key, str):
                        return key
            else:
                name = _attribute(owner) if len(owner) < _MAX_BREADTH else ""
                if name:
                    return name
        elif kind not in _CONTAINERS and kind is not FrameType:
            # An object whose attributes have no dictionary of their own yet.
            attributes = getattr(owner, "__dict__", None) if not isinstance(owner, type) else None
            for key, value in list(attributes.items()) if type(attributes) is dict else ():
                if value is container:
                    return str(key)
    return ""


def _is_instance_dict(thing: dict[Any, Any]) -> bool:
    return any(
        getattr(owner, "__dict__", None) is thing
        for owner in gc.get_referrers(thing)
        if type(owner) not in _CONTAINERS and type(owner) is not FrameType
    )
