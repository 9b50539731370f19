"""Forward mode used in a way that it does not allow: levels, dual tensors, tangents, `jvp`."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, transformed
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding, Related
from whygrad.source.spans import Span, location
from whygrad.source.transform_calls import definition_line
from whygrad.source.tree import enclosing_with

CODE = "forward-mode-misuse"

_OWN_JVP = ("forward-ad-custom-jvp-view", "forward-ad-custom-jvp-inplace")


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        return
    transform = transformed.running(found.complaint)
    found.words |= transformed.mention(case, found, transform)
    if found.message.id in _OWN_JVP:
        yield _custom(case, found)
    elif found.message.id == "forward-ad-nested":
        yield complaints.finding(case, found, related=_first_level(found.where))
    else:
        yield complaints.finding(case, found)


def _custom(case: Case, found: Said) -> Finding:
    """At what the `jvp` of a custom Function returns."""
    function = next((f for f in found.complaint.functions if "jvp" in f.methods), None)
    found.words["class"] = function.name if function is not None else "the Function"
    where = None
    if function is not None:
        place = function.methods["jvp"]
        where = transformed.last_return(*place) or definition_line(*place)
    return complaints.finding(case, found, where=where)


def _first_level(where: Span) -> list[Related]:
    """The level that is open already, if the same function opens it."""
    outer = enclosing_with(where, {"dual_level"})
    if outer is None or outer == where:
        return []
    return [Related("used", location(outer), "opened here, and still open")]
