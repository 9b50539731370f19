"""What torch said, made ready for the rules: which message it is, where, and a finding for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from whygrad import catalogue
from whygrad.catalogue import Message
from whygrad.diagnose import lives, words
from whygrad.diagnose.case import Case
from whygrad.record.events import Complaint
from whygrad.session import Finding, Fix, Related, Severity
from whygrad.source.spans import Span, location
from whygrad.source.tree import callee_name, receiver_text

_HISTORY_EXPECTED = "requires-grad-off"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(slots=True)
class Said:
    """A message of torch's as a rule sees it."""

    message: Message
    complaint: Complaint
    where: Span  # the line to change unless the rule knows better: the innermost own code
    library: Span | None = None  # that of an installed library, if that is where it was raised
    outer: Span | None = None  # the line that called torch, if that is another one
    words: dict[str, str] = field(default_factory=dict)  # what the message's texts may mention

    def fill(self, text: str) -> str:
        """Put words in for {placeholders}; those without a word stand for themselves."""
        return _PLACEHOLDER.sub(lambda m: self.words.get(m.group(1), m.group(1)), text)


def said(case: Case, code: str) -> Said | None:
    """The message that the rule of this code tells, if torch has said that one."""
    complaint = case.question.complaint
    message = catalogue.by_id(complaint.message) if complaint is not None else None
    if complaint is None or message is None or message.told_by != code:
        return None
    return read(case, message, complaint)


def without_history(case: Case) -> int | None:
    """The tensor that was expected to have a history and has none, if torch says that."""
    found = said(case, _HISTORY_EXPECTED)
    given = found.complaint.given if found is not None else []
    return next((g.node for g in given if not g.requires_grad), None)


def read(case: Case, message: Message, complaint: Complaint) -> Said | None:
    """A message with its place; None if it has none."""
    where, library = case.blame(complaint.stack, None)
    if where is None:
        return None
    outer = case.user_span(complaint.outer)
    found = Said(message, complaint, where, library, None if outer == where else outer)
    match = message.pattern.search(case.question.error_text)
    if match is not None:
        numbered = {f"g{n}": text for n, text in enumerate(match.groups(), 1) if text}
        named = {name: text for name, text in match.groupdict().items() if text}
        found.words = {**numbered, **named}
    found.words |= {
        "call": callee_name(where) or "the call",
        "receiver": receiver_text(where) or "the tensor",
    }
    return found


def plain(case: Case, code: str) -> Iterator[Finding]:
    """The finding for a message that says it all: at its line, with the catalogue's words."""
    found = said(case, code)
    if found is not None:
        yield finding(case, found)


def finding(
    case: Case,
    found: Said,
    *,
    where: Span | None = None,
    code: str = "",
    title: str = "",
    label: str = "",
    why: str = "",
    fix: Fix | None = None,
    related: list[Related] | None = None,
    parameters: list[str] | None = None,
    checked: list[str] | None = None,
    inferred: list[str] | None = None,
    severity: Severity | None = None,
) -> Finding:
    """The finding for a message. What the rule does not say comes from the catalogue."""
    message, warning = found.message, found.complaint.warning
    place = where or found.where
    title = title or found.fill(message.title) or words.first_sentence(case.question.error_text)
    label = label or found.fill(message.label) or lives.error_label(case)
    own: Severity = "info" if message.severity == "info" else "warning"
    return Finding(
        code=code or message.told_by,
        severity=severity or (own if warning else "error"),
        symptom="warns" if warning else "raises",
        title=title,
        message=f"{words.sentence(title)} {words.sentence(found.fill(message.meaning))}",
        location=location(place),
        label=label,
        related=[*(related or []), *_surfaced(case, found, place)],
        parameters=parameters or [],
        why=words.continued(why or found.fill(message.meaning)),
        checked=checked or [],
        inferred=inferred or [],
        fix=fix or Fix(title=found.fill(message.fix), deliberate=found.fill(message.deliberate)),
        first_step=case.question.step,
    )


def _surfaced(case: Case, found: Said, place: Span) -> list[Related]:
    """Where torch spoke, and the library's line, where these are not the finding's own."""
    shown: list[Related] = []
    label = lives.error_label(case)
    for span in (found.outer, found.where):
        lines = [place.line, *(related.location.line for related in shown)]
        if span is not None and (span.file != place.file or span.line not in lines):
            shown.append(Related("surfaced", location(span), label if not shown else "inside it"))
    if found.library is not None:
        shown.append(Related("library", location(found.library), "raised here"))
    return shown
