"""round, floor, sign and their like: operations whose derivative is zero everywhere."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import values, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.dead_end_story import dead_end_finding, get
from whygrad.diagnose.dead_ends import DeadEnd, dead_ends, further_steps
from whygrad.diagnose.flat_operations import OVERWRITES
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.arguments import argument_text
from whygrad.source.edits import replace_call_with_argument, replace_text
from whygrad.source.spans import Span, location
from whygrad.source.tree import callee_name, receiver_text

CODE = "zero-gradient-op"


def diagnose(case: Case) -> Iterator[Finding]:
    for end in dead_ends(case, CODE):
        yield _finding(case, end)


def _finding(case: Case, end: DeadEnd) -> Finding:
    op, names = values.spoken(case, end.node), case.names(end.nodes)
    if end.is_custom(case):
        return _custom(case, end, f"`{end.kind}.backward()`", names)
    overwrites = end.kind in OVERWRITES
    does = "overwrites what was computed" if overwrites else "lets no gradient through"
    return dead_end_finding(
        case,
        end,
        title=f"{op} {does}: {words.listed(names, 2)} {get(names)} only zeros",
        label=f"a gradient of up to {values.number(end.node.incoming or 0)} arrives here, "
        "nothing but zeros leaves",
        why=f"{op} replaces every value and looks at none, so its derivative is zero. What "
        "computed the old values cannot learn through it."
        if overwrites
        else f"{op} is flat between its jumps, so its derivative is zero and torch passes zeros "
        "back. Nothing before this line can learn through it.",
        related=[*_further(case, end)],
        fix=_fix_overwrite(op) if overwrites else _fix(end, op),
    )


def _custom(case: Case, end: DeadEnd, op: str, names: list[str]) -> Finding:
    return dead_end_finding(
        case,
        end,
        title=f"{op} returns nothing but zeros: {words.listed(names, 2)} {get(names)} no other "
        "gradient",
        label=f"a gradient of up to {values.number(end.node.incoming or 0)} arrives here, nothing "
        "but zeros leaves",
        why=f"what a custom Function passes back is what its backward() returns, and {op} returned "
        "zeros in every step looked at.",
        fix=Fix(
            title="return the derivative, or the incoming gradient itself (a straight-through "
            "estimator)",
            safety="changes gradients only; forward values stay equal",
            deliberate="if nothing should pass here, detach its input, which says so.",
        ),
    )


def _further(case: Case, end: DeadEnd) -> Iterator[Related]:
    """Other operations of the kind on the same ways: each of them alone is enough."""
    seen = {end.where.line}
    for index in further_steps(end):
        node = end.passed.nodes[index]
        span = values.place_of(case, node)
        if span is not None and span.line not in seen:
            seen.add(span.line)
            yield Related("operation", location(span), f"{values.spoken(case, node)} is flat, too")


def _fix_overwrite(op: str) -> Fix:
    return Fix(
        title=f"do not write over a value that should carry gradient: give the result of {op} a "
        "name of its own",
        safety="changes forward values wherever the old ones are used",
        deliberate="if the old values are not needed, do not compute them with gradients.",
    )


def _fix(end: DeadEnd, op: str) -> Fix:
    inner = receiver_text(end.where) or ""
    deliberate = (
        "if it is deliberate (a hard decision), these parameters need another way to learn: a "
        "loss of their own, noise instead of rounding, or a log_prob term."
    )
    if ".detach()" in inner and _is_plain_call(end.where):
        return Fix(
            title=f"drop this {op}: the straight-through expression inside has the hard value, "
            "and a gradient",
            edits=replace_call_with_argument(end.where),
            safety="gradients pass; forward values stay equal where they were whole already",
            deliberate=deliberate,
        )
    return Fix(
        title=f"let the gradient pass straight through: `x + ({_call(end.where)} - x).detach()`",
        edits=_straight_through(end.where, inner),
        safety="forward values stay equal up to rounding error; gradients pass as if this was "
        "not there",
        deliberate=deliberate,
    )


def _call(where: Span) -> str:
    """The operation on `x`, as it is written here."""
    name = (callee_name(where) or "").lstrip(".")
    if not name:
        return "hard(x)"
    return f"{name}(x)" if "." in name else f"x.{name}()"


def _is_plain_call(where: Span) -> bool:
    """A function of one argument: `torch.round(x)`."""
    name = callee_name(where) or ""
    return bool(name) and not name.startswith(".") and argument_text(where, 1, "decimals") is None


def _straight_through(where: Span, inner: str) -> list[Edit]:
    if not inner.isidentifier() or callee_name(where) is None:
        return []
    text = values.source_of(where)
    return replace_text(where, f"({inner} + ({text} - {inner}).detach())") if text else []
