"""Where a value of the past comes in: the line at which somebody still held on to it."""

from __future__ import annotations

from dataclasses import dataclass

from whygrad.diagnose.case import Case, is_library
from whygrad.graph.lifetime import Meeting
from whygrad.source.holding import Holding, holding_of, is_generator
from whygrad.source.spans import Span
from whygrad.source.tree import assigned_names
from whygrad.source.uses import is_object_call, values_used


@dataclass(slots=True)
class _Level:
    """One of the calls that led to the operation, and what it reads that may be old."""

    span: Span
    names: dict[str, Holding]

    def held(self, *kinds: Holding) -> list[str]:
        return [name for name, kind in self.names.items() if kind in kinds]


def entry(
    case: Case, meeting: Meeting, *, first: bool = False, network: bool = False
) -> tuple[Span | None, str]:
    """The line where the shared part is used again (or was used first), and its name there.

    A function that got it as an argument is not to blame: its caller handed it in. Where it is
    the `network` that counts which it is fed to, the call of that network is the place.
    """
    node = meeting.before if first else meeting.enter
    spans = case.places.node_spans(node) if node is not None else ()
    if node is None or not spans:
        return None, ""
    if network:
        event = case.graph.event(node)
        for depth, span in enumerate(spans):
            if _calls_network(spans, depth, event.op if event is not None else ""):
                names = [name for name in values_used(span) if name in _made_names(case, meeting)]
                return span, names[0] if len(names) == 1 else _only(values_used(span))
    ours = {info.name.rpartition(".")[2] for info in case.question.parameters}
    active = {_code(span) for span in case.places.spans(meeting.earlier.stack)}
    levels = [_level(span, ours, _code(span) in active) for span in spans]
    return _chosen(levels, _made_names(case, meeting))


def _code(span: Span) -> tuple[str, int]:
    return span.file, span.first_line


def _only(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ""


def _made_names(case: Case, meeting: Meeting) -> set[str]:
    """Every name that the shared value was given on its way out of the calls that made it."""
    return {name for span in case.places.node_spans(meeting.maker) for name in assigned_names(span)}


def _level(span: Span, parameters: set[str], active: bool) -> _Level:
    """What a call reads. `active`: its function was already running in the earlier pass.

    In one that was not, no variable can be older than that pass; unless it is a generator, whose
    variables wait for it.
    """
    used = [name for name in values_used(span) if name.rpartition(".")[2] not in parameters]
    names = {name: holding_of(span, name) for name in used}
    if not active and not is_generator(span):
        names = {
            name: "fresh" if kind in ("loop", "before") and "." not in name else kind
            for name, kind in names.items()
        }
    return _Level(span, names)


def _chosen(levels: list[_Level], made: set[str]) -> tuple[Span, str]:
    """The innermost call that reads the value from where it was kept."""
    named = [
        (level.span, name)
        for level in levels
        for name in level.held("state", "loop", "before")
        if name in made
    ]
    kept = [(level.span, _only(held)) for level in levels if (held := level.held("state", "loop"))]
    # What the program itself carries from one call to the next is its own affair, even if it is
    # in a library that the value is used.
    for found in (named, kept):
        for span, name in found:
            if not is_library(span.file):
                return span, name
    if kept or named:
        return (named or kept)[0]
    before = [(level.span, _only(held)) for level in levels if (held := level.held("before"))]
    outside = [found for found in before if not is_library(found[0].file)]
    if outside or before:
        return (outside or before)[0]
    return levels[0].span, ""


def _calls_network(spans: tuple[Span, ...], depth: int, op: str) -> bool:
    if depth == 0:
        return is_object_call(spans[0], op)
    return spans[depth - 1].function.rpartition(".")[2] in ("forward", "__call__")
