"""Something is put in `.grad`, `.data`, `.grad_dtype` or `.requires_grad` that does not fit."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding, Related
from whygrad.source.spans import Span, location
from whygrad.source.tree import statement_at, text_of

CODE = "grad-assignment"

_LONG = 40


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    target, value = _assignment(said.where)
    said.words |= {
        "target": target or "the attribute",
        "value": value or "the value",
        "owner": target.rpartition(".")[0] or "the tensor",
    }
    for number in ("g1", "g2"):
        if number in said.words:  # torch names some of them as C++ does
            said.words[number] = said.words[number].removeprefix("c10::").lower()
    yield complaints.finding(case, said, related=_made(case, said))


def _assignment(where: Span) -> tuple[str, str]:
    """What is assigned to, and what is assigned, as the source has them."""
    statement = statement_at(where)
    targets = getattr(statement, "targets", None)
    value = getattr(statement, "value", None)
    if not targets or value is None:
        return "", ""
    texts = text_of(targets[0], where.file), text_of(value, where.file)
    shown = [text if len(text) <= _LONG and "\n" not in text else "" for text in texts]
    return shown[0], shown[1]


def _made(case: Case, said: Said) -> list[Related]:
    """Where the value that does not fit was computed, if that is another line."""
    given = said.complaint.given[1:2]
    span = case.places.node_span(given[0].node) if given else None
    if span is None or (span.file, span.line) == (said.where.file, said.where.line):
        return []
    kind = f"{given[0].dtype} {list(given[0].shape or ())}"
    return [Related("created", location(span), f"the value is made here: {kind}")]
