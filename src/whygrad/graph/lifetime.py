"""Queries on time: which part of a graph did an earlier backward() already go through, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from whygrad.graph.flow import FlowGraph
from whygrad.record.events import Autopsy, Event, Pass, Question

MeetingKind = Literal["same", "inside", "contains", "carried", "shared"]


@dataclass(slots=True)
class Meeting:
    """Two backward passes over one part of the graph.

    `same`: the very same root; `inside`: this root is part of what the earlier pass went
    through; `contains`: the earlier root is part of this one; `carried`: a value of an earlier
    iteration is used in this one; `shared`: two losses over one part.
    """

    kind: MeetingKind
    earlier: Pass
    shared: set[int]  # events in both graphs
    enter: int | None  # the event at which the shared part enters this root's own graph
    maker: int  # the shared event whose output is used there
    before: int | None  # the event at which it entered the graph of the earlier pass
    repeated: bool  # both passes began at the same place of the program: a loop


class Lifetime:
    """What lies behind a root that failed, compared with the passes before it."""

    def __init__(self, graph: FlowGraph, question: Question, autopsy: Autopsy) -> None:
        self.graph = graph
        self.question = question
        self.autopsy = autopsy
        self._behind: dict[tuple[int, ...], set[int]] = {}
        self._through: dict[tuple[int, ...], set[int]] = {}

    def behind(self, roots: Iterable[int]) -> set[int]:
        """The nodes that gradient from these roots would come to."""
        key = tuple(roots)
        if key not in self._behind:
            self._behind[key] = self._live_ancestors(key)
        return self._behind[key]

    def _live_ancestors(self, roots: tuple[int, ...]) -> set[int]:
        graph = self.graph
        found = {root for root in roots if graph.live(root)}
        seen, waiting = set(found), list(found)
        while waiting:
            current = waiting.pop()
            inputs = graph.inputs(current)
            # A checkpoint runs with gradients off, and its output has a history all the same:
            # the way back leads through what ran inside of it.
            inside = not graph.live(current) or not any(graph.live(node) for node in inputs)
            for node in inputs:
                if node not in seen and (inside or graph.live(node)):
                    seen.add(node)
                    waiting.append(node)
                    if graph.live(node):
                        found.add(node)
        self._through[roots] = seen
        return found

    @cached_property
    def own(self) -> set[int]:
        return self.behind(self.question.roots)

    @property
    def _walked(self) -> set[int]:
        """The root's own nodes, and what ran inside of checkpoints among them."""
        return self._through[tuple(self.question.roots)] if self.own else set()

    def meeting_over(self, events: Iterable[int], *, retained: bool) -> Meeting | None:
        """The latest earlier pass that went through one of these events, and how they meet.

        A pass that retained its graph has freed nothing, so it counts only if asked for.
        """
        wanted = set(events) & self.own
        for earlier in reversed(self.autopsy.passes):
            # autograd.grad() with create_graph is meant for a second pass: no sign of a mistake.
            if earlier.retained and (not retained or earlier.call == "grad"):
                continue
            passed = self.behind(earlier.roots)
            if wanted & passed:
                shared = {n for n in self.own & passed if self._is_operation(n)}
                return self._meeting(earlier, shared)
        return None

    def _is_operation(self, node: int) -> bool:
        return node >= 0 and not self.graph.trainable_leaf(node)

    def _meeting(self, earlier: Pass, shared: set[int]) -> Meeting:
        roots = set(self.question.roots)
        repeated = self._previous is not None
        first = min(self.question.roots, default=0)
        if roots & set(earlier.roots):
            return Meeting("same", earlier, shared, None, first, None, repeated)
        if roots <= shared:
            return Meeting("inside", earlier, shared, None, first, None, repeated)
        enter, maker = self._enter(shared, earlier)
        kind: MeetingKind = "shared"
        if maker in earlier.roots:
            kind = "carried" if earlier.stack == self.question.stack else "contains"
        else:
            carried = self._carried(shared, self._previous or earlier)
            # A critic may be trained several times on one output of a generator.
            if carried is not None and not (self._made_once(carried[1]) and self._apart(shared)):
                kind, (enter, maker) = "carried", carried
        before = [
            node for node in self.behind(earlier.roots) - shared if maker in self.graph.inputs(node)
        ]
        return Meeting(kind, earlier, shared, enter, maker, min(before, default=None), repeated)

    def carried_over(self, events: Iterable[int]) -> Meeting | None:
        """Whether these events belong to an earlier iteration, gone back through then or not."""
        wanted = set(events) & self.own
        carried = self._carried(wanted, self._previous) if self._previous is not None else None
        if carried is None or self._previous is None:
            return None
        enter, maker = carried
        shared = {node for node in self.behind((maker,)) if self._is_operation(node)}
        return Meeting("carried", self._previous, shared, enter, maker, None, True)

    def _carried(self, wanted: set[int], border: Pass) -> tuple[int, int] | None:
        """The use, after an earlier pass, of a value from before it that leads to some events.

        It is carried over from an earlier iteration if the pass was this same line's, one round
        of a loop ago. Else the same parameters must be at work in both parts, as in a recurrent
        model, and have been updated in between: two networks may well share a part.
        """
        leading = self._built_on(wanted)
        uses = [
            (node, feeder)
            for node in self._walked
            if node >= border.time
            for feeder in self.graph.inputs(node)
            if feeder < border.time and feeder in leading and self._is_operation(feeder)
        ]
        if not uses:
            return None
        old = self.behind({feeder for _, feeder in uses})
        recurrent = bool(self._leaves(old) & self._leaves(self.own - old))
        updated = self._updated_since(border.time)
        in_loop = border.stack == self.question.stack
        return min(uses) if (updated or in_loop) and (recurrent or (in_loop and updated)) else None

    @cached_property
    def _previous(self) -> Pass | None:
        """The last time that the line which failed now went through."""
        stack = self.question.stack
        return next((p for p in reversed(self.autopsy.passes) if p.stack == stack), None)

    def _enter(self, shared: set[int], earlier: Pass) -> tuple[int | None, int]:
        """The use of the shared part in this root's own graph; after the pass, if there is one."""
        uses = [
            (node, feeder)
            for node in self.own - shared
            for feeder in self.graph.inputs(node)
            if feeder in shared
        ]
        if not uses:
            return None, max(shared, default=0)
        late = [use for use in uses if use[0] >= earlier.time]
        # What an earlier pass began with is the clearest thing to name.
        begun = [use for use in late if use[1] in earlier.roots]
        return min(begun or late or uses)

    def _built_on(self, wanted: set[int]) -> set[int]:
        """The nodes behind the root from which gradient would come to some events."""
        found = set(wanted)
        for node in sorted(self._walked):  # events come after what they are computed from
            if any(feeder in found for feeder in self.graph.inputs(node)):
                found.add(node)
        return found

    def _updated_since(self, time: int) -> bool:
        return any(update >= time for update in self.autopsy.updates)

    def _leaves(self, nodes: Iterable[int]) -> set[int]:
        """The trainable leaves that these operations use directly."""
        graph = self.graph
        return {
            feeder
            for node in nodes
            for feeder in graph.inputs(node)
            if graph.trainable_leaf(feeder)
        }

    # --- questions that rules ask -------------------------------------------------------------

    def parameters_of(self, nodes: Iterable[int]) -> list[int]:
        """The leaves that these operations use, the first used first."""
        return sorted(self._leaves(nodes), reverse=True)

    def trained_apart(self, meeting: Meeting) -> bool:
        """Whether the shared part is trained by one optimizer and the rest by another."""
        return self._apart(meeting.shared)

    def _apart(self, shared: set[int]) -> bool:
        inside, rest = self._leaves(shared), self._leaves(self.own - shared)
        for nodes in self.autopsy.optimizers:
            if rest & nodes and not inside & nodes:
                return any(inside & other for other in self.autopsy.optimizers)
        return False

    def first_was_for_another(self, meeting: Meeting) -> bool:
        """Whether the earlier pass was followed by a step that leaves the shared part alone.

        Then it was that pass which had no business in the shared part.
        """
        shared = self._leaves(meeting.shared)
        after = [nodes for time, nodes in self.autopsy.steps if time >= meeting.earlier.time]
        return bool(after and after[0] and not after[0] & shared)

    def other_parameters(self, meeting: Meeting) -> bool:
        """Whether the two losses use different parameters beside the shared part: heads."""
        mine = self._leaves(self.own - meeting.shared)
        other = self._leaves(self.behind(meeting.earlier.roots) - meeting.shared)
        return bool(mine and other and not mine & other)

    def made_once(self, meeting: Meeting) -> bool:
        """Whether the line that made the carried value has not run again since."""
        return self._made_once(meeting.maker)

    def _made_once(self, maker: int) -> bool:
        event = self.graph.event(maker)
        time = maker + 1
        recording = self.graph.recording
        since = recording.events[max(0, time - recording.base) :]
        return event is not None and all(Event(*fields).site != event.site for fields in since)

    def step_at(self, time: int) -> int:
        """The number of the step, from 1, in which something happened."""
        recorded = self.autopsy.steps
        dropped = max(0, self.question.step - 1 - len(recorded))
        return 1 + dropped + sum(step < time for step, _ in recorded)
