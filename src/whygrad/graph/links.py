"""Values that leave torch and come back: found in the source between the two lines.

Shared memory and equal values are seen while recording. What remains (arithmetic in numpy or
plain Python on the way) is followed through the program's text: from the line where values come
back, over the assignments that feed it, to a line at which values were seen leaving.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from whygrad.graph.flow import FlowGraph
from whygrad.graph.places import Places
from whygrad.record.ops import REBUILDING
from whygrad.source.dataflow import Region, Slice, call_arguments_slice, slice_back
from whygrad.source.files import load
from whygrad.source.spans import Span
from whygrad.source.tree import function_at, node_span

_MAX_LEVELS = 5
_MAX_EXITS = 400


class Linker:
    """Adds links to a flow graph; remembers what it found for each stack."""

    def __init__(self, graph: FlowGraph, places: Places) -> None:
        self.graph = graph
        self.places = places
        self._regions: dict[tuple[Span, ...], tuple[Region, ...]] = {}
        self._returned: dict[Span, bool] = {}

    def link(self, nodes: Iterable[int], *, numbers: bool = False) -> int:
        """Link the returns among `nodes`; with `numbers`, Python numbers in operations too."""
        recording, count = self.graph.recording, 0
        if not recording.exits:
            return 0
        for node in sorted(nodes, reverse=True):
            spans = self._return_spans(node, numbers)
            if not spans or node in self.graph.links:
                continue
            exits = self._exits_for(node, spans)
            if exits:
                self.graph.link(node, exits)
                count += len(exits)
        return count

    def leads_to(self, stack: int, spans: tuple[Span, ...]) -> bool:
        """Whether a value that was seen at a stack flows into the innermost of some calls."""
        return bool(spans) and self._flows(stack, self._regions_of(spans))

    def exits_into(self, spans: tuple[Span, ...]) -> list[int]:
        """Where values left torch that flow into the innermost of some calls, latest first."""
        return self._exits_for(-1, spans) if spans else []

    def _return_spans(self, node: int, numbers: bool) -> tuple[Span, ...]:
        """Where a node was made that may have come back from outside torch, innermost first."""
        event = self.graph.event(node)
        if event is not None:
            comes_back = event.op in REBUILDING and not event.inputs
            if not (comes_back or (numbers and event.scalar and not event.evidence)):
                return ()
            if event.stack:
                return self.places.spans(event.stack)
            span = self.places.span(event.site)
            return () if span is None else (span,)
        source = self.graph.source(node)
        if source is None or source.parameter or source.origin is not None:
            return ()
        return self.places.spans(source.stack)

    def _exits_for(self, node: int, spans: tuple[Span, ...]) -> list[int]:
        recording = self.graph.recording
        regions = self._regions_of(spans)
        if not regions:
            return []
        before = node if node >= 0 else recording.base + len(recording.events)
        found: dict[int, int] = {}
        for exit_node in reversed(recording.exits[-_MAX_EXITS:]):
            event = recording.event(exit_node)
            if event is None or exit_node >= before or event.site in found:
                continue
            if self._flows(event.stack, regions):
                found[event.site] = exit_node
        return list(found.values())

    def _regions_of(self, spans: tuple[Span, ...]) -> tuple[Region, ...]:
        """Everything in the source that flows into the innermost of these calls."""
        if spans not in self._regions:
            regions: list[Region] = []
            current: Slice | None = slice_back(spans[0])
            for level in range(_MAX_LEVELS):
                if current is None:
                    break
                regions += current.regions
                if not current.parameters or level + 1 >= len(spans):
                    break
                callee, caller = spans[level], spans[level + 1]
                current = call_arguments_slice(
                    caller, current.parameters, callee=(callee.file, callee.first_line)
                )
            self._regions[spans] = tuple(regions)
        return self._regions[spans]

    def _flows(self, stack: int, regions: tuple[Region, ...]) -> bool:
        """Whether a value that left at this stack flows into one of the regions."""
        for span in self.places.spans(stack):
            if any(region.contains(span) for region in regions):
                return True
            # One level up only counts if the value is handed up: printing it is no flow.
            if not self._is_returned(span):
                return False
        return False

    def _is_returned(self, span: Span) -> bool:
        if span not in self._returned:
            self._returned[span] = self._find_returned(span)
        return self._returned[span]

    def _find_returned(self, span: Span) -> bool:
        function = function_at(span)
        if function is None:
            return False
        if isinstance(function, ast.Lambda):
            return True
        for statement in ast.walk(function):
            value = getattr(statement, "value", None)
            if not isinstance(statement, (ast.Return, ast.Yield)) or value is None:
                continue
            returned = node_span(load(span.file), value)
            if _within(returned, span):
                return True
            back = slice_back(returned)
            if back is not None and any(region.contains(span) for region in back.regions):
                return True
        return False


def _within(outer: Span, inner: Span) -> bool:
    return outer.extent[:2] <= inner.extent[:2] and inner.extent[2:] <= outer.extent[2:]
