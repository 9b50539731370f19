"""An operator is defined in a way that lets nobody register a derivative for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whygrad.diagnose import complaints, custom
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Definition
from whygrad.session import Finding, Related
from whygrad.source import contexts, methods
from whygrad.source.spans import Span, location

CODE = "custom-op-registration"

_OPERATOR = re.compile(r"\b(\w+::\w+)")


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        return
    named = _OPERATOR.search(case.question.error_text)
    name = named.group(1) if named is not None else ""
    found.words["operator"] = name or "the operator"
    owner = next((d for d in found.complaint.functions if d.name == name), None)
    where = custom.own_line(case, found, owner, _defined(found, owner, name))
    related = [Related("surfaced", location(found.where), "its derivative is registered here")]
    same = (where.file, where.line) == (found.where.file, found.where.line)
    yield complaints.finding(case, found, where=where, related=[] if same else related)


def _defined(found: Said, owner: Definition | None, name: str) -> Span | None:
    """The decorated function, or the schema."""
    place = owner.methods.get("forward") if owner is not None else None
    if place is not None:
        keyword = found.message.id == "library-autograd-kwarg-only"
        return methods.head_span(place) if keyword else methods.decorator_line(place)
    files = [file for file, _ in owner.methods.values()] if owner is not None else []
    spans = [
        contexts.schema_of(file, name.partition("::")[2]) for file in [*files, found.where.file]
    ]
    return next((span for span in spans if span is not None), None)
