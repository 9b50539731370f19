"""Compiled code runs out of sight: what can be said all the same, and how to see more."""

from __future__ import annotations

from whygrad.diagnose.case import Case
from whygrad.graph.places import Places
from whygrad.record.events import GRAD_ON, Event, Recording
from whygrad.record.ops import COMPILED
from whygrad.session import Finding
from whygrad.source.spans import Span

HINT = (
    "this call runs compiled code, whose lines were not seen: `whygrad run --eager` runs it "
    "eagerly and sees them."
)
_OP, _SITE = Event._fields.index("op"), Event._fields.index("site")


def calls(recording: Recording) -> list[Span]:
    """The lines that called compiled functions."""
    sites = dict.fromkeys(event[_SITE] for event in recording.events if event[_OP] == COMPILED)
    places = Places(recording) if sites else None
    spans = [places.span(site) for site in sites] if places is not None else []
    return [span for span in spans if span is not None]


def hides_behind(case: Case) -> bool:
    """Whether a result without history that the roots depend on came out of compiled code."""
    events = (case.graph.event(node) for node in case.graph.ancestors(case.roots))
    return any(
        event is not None and event.op == COMPILED and not event.live and event.mode == GRAD_ON
        for event in events
    )


def mention(recording: Recording, findings: list[Finding]) -> None:
    """Say of what is found at such a line that there is more to see inside."""
    lines = {(span.file, span.line) for span in calls(recording)} if findings else set()
    for finding in findings:
        place, fix = finding.location, finding.fix
        told = fix is not None and "--eager" in fix.title
        if (place.file, place.line) in lines and not told and HINT not in finding.inferred:
            finding.inferred.append(HINT)
