"""Parameters that start at zero and are each other's factor: no step can move any of them."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import values, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.dead_end_story import dead_end_finding
from whygrad.diagnose.dead_ends import DeadEnd, dead_ends
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location
from whygrad.source.tree import callee_name

CODE = "dead-init"

_MADE = ("Parameter", "zeros", "zeros_like", "full", "new_zeros", "tensor")


def diagnose(case: Case) -> Iterator[Finding]:
    for end in dead_ends(case, CODE):
        yield _finding(case, end)


def _finding(case: Case, end: DeadEnd) -> Finding:
    zeros = _weights(case, end)
    names = case.names(zeros)
    places = {node: span for node in zeros if (span := _started(case, node)) is not None}
    where = next(iter(places.values()), end.where)
    op = values.spoken(case, end.node)
    is_start = bool(places)
    return dead_end_finding(
        case,
        end,
        title=f"{words.listed(names, 2)} {'starts' if len(names) == 1 else 'start'} at zero, and "
        "so no gradient can come",
        where=where,
        label="all zeros from here on" if is_start else f"{op} multiplies with zeros here",
        why="the gradient of a factor is multiplied with the other factor. Here both are zero, so "
        "both gradients are zero in every step, and nothing can move either of them."
        if end.kind != "Relu"
        else f"weights of zero give {op} inputs of exactly 0, where its derivative is 0: no "
        "gradient comes back to move them.",
        related=_related(case, end, where, places, op),
        checked=[f"every value of {words.listed(names)} is 0 in step {end.passed.trace.step}."],
        fix=Fix(
            title="start the weights at random (nn.init.xavier_uniform_, kaiming_uniform_); only "
            "one factor of a product, and biases, may start at zero",
            safety="changes where training starts",
            deliberate="if they are loaded or set later, do that before training starts.",
        ),
    )


def _weights(case: Case, end: DeadEnd) -> list[int]:
    """The parameters to blame, in order; biases, which may be zero, only if all are."""
    infos = [info for info in case.question.parameters if info.node in end.culprits]
    matrices = [info.node for info in infos if len(info.shape) > 1]
    return matrices or [info.node for info in infos]


def _started(case: Case, node: int) -> Span | None:
    """The line that set a parameter to zero: the last write into it, or where it was made."""
    writes = [change for change in case.question.changes if change.node == node]
    if writes:
        return case.user_span(max(writes, key=lambda change: change.time).stack)
    source = case.graph.source(node)
    span = case.user_span(source.stack) if source is not None else None
    name = (callee_name(span) or "").rpartition(".")[2] if span is not None else ""
    return span if name in _MADE else None


def _related(
    case: Case, end: DeadEnd, where: Span, places: dict[int, Span], op: str
) -> list[Related]:
    found: dict[tuple[str, int], Related] = {}
    for node, span in places.items():
        key = span.file, span.line
        if key != (where.file, where.line):
            label = f"`{case.name(node)}` starts at zero, too"
            found.setdefault(key, Related("created", location(span), label))
    if (end.where.file, end.where.line) != (where.file, where.line):
        found.setdefault(
            (end.where.file, end.where.line),
            Related("operation", location(end.where), f"{op} works with these zeros here"),
        )
    return list(found.values())
