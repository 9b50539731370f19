"""What findings about gradients that are always zero have in common."""

from __future__ import annotations

from whygrad.diagnose import words
from whygrad.diagnose.case import Case
from whygrad.diagnose.dead_ends import DeadEnd
from whygrad.diagnose.values import count, loss_name, place_of, spoken, surfaced
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location

_MOST_RELATED = 4


def get(names: list[str]) -> str:
    return "gets" if len(names) == 1 else "get"


def dead_end_finding(
    case: Case,
    end: DeadEnd,
    *,
    title: str,
    label: str,
    why: str,
    fix: Fix,
    where: Span | None = None,
    related: list[Related] | None = None,
    checked: list[str] | None = None,
    inferred: list[str] | None = None,
) -> Finding:
    """What the findings about dead ends have in common."""
    names, place = case.names(end.nodes), where or end.where
    trace = end.passed.trace
    return Finding(
        code=end.code,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Affected: {words.listed(names, 8)}.",
        location=location(place),
        label=label,
        related=[
            *surfaced(case, trace.number, place, f"runs, and gives {count(names)} only zeros"),
            *(related or []),
            *_other_ends(case, end, {(r.location.file, r.location.line) for r in related or []}),
        ],
        parameters=names,
        why=why,
        checked=[_every_way(case, end, names), *(checked or [])],
        inferred=inferred or [],
        fix=fix,
        first_step=min((look.step for look in case.question.sizes), default=trace.step),
        at_end=end.late,
    )


def _other_ends(case: Case, end: DeadEnd, told: set[tuple[str, int]]) -> list[Related]:
    told = told | {(end.where.file, end.where.line)}
    found: dict[tuple[str, int], Related] = {}
    for death in sorted(end.further):
        node = end.passed.nodes[death.at]
        span = place_of(case, node)
        if span is not None and (span.file, span.line) not in told:
            label = f"another way to them ends here, at {spoken(case, node)}"
            found.setdefault((span.file, span.line), Related("operation", location(span), label))
    return list(found.values())[:_MOST_RELATED]


def _every_way(case: Case, end: DeadEnd, names: list[str]) -> str:
    step, loss = end.passed.trace.step, loss_name(case, end.passed.trace.number)
    whose = "its" if len(names) == 1 else "their"
    return (
        f"every gradient of {count(names)} was exactly zero in each step looked at. In step "
        f"{step} the gradient was followed: all of {whose} ways to `{loss}` end like this."
    )
