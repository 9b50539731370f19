"""A tensor from inside a transform that was kept, and used when the transform was over."""

from __future__ import annotations

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding, Related
from whygrad.source.escaping import stored_at
from whygrad.source.holding import kept_at
from whygrad.source.spans import Span, location
from whygrad.source.tree import statement_at
from whygrad.source.uses import values_used


def tell(case: Case, found: Said) -> Finding:
    """At the line that kept it."""
    made = _made(case, found)
    stored = stored_at(made) if made is not None else None
    where = stored or _by_name(found.where) or made or found.where
    related = []
    if made is not None and statement_at(made) is not statement_at(where):
        related.append(Related("created", location(made), "what is kept is computed here"))
    return complaints.finding(case, found, where=where, related=related)


def _made(case: Case, found: Said) -> Span | None:
    """Where the tensor was computed: inside another function than the one that uses it."""
    for given in found.complaint.given:
        span = case.places.node_span(given.node)
        if span is not None and (span.file, span.first_line) != (
            found.where.file,
            found.where.first_line,
        ):
            return span
    return None


def _by_name(use: Span) -> Span | None:
    places = [kept_at(use, name) for name in values_used(use)]
    known = {place for place in places if place is not None}
    return known.pop() if len(known) == 1 else None
