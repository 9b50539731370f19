"""Numpy asks for the numbers of a tensor that still carries its history."""

from __future__ import annotations

import math
from collections.abc import Iterator

from whygrad.diagnose import complaints, departures, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Given
from whygrad.session import Finding, Fix, Related
from whygrad.source.detaching import comes_back, detached_first
from whygrad.source.spans import Span, location
from whygrad.source.tree import callee_name, receiver_text

CODE = "numpy-needs-detach"

_WIDTH = 40


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    back = comes_back(said.where)
    value = _value(case, said)
    related = departures.computed(case, said)
    if back is None:
        fix = Fix(
            title=_detached(said),
            edits=detached_first(said.where) if said.library is None else [],
            safety="the numbers stay equal",
            deliberate="if a loss is to be computed from the result, stay in torch: numpy's "
            "results carry no history.",
        )
        yield complaints.finding(
            case,
            said,
            title=f"numpy is given {value}, which still carries its history",
            fix=fix,
            related=related,
        )
        return
    yield complaints.finding(
        case,
        said,
        title=f"{value} goes through numpy on its way to a result that needs its gradient",
        label="numpy takes over here",
        why="numpy computes on plain numbers, which have no history. `.detach()` would silence "
        f"the error and cut the gradient: what comes back at {words.at(back)} would be a constant.",
        fix=Fix(
            title="compute this with torch functions on the tensor itself",
            safety="forward values stay equal up to rounding",
            deliberate="if it is to be a constant (a weight, a target, a metric), `.detach()` "
            "before numpy says so.",
        ),
        related=[*_returns(said.where, back), *related],
    )


def _value(case: Case, said: Said) -> str:
    """What numpy was given, as the model knows it and as the source calls it."""
    text = _written(said.where)
    given = _given(said)
    info = case.parameter(given.node) if given is not None else None
    name = info.name if info is not None else ""
    if name and text and not text.endswith(name):
        # What is handed to a function of numpy's may be a list with the tensor in it.
        way = f"`{text}` here" if _is_method(said.where) else f"by way of `{text}`"
        return f"`{name}` ({way})"
    return f"`{text or name}`" if name or text else "a tensor"


def _written(where: Span) -> str:
    text = receiver_text(where) or ""
    return text if len(text) <= _WIDTH and "\n" not in text else ""


def _given(said: Said) -> Given | None:
    """The tensor that numpy was given, or the first of them."""
    return next((given for given in said.complaint.given if given.requires_grad), None)


def _detached(said: Said) -> str:
    text, given = _written(said.where), _given(said)
    if text and _is_method(said.where):
        return f"hand over the numbers alone: `{text}.detach()`"
    if given is None or given.shape is None or math.prod(given.shape) != 1:
        return "hand over the numbers alone: `.detach()`"
    return "hand over the numbers alone: `.detach()` (or `.item()`) on each tensor"


def _is_method(where: Span) -> bool:
    return (callee_name(where) or "").endswith(".numpy")


def _returns(where: Span, back: Span) -> list[Related]:
    if (where.file, where.line) == (back.file, back.line):
        return []
    return [Related("return", location(back), "here the result comes back without history")]
