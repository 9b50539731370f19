"""Makes questions: plain data about what went wrong, taken while it is all alive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from whygrad import catalogue
from whygrad.record import census, torch_api
from whygrad.record.complaints import Complaints
from whygrad.record.events import Change, Complaint, History, Question, QuestionKind
from whygrad.record.health import Health
from whygrad.record.probe import living_values
from whygrad.record.recorder import Recorder
from whygrad.record.timeline import Timeline

OF_VALUES = "nan-gradient"  # messages for which the numbers in tensors matter


class Words(NamedTuple):
    """A warning: its class and its text."""

    category: str
    text: str

    def __str__(self) -> str:
        return self.text


def _class_name(error: BaseException | Words) -> str:
    return error.category if isinstance(error, Words) else type(error).__name__


class Questions:
    """What is known of the past, and how a question is made of it."""

    def __init__(
        self, recorder: Recorder, answer: Callable[[Question], None], watch_steps: frozenset[int]
    ) -> None:
        self.recorder = recorder
        self.answer = answer
        self.timeline = Timeline(recorder)
        self.health = Health(recorder, watch_steps)
        self.complaints = Complaints(recorder)
        self.complaints.hooks.held = lambda: self.health.ledger.held_nodes

    def ask(
        self,
        kind: QuestionKind,
        roots: list[Any],
        targets: list[Any],
        stack: int,
        error: BaseException | Words | None = None,
        **details: Any,
    ) -> None:
        self.answer(self.make_question(kind, roots, targets, stack, error, **details))

    def make_question(
        self,
        kind: QuestionKind,
        roots: list[Any],
        targets: list[Any],
        stack: int,
        error: BaseException | Words | None,
        **details: Any,
    ) -> Question:
        recorder = self.recorder
        if details.get("complaint") is not None:
            self._tell_history(details["complaint"])
        return Question(
            kind=kind,
            roots=tuple(self.node_number(tensor) for tensor in roots),
            targets=tuple(self.node_number(tensor) for tensor in targets),
            stack=stack,
            step=recorder.step,
            error_type=_class_name(error) if error else "",
            error_text=str(error) if error else "",
            parameters=[] if recorder.gate.crowded else census.take(recorder),
            **details,
        )

    def _tell_history(self, complaint: Complaint) -> None:
        health, message = self.health, catalogue.by_id(complaint.message)
        failed = [health.failed] if health.failed is not None else []
        complaint.history = History(
            account=health.ledger.account(),
            scaling=list(health.ledger.scaling),
            traces=[*health.traces, *failed],
            sizes=list(health.sizes),
            writes=self.writes_into(holding.node for holding in complaint.held),
            converted=self._converted(),
        )
        if message is not None and message.told_by == OF_VALUES and not complaint.warning:
            with torch_api.without_torch_function():
                complaint.history.values = living_values(self.recorder)

    def _converted(self) -> dict[int, int]:
        wrapped = [made.born for _, made in self.complaints.makers.replicas()]
        converted = self.recorder.writes.converted if wrapped else {}
        return {node: stack for node, (time, stack) in converted.items() if time >= min(wrapped)}

    def node_number(self, tensor: Any) -> int:
        node = self.recorder.node_of(tensor)
        return self.recorder.source(tensor, None) if node is None else node

    def roots_since(self, number: int) -> dict[int, int]:
        """Root -> stack of the backward calls after the given one, the latest first."""
        return {
            node: passed.stack
            for passed in reversed(self.timeline.passes)
            if passed.number > number and passed.call == "backward"
            for node in passed.roots
        }

    def writes_into(self, nodes: Iterable[int]) -> list[Change]:
        """Where these parameters were last written to."""
        into = self.recorder.writes.into
        return [
            Change("call", into[node].op, into[node].time, into[node].stack, node)
            for node in nodes
            if node in into
        ]
