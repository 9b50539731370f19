"""A custom Function is written or used in a form that torch does not know."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from whygrad.diagnose import complaints, custom
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Definition
from whygrad.session import Finding, Fix, Related
from whygrad.source import contexts, methods
from whygrad.source.spans import Span, location
from whygrad.source.tree import text_of

CODE = "custom-function-form"

_MARKS = ("mark_dirty", "mark_non_differentiable")


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        return
    owner = custom.definition(found)
    if owner is None:
        yield complaints.finding(case, found)
        return
    found.words["function"] = owner.name
    match found.message.id:
        case "custom-no-forward":
            yield _no_forward(case, found, owner)
        case "custom-both-backward-vjp":
            yield _both(case, found, owner)
        case "custom-mark-dirty-non-input" | "custom-mark-dirty-type":
            yield _marked(case, found, owner)
        case _:
            yield complaints.finding(case, found)


def _no_forward(case: Case, found: Said, owner: Definition) -> Finding:
    close = difflib.get_close_matches("forward", list(owner.methods), n=1, cutoff=0.7)
    span: Span | None
    if close:
        name = close[0]
        return complaints.finding(
            case,
            found,
            where=custom.own_line(case, found, owner, methods.head_span(owner.methods[name])),
            related=custom.applied_here(case, owner, found.where),
            title=f"`{owner.name}` has a `{name}` and no `forward`",
            label="torch looks for `forward`",
            fix=Fix(title=f"rename `{name}` to `forward`"),
        )
    place = next(iter(owner.methods.values()), None)
    span = methods.class_span(place) if place is not None else None
    span = span or methods.class_named(found.where.file, owner.name)
    return complaints.finding(case, found, where=custom.own_line(case, found, owner, span))


def _both(case: Case, found: Said, owner: Definition) -> Finding:
    """Two methods for one thing: the second name goes."""
    spans = [methods.head_span(owner.methods[n]) for n in ("vjp", "backward") if n in owner.methods]
    if len(spans) != 2:
        return complaints.finding(case, found)
    where = custom.own_line(case, found, owner, spans[0])
    related = [Related("operation", location(spans[1]), "and this is the same derivative")]
    return complaints.finding(case, found, where=where, related=related)


def _marked(case: Case, found: Said, owner: Definition) -> Finding:
    """The line in forward that marks a tensor, or what is none."""
    said = [name for name in _MARKS if name in case.question.error_text] or list(_MARKS)
    places = [owner.methods[n] for n in ("forward", "setup_context") if n in owner.methods]
    calls = [call for place in places for call in contexts.calls_of(place, said[0])]
    if not calls:
        return complaints.finding(case, found)
    span, call = calls[-1]
    texts = [text_of(argument, span.file) for argument in call.args]
    found.words |= {"marking": said[0], "marked": texts[0] if texts else "it"}
    where = custom.own_line(case, found, owner, span)
    return complaints.finding(
        case, found, where=where, related=custom.applied_here(case, owner, where)
    )
