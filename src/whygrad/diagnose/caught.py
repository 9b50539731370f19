"""Exceptions that the program caught: whether to speak of them, and how."""

from __future__ import annotations

from whygrad.diagnose.case import is_library
from whygrad.graph.places import Places
from whygrad.record.events import Question, Recording
from whygrad.session import Finding, Related
from whygrad.source.spans import Span, location
from whygrad.source.swallowing import reporting_handler


def is_caught(question: Question) -> bool:
    """Whether the program was still running when this was asked, and may be prepared for it."""
    complaint = question.complaint
    return question.kind == "call-raised" and complaint is not None and not complaint.uncaught


def handler(recording: Recording, question: Question) -> Span | None:
    """The program's own handler that did no more than tell of the exception."""
    spans = Places(recording).spans(question.stack)
    if not spans or is_library(spans[0].file):
        return None
    found = reporting_handler(spans, question.error_type)
    return None if found is None or is_library(found.file) else found


def soften(findings: list[Finding], caught: Span) -> None:
    """The program went on, without what it wanted."""
    for finding in findings:
        finding.severity = "warning" if finding.severity == "error" else finding.severity
        finding.related.append(
            Related("surfaced", location(caught), "catches it, and goes on without a result")
        )
