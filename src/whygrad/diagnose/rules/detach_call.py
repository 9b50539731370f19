"""`.detach()`, `.detach_()` and `.data`: the same numbers without their history."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, departures, functionals, story
from whygrad.diagnose.case import Case
from whygrad.diagnose.exits import exit_of
from whygrad.graph.separate import Separation
from whygrad.record.ops import DATA_WRITE
from whygrad.session import Edit, Finding, Fix
from whygrad.source.edits import remove_method_call, replace_call_with_argument
from whygrad.source.spans import Span
from whygrad.source.tree import callee_name, receiver_text

CODE = "detach-call"

_SPOKEN = {"data": ".data", "detach": ".detach()", "detach_": ".detach_()"}


def diagnose(case: Case) -> Iterator[Finding]:
    told = functionals.tell(case, CODE)
    said = complaints.said(case, CODE) if told is None and not case.separations else None
    if told is not None:
        yield told
    elif said is not None:
        yield departures.tell(case, said)
    for separation in case.separations:
        if separation.first.kind == "detach" and exit_of(case, separation) is None:
            finding = _explain(case, separation)
            if finding is not None:
                yield finding


def _explain(case: Case, separation: Separation) -> Finding | None:
    event = case.graph.event(separation.first.node)
    if event is None:
        return None
    where, library = case.blame(event.stack, separation.feeder(separation.first.node))
    if where is None:
        return None
    if event.op == DATA_WRITE:
        return _written_into_leaf(case, separation, where)
    written = _SPOKEN.get(event.op, f".{event.op}()")
    subject = f"`{written}`" if library is None else f"`{written}` inside a library call"
    value = receiver_text(where) if library is None else None
    enters = f"`{value}`" if value and len(value) <= 40 else "the value"
    return story.cut_finding(
        case,
        separation,
        code=CODE,
        where=where,
        subject=subject,
        label=f"{enters} enters with history and leaves without it",
        why=f"`{written}` returns the same numbers without their history, so autograd has no "
        f"edge from `{case.root_name}` back through this line.",
        fix=Fix(
            title=f"delete the `{written}`",
            edits=_edits(where) if library is None else [],
            safety="changes gradients only; forward values stay equal",
            deliberate=_deliberate(case),
        ),
    )


def _written_into_leaf(case: Case, separation: Separation, where: Span) -> Finding:
    """`layer.weight.data = generated`: the layer uses the numbers, gradient stops at the layer."""
    return story.cut_finding(
        case,
        separation,
        code=CODE,
        where=where,
        subject="writing through `.data`",
        label="the numbers go into a leaf here; their history stays behind",
        why="a leaf tensor has no history by definition. Writing into its `.data` replaces its "
        "numbers, and gradient that reaches the leaf stops there.",
        fix=Fix(
            title="use the computed tensor itself in the forward pass, for instance with "
            "`torch.func.functional_call` or the `torch.nn.functional` form of the layer",
            safety="forward values stay equal",
            deliberate=_deliberate(case),
        ),
    )


def _edits(where: Span) -> list[Edit]:
    if (callee_name(where) or "").endswith("torch.detach"):
        return replace_call_with_argument(where)
    return remove_method_call(where)


def _deliberate(case: Case) -> str:
    if case.raises:
        return (
            "if it is deliberate (fixed target, frozen encoder), this loss trains nothing: "
            "add a term that reaches a parameter."
        )
    return (
        "if it is deliberate (fixed target, separate training), "
        f"{case.take_out}give these parameters a loss of their own."
    )
