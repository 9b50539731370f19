"""What a rule sees: the question, the graph, and the separations that were found on it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from whygrad.diagnose.absences import Absence
from whygrad.graph.flow import FlowGraph
from whygrad.graph.lifetime import Lifetime, Meeting
from whygrad.graph.places import Places
from whygrad.graph.separate import Separation
from whygrad.record.events import ParameterInfo, Question
from whygrad.source.arguments import argument_text
from whygrad.source.spans import Span
from whygrad.source.tree import assigned_names, callee_name, receiver_text

_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@dataclass(slots=True)
class Case:
    """One question with everything needed to answer it."""

    question: Question
    graph: FlowGraph
    places: Places
    roots: tuple[int, ...] = ()
    leaves: list[int] = field(default_factory=list)  # what should get a gradient
    separations: list[Separation] = field(default_factory=list)
    unreached: bool = False  # no trainable leaf lies behind the root at all
    lifetime: Lifetime | None = None  # for questions about what autograd kept
    meeting: Meeting | None = None  # with an earlier pass over a part of the same graph
    absence: Absence | None = None  # a gradient that was not there, which Python tripped over
    awaiting: set[int] = field(default_factory=set)  # a loss of theirs was never gone back from
    spoken: str = ""  # what the root is called, where that is not what backward() starts from

    @property
    def raises(self) -> bool:
        return self.question.kind.endswith("raised")

    def parameter(self, node: int) -> ParameterInfo | None:
        for info in self.question.parameters:
            if info.node == node:
                return info
        return None

    def name(self, node: int) -> str:
        """The name a person knows a leaf by; the variable it was assigned to, if it has none."""
        info = self.parameter(node)
        if info is not None and info.name:
            return info.name
        span = self.places.node_span(node)
        source = self.graph.source(node)
        made_here = source is None or bool(source.made_by)
        names = assigned_names(span) if span is not None and made_here else []
        if names:
            return names[0]
        if span is not None:
            return f"tensor first used at {os.path.basename(span.file)}:{span.line}"
        return "tensor"

    def names(self, nodes: list[int]) -> list[str]:
        """Names of leaves, in the order in which their module lists them."""
        order = {info.node: place for place, info in enumerate(self.question.parameters)}
        ordered = sorted(nodes, key=lambda node: (order.get(node, len(order)), -node))
        return list(dict.fromkeys(self.name(node) for node in ordered))

    def shape(self, node: int) -> list[int] | None:
        event = self.graph.event(node)
        shape = (
            event.shape if event is not None else getattr(self.graph.source(node), "shape", None)
        )
        return None if shape is None else [int(size) for size in shape]

    @property
    def surface(self) -> Span | None:
        """Where it surfaced: the failing call, or the backward() that left gradients out."""
        return self.user_span(self._surface_stack)

    @property
    def _surface_stack(self) -> int:
        root = self.roots[0] if self.roots else None
        for separation in self.separations[:1]:
            root = separation.root
        return self.question.root_stacks.get(root or 0, self.question.stack)

    def user_span(self, stack: int) -> Span | None:
        spans = self.places.spans(stack)
        for span in spans:
            if not is_library(span.file):
                return span
        return spans[0] if spans else None

    @property
    def take_out(self) -> str:
        """The first half of an advice that only makes sense if there is an optimizer."""
        held = any(info.in_optimizer for info in self.question.parameters)
        return "take them out of the optimizer, or " if held else ""

    @property
    def root_name(self) -> str:
        """The variable on which backward() was called."""
        if self.spoken:
            return self.spoken
        surface = self.surface
        text = None
        if surface is not None and self.question.kind == "asked":
            text = argument_text(surface, 0, "thing")
        elif surface is not None and surface == self.places.spans(self._surface_stack)[0]:
            text = receiver_text(surface)
        elif surface is not None and "backward" in (callee_name(surface) or ""):
            text = argument_text(surface, 0, "loss")  # a library calls it: engine.backward(loss)
        if text and len(text) <= 30 and "\n" not in text:
            return text
        return "loss"

    def held_without_grad(self, behind: set[int]) -> list[int]:
        """Plain tensors that an optimizer should change but that never asked for a gradient."""
        return [
            info.node
            for info in self.question.parameters
            if info.in_optimizer
            and not info.registered
            and not info.requires_grad
            and info.node in behind
        ]

    def blame(self, stack: int, fed_by: int | None) -> tuple[Span | None, Span | None]:
        """(the line to change, the library's line if that is another one).

        Code of an installed library is to blame only if it also made the value that is lost;
        otherwise the user's own call handed the value in, and that call can be changed.
        """
        spans = self.places.spans(stack)
        if not spans:
            return None, None
        inner = spans[0]
        if not is_library(inner.file):
            return inner, None
        maker = self.places.node_span(fed_by) if fed_by is not None else None
        if maker is not None and _package(maker.file) == _package(inner.file):
            return inner, None
        user = self.user_span(stack)
        if user is None or user is inner:
            return inner, None
        return user, inner


def is_library(file: str) -> bool:
    """Whether a file belongs to an installed package."""
    return any(part in file for part in _PACKAGES)


def _package(file: str) -> str:
    for part in _PACKAGES:
        if part in file:
            return file.split(part, 1)[1].split(os.sep, 1)[0]
    return file
