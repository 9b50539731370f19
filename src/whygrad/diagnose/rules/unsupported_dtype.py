"""An operation, or its derivative, does not work with the dtypes that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from whygrad.diagnose import complaints, failing
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.mixed_dtypes import DTYPES
from whygrad.record.events import Given
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location
from whygrad.source.tree import expression_at, statement_at
from whygrad.source.uses import is_parameter, values_used

CODE = "unsupported-dtype"

_RECENT = 20_000  # events that are looked through for a cast


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    match said.message.id:
        case "kernel-not-implemented-dtype":
            yield _kernel(case, said)
        case "autocast-dtype-in-custom-backward":
            yield _mixed(case, said)
        case _:
            yield _cast(case, said)


def _in_backward(said: Said) -> bool:
    return any("autograd" in call or ".backward" in call for call in said.complaint.calls)


def _kernel(case: Case, said: Said) -> Finding:
    dtype = said.words["dtype"] = DTYPES.get(said.words.get("g2", ""), "this dtype")
    node = failing.operation(case, said.complaint) if _in_backward(said) else None
    where = failing.span(case, node) or said.where
    said.words["operation"] = f"the backward of {failing.shown(case, node)}" if node else "this"
    fed = [g.node for g in said.complaint.given if g.dtype == dtype]
    if node is not None:
        fed = [n for n in case.graph.inputs(node) if failing.dtype(case, n) == dtype]
    related = [made for n in fed[:1] for made in _since(case, n, dtype, where)]
    return complaints.finding(case, said, where=where, related=related)


def _since(case: Case, node: int, dtype: str, where: Span) -> list[Related]:
    """Where values got their dtype, if that is another line."""
    span = failing.span(case, failing.maker_of_dtype(case, node, dtype))
    if span is None or statement_at(span) is statement_at(where):
        return []
    return [Related("created", location(span), f"{dtype} since here")]


def _mixed(case: Case, said: Said) -> Finding:
    """A product of two dtypes: in a hand-written backward, or where data enters a model."""
    given = [g for g in said.complaint.given if g.dtype.startswith(("float", "bfloat", "complex"))]
    dtypes = list(dict.fromkeys(g.dtype for g in given))
    if len(dtypes) < 2:
        dtypes = [name for text in said.words.values() if (name := DTYPES.get(_bare(text)))]
    said.words["dtypes"] = " and ".join(f"`{dtype}`" for dtype in dtypes[:2]) or "two dtypes"
    inside = said.where.function.rpartition(".")[2] == "backward" and said.outer is not None
    if inside:
        return complaints.finding(
            case,
            said,
            title=f"a custom backward multiplies {said.words['dtypes']}",
            why="autocast runs the forward of a custom Function in half precision, and is off "
            "in its backward: there the gradient has the dtype of the output, and what was saved "
            "has the dtype that it came with.",
            fix=Fix(
                title="put `@torch.amp.custom_fwd(device_type=...)` on forward and "
                "`@torch.amp.custom_bwd(device_type=...)` on backward",
                deliberate="if the Function is never used under autocast, cast by hand what the "
                "backward multiplies.",
            ),
        )
    where = _handed_in(case, said)
    odd = _odd(case, given)
    related = _since(case, odd.node, odd.dtype, where) if odd is not None else []
    return complaints.finding(case, said, where=where, related=related)


def _bare(text: str) -> str:
    return {"float": "Float", "double": "Double"}.get(text, text.removeprefix("c10::"))


def _odd(case: Case, given: list[Given]) -> Given | None:
    """Of the operands, the one that is no parameter: it can be cast."""
    plain = [g for g in given if case.parameter(g.node) is None]
    return plain[0] if plain and len({g.dtype for g in given}) > 1 else None


def _handed_in(case: Case, said: Said) -> Span:
    """The line that hands the value to the model, if the model only passes it on."""
    where = said.where
    spans = [s for s in case.places.spans(said.complaint.stack) if not is_library(s.file)]
    for span, caller in pairwise(spans):
        if span != where or span.function.rpartition(".")[2] != "forward":
            break
        used = values_used(span)
        if len(used) != 1 or not is_parameter(span, used[0]) or expression_at(caller) is None:
            break
        where = caller
    return where


def _cast(case: Case, said: Said) -> Finding:
    """Complex numbers become real: in the forward pass, or in the backward of the opposite."""
    if not _in_backward(said):
        return complaints.finding(case, said)
    recording = case.graph.recording
    last = recording.base + len(recording.events)
    for node in range(last - 1, max(recording.base, last - _RECENT) - 1, -1):
        event = case.graph.event(node)
        if event is None or not event.live or not failing.dtype(case, node).startswith("complex"):
            continue
        behind = [failing.dtype(case, n) for n in case.graph.inputs(node)]
        if behind and not any(dtype.startswith("complex") for dtype in behind):
            return complaints.finding(
                case,
                said,
                where=failing.span(case, node),
                title="the gradient of a real tensor leaves out the imaginary part",
                label="a real tensor becomes complex here; its gradient is real",
                why="what became complex here was real before, so its gradient is real too: the "
                "imaginary part of the gradient belongs to nothing. This is as it should be.",
                fix=Fix(title="leave it as it is"),
            )
    return complaints.finding(case, said)
