"""Sites and stacks of a recording as source spans, resolved once each."""

from __future__ import annotations

from whygrad.record.events import Recording
from whygrad.source.spans import Span, span_of


class Places:
    """Answers where something happened; unknown is an answer."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._spans: dict[int, Span | None] = {}
        self._stacks: dict[int, tuple[Span, ...]] = {}

    def span(self, site: int) -> Span | None:
        """The span of a site, None if it is unknown."""
        if site < 0 or site >= len(self.recording.sites):
            return None
        if site not in self._spans:
            place = self.recording.sites[site]
            self._spans[site] = span_of(place.code, place.lasti)
        return self._spans[site]

    def spans(self, stack: int) -> tuple[Span, ...]:
        """The spans of a stack, innermost first."""
        if stack not in self._stacks:
            sites = self.recording.stacks[stack] if stack < len(self.recording.stacks) else ()
            found = [self.span(site) for site in sites]
            self._stacks[stack] = tuple(span for span in found if span is not None)
        return self._stacks[stack]

    def node_spans(self, node: int) -> tuple[Span, ...]:
        """The calls that led to a node, innermost first.

        Operations that carry gradient are recorded without their callers. Theirs are taken from
        the first time that something was recorded at the same place.
        """
        event = self.recording.event(node)
        if event is None:
            source = self.recording.sources.get(node)
            return self.spans(source.stack) if source is not None else ()
        return self.spans(event.stack or self.recording.first_stacks.get(event.site, 0))

    def node_span(self, node: int) -> Span | None:
        """Where a node was made, or first seen."""
        event = self.recording.event(node)
        if event is not None:
            return self.span(event.site)
        source = self.recording.sources.get(node)
        if source is None:
            return None
        spans = self.spans(source.stack)
        return spans[0] if spans else None
