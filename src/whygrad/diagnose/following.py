"""What would fail next, once the failure that was found is mended: the graph shows it already."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import inputs, unreduced, words
from whygrad.diagnose.case import Case
from whygrad.session import Finding, Fix
from whygrad.source.spans import Span, location

_NO_GRAPH = "does not have a grad_fn"
_NOT_SCALAR = "only for scalar outputs"


def after(case: Case, findings: list[Finding]) -> list[Finding]:
    """Findings that come after these. Nothing follows what has no certain cause."""
    raised = [f for f in findings if f.severity == "error" and f.symptom == "raises"]
    if not raised or case.question.kind not in ("backward-raised", "grad-raised"):
        return []
    known = {(f.code, f.location.file, f.location.line) for f in findings}
    found = [f for f in _following(case) if (f.code, f.location.file, f.location.line) not in known]
    return found[:1]


def _following(case: Case) -> Iterator[Finding]:
    text = case.question.error_text
    if _NO_GRAPH in text:
        yield from _not_reduced(case)
    elif _NOT_SCALAR in text and case.question.kind == "grad-raised":
        yield from _not_reached(case)


def _not_reduced(case: Case) -> Iterator[Finding]:
    """A root that no way leads to is not one number either."""
    complaint = case.question.complaint
    if complaint is None or _is_given_gradient(case):
        return
    for root in case.roots or case.question.roots:
        found = unreduced.find(case, root)
        if found is None:
            continue
        name = case.root_name
        yield _next(
            case,
            code="non-scalar-loss",
            where=found.where,
            title=f"next, `{name}` has shape {found.shape} and is not reduced to one number",
            label=f"gives {found.shape}",
            why="when gradient can flow again, backward() still needs one number to start from: "
            "it would raise `grad can be implicitly created only for scalar outputs`.",
            fix="reduce it with `.mean()` or `.sum()` as well",
        )
        return


def _is_given_gradient(case: Case) -> bool:
    """Whether the failing call was told how much each element counts."""
    complaint = case.question.complaint
    texts = complaint.texts if complaint is not None else {}
    names = ("gradient", "grad_tensors", "grad_outputs")
    roots = set(case.question.roots)
    given = complaint.given if complaint is not None else []
    others = [g for g in given if g.node not in roots and g.name in names]
    return bool(others) or not any(texts.get(name) == "None" for name in names)


def _not_reached(case: Case) -> Iterator[Finding]:
    """An output that is not reduced does not depend on an input, or that tracks nothing."""
    for node in case.question.targets:
        name = inputs.spoken(case, node)
        if not inputs.tracks(case, node):
            where = inputs.own_span(case, node) or case.user_span(case.question.stack)
            if where is not None:
                yield _next(
                    case,
                    code="input-without-grad",
                    where=where,
                    title=f"next, `{name}` does not track gradients",
                    label=f"`{name}` comes from here without requires_grad",
                    why="when the output is one number, grad() still needs inputs that track "
                    "gradients: it would raise `One of the differentiated Tensors does not "
                    "require grad`.",
                    fix=f"mark it before it is used: `{name}.requires_grad_()`",
                )
            return
        behind = case.graph.ancestors(case.question.roots)
        lost = inputs.lost(case, node) if node not in behind else None
        if lost is not None:
            yield _next(
                case,
                code="unused-input",
                where=lost.where,
                title=f"next, `{case.root_name}` does not depend on `{name}`",
                label=f"`{name}` takes no part in it",
                why="when the output is one number, grad() still finds no way from it to this "
                f"input: it would raise that `{name}` appears to not have been used in the graph.",
                fix=f"compute the output from `{name}`, or differentiate by what was used",
            )
            return


def _next(
    case: Case,
    *,
    code: str,
    where: Span,
    title: str,
    label: str,
    why: str,
    fix: str,
) -> Finding:
    return Finding(
        code=code,
        severity="warning",
        symptom="raises",
        title=title,
        message=words.sentence(title),
        location=location(where),
        label=label,
        why=why,
        inferred=["it has not happened yet: the failure before it comes first."],
        fix=Fix(title=fix),
        first_step=case.question.step,
    )
