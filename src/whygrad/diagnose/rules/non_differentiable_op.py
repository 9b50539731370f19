"""Operations whose output cannot require grad: argmax, comparisons, integer casts, sampling."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, operations, story, underivable
from whygrad.diagnose.case import Case
from whygrad.graph.separate import Separation
from whygrad.record.ops import display_name
from whygrad.session import Edit, Finding, Fix
from whygrad.source.edits import rename_callee
from whygrad.source.handled import is_expected
from whygrad.source.spans import Span
from whygrad.source.tree import callee_name, receiver_text

CODE = "non-differentiable-op"

_CAUGHT = ("RuntimeError", "NotImplementedError")


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        told = underivable.tell(case, said)
        if is_expected(said.outer or said.where, *_CAUGHT):
            told.severity = "info"  # the program tries, and has another way
        yield told
    for separation in case.separations:
        if separation.first.kind in ("not-differentiable", "torch-switch"):
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
    if separation.first.kind == "torch-switch":
        return _library_without_gradients(case, separation, where)
    op = display_name(event.op)
    dtype = str(event.dtype).removeprefix("torch.")
    gives, instead = operations.consequence(event.op)
    kind = f", of type {dtype}," if not case.graph.floating(separation.first.node) else ""
    return story.cut_finding(
        case,
        separation,
        code=CODE,
        where=where,
        subject=f"`{_written(where, op) if library is None else op}`",
        label=f"its output{kind} cannot carry gradient",
        why=f"`{op}` has no derivative: {gives}. Its output has no history, so autograd has no "
        f"edge from `{case.root_name}` back through this line.",
        fix=Fix(
            title=instead,
            safety="changes forward values: check that the smooth form is what you mean",
            deliberate=_deliberate(case),
        ),
    )


def _library_without_gradients(case: Case, separation: Separation, where: Span) -> Finding:
    """A torch function that works without gradients by design, such as Distribution.sample()."""
    name = (callee_name(where) or "this call").lstrip(".")
    short = name.rsplit(".", 1)[-1]
    edits: list[Edit] = []
    title = "use a differentiable counterpart of this call"
    if short == "sample":
        title = "draw with rsample(), which keeps the history (where the distribution has it)"
        receiver = receiver_text(where)
        edits = rename_callee(where, f"{receiver}.rsample") if receiver else []
    return story.cut_finding(
        case,
        separation,
        code=CODE,
        where=where,
        subject=f"`{short}()`",
        label="torch runs this call with gradients off: its result has no history",
        why=f"torch computes `{short}()` without recording history, so autograd has no edge "
        f"from `{case.root_name}` back through this line.",
        fix=Fix(
            title=title,
            edits=edits,
            safety="the same distribution; gradients flow through the draw",
            deliberate=_deliberate(case),
        ),
    )


def _written(where: Span, op: str) -> str:
    """`.argmax()` or `torch.argmax()` as the user wrote it, else the operation's name."""
    name = callee_name(where)
    return f"{name}()" if name is not None and name.rsplit(".", 1)[-1] == op else op


def _deliberate(case: Case) -> str:
    if case.raises:
        return "if it is deliberate (a metric), do not call backward() on it."
    return (
        "if it is deliberate (a hard decision), these parameters need another way to learn: "
        "a loss of their own, a straight-through estimator or a log_prob term."
    )
