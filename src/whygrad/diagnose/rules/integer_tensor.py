"""A tensor of integers or booleans is to get a gradient."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.diagnose import complaints, mixed_dtypes, results
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Event, Given
from whygrad.record.ops import display_name
from whygrad.session import Finding, Fix, Related
from whygrad.source.returns import is_given_back, name_given
from whygrad.source.spans import Span, location
from whygrad.source.tree import expression_at, receiver_text

CODE = "integer-tensor"

_FLAGGED = "requires-grad-integer"
# Constructors that choose an integer dtype for numbers that are written without a point.
_OF_NUMBERS = frozenset(["tensor", "as_tensor", "asarray", "arange", "full", "new_tensor"])
_FLAG_CALLS = ("requires_grad_", "requires_grad=")
_LONG = 40


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    if said.message.id in mixed_dtypes.MESSAGES:
        yield mixed_dtypes.tell(case, said)
        return
    given = next((g for g in said.complaint.given if _is_integer(g)), None)
    source = _origin(case, given) if given is not None else None
    name = _name(said)
    kept = None if name.isidentifier() else _kept(case, said)
    name = name if kept is None else name_given(kept)
    said.words |= {
        "dtype": given.dtype if given is not None else "integer",
        "name": f"`{name}`" if name else "the tensor",
    }
    if said.message.id != _FLAGGED:
        yield complaints.finding(case, said, related=_made(source, said.where))
        return
    where = said.where
    if source is not None and _is_flag_call(said) and _is_the_mistake(case, source):
        where = source[0]
    yield complaints.finding(
        case,
        said,
        where=where,
        title=_title(name, given, said),
        label=_label(where, said, source),
        fix=_fix(name, given, said, source),
        related=[*_made(source, where), *_via(kept, name)],
        parameters=[name] if name else [],
    )


def _is_integer(given: Given) -> bool:
    return not given.dtype.startswith(("float", "bfloat", "complex"))


def _is_flag_call(said: Said) -> bool:
    return bool(said.complaint.calls) and said.complaint.calls[-1].endswith(_FLAG_CALLS)


def _origin(case: Case, given: Given) -> tuple[Span, Event, int] | None:
    """The operation at which the values became integers."""
    node, seen = given.node, set[int]()
    while node not in seen:
        seen.add(node)
        event = case.graph.event(node)
        if event is None:
            return None
        feeders = case.graph.inputs(node)
        integers = [n for n in feeders if not case.graph.floating(n)]
        if not feeders or len(integers) < len(feeders):
            where = results.place(case, node)
            return None if where is None else (where, event, node)
        node = integers[0]
    return None


def _is_the_mistake(case: Case, source: tuple[Span, Event, int]) -> bool:
    """Numbers without a point, or values with a history that end in an integer."""
    _, event, node = source
    if event.op in _OF_NUMBERS and not event.inputs:
        return True
    return any(case.graph.live(n) for n in case.graph.inputs(node))


def _name(said: Said) -> str:
    node = expression_at(said.where)
    text = receiver_text(said.where) or ""
    if isinstance(node, ast.Call) and not said.complaint.given:
        text = ""
    plain = len(text) <= _LONG and "\n" not in text and not text[:1].isdigit()
    return text if plain and text[:1] not in "[(" else ""


def _kept(case: Case, said: Said) -> Span | None:
    """The call whose result gets a name, where a helper makes the tensor and returns it."""
    spans = [s for s in case.places.spans(said.complaint.stack) if not is_library(s.file)]
    depth = 0
    while depth + 1 < len(spans) and is_given_back(spans[depth]):
        depth += 1
    return spans[depth] if depth and name_given(spans[depth]) else None


def _via(kept: Span | None, name: str) -> list[Related]:
    return [] if kept is None else [Related("via", location(kept), f"for `{name}`")]


def _title(name: str, given: Given | None, said: Said) -> str:
    if given is None:
        return f"`{said.words['call'].lstrip('.')}` makes integers, which cannot require grad"
    shown = f"`{name}`" if name else "the tensor"
    return f"{shown} holds {given.dtype} values, which cannot require grad"


def _label(where: Span, said: Said, source: tuple[Span, Event, int] | None) -> str:
    if source is not None and where == source[0] and where != said.where:
        return f"`{display_name(source[1].op)}` makes integers here"
    return "asks for a gradient"


def _fix(name: str, given: Given | None, said: Said, source: tuple[Span, Event, int] | None) -> Fix:
    shown = name if name.isidentifier() else "tensor"
    if given is None or (source is not None and source[1].op in _OF_NUMBERS):
        return Fix(
            title="make them floating point: `dtype=torch.float32`, or write a number with a "
            "point (`1.0`)",
            deliberate="if they are counts or indices, leave requires_grad out.",
        )
    if not _is_flag_call(said):
        return Fix(
            title="a table of indices or a mask is not trained: pass `requires_grad=False`, or "
            "use register_buffer()",
            deliberate=f"if it should train, make it floating point first: `{shown}.float()`.",
        )
    if source is not None and source[1].inputs:
        return Fix(
            title=f"use something differentiable in place of `{display_name(source[1].op)}` "
            "(the scores, a softmax, a loss), and leave out the flag",
            deliberate="if these are counts or labels, no gradient can pass here.",
        )
    return Fix(
        title=f"convert first, then ask for a gradient: `{shown} = {shown}.float()"
        ".requires_grad_()`",
    )


def _made(source: tuple[Span, Event, int] | None, where: Span) -> list[Related]:
    if source is None or (source[0].file, source[0].line) == (where.file, where.line):
        return []
    kind = str(source[1].dtype).removeprefix("torch.")
    label = f"`{display_name(source[1].op)}` makes {kind} values here"
    return [Related("created", location(source[0]), label)]
