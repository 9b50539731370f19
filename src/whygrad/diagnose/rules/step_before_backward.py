"""Parameters were updated between a forward pass and the backward pass that still needs them."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import lives, words
from whygrad.diagnose.case import Case
from whygrad.record.events import Change, SavedValue
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location

CODE = "step-before-backward"


def diagnose(case: Case) -> Iterator[Finding]:
    autopsy = case.question.autopsy
    if autopsy is None or case.meeting is not None:
        return
    changed = [value for value in autopsy.saved if value.changes]
    if not changed or not lives.is_weight(case, changed[0]):
        return
    moved = [value for value in changed if lives.is_weight(case, value)]
    change = moved[0].changes[0]
    where, library = lives.change_span(case, change)
    if where is not None:
        same = [v for v in moved if any(_is_at(case, c, where) for c in v.changes)]
        yield _finding(case, same, change, where, library)


def _is_at(case: Case, change: Change, where: Span) -> bool:
    """One line may step several optimizers, one after the other."""
    return lives.change_span(case, change)[0] == where


def _finding(
    case: Case, moved: list[SavedValue], change: Change, where: Span, library: Span | None
) -> Finding:
    names = lives.moved_parameters(case, moved)
    silent = moved[0].state == "overwritten"
    subject, owner = _subject(change, where, library), _owner(case, moved)
    of = f" of `{owner}`" if owner else ""
    shown = words.listed(names) if len(names) <= 2 else f"{len(names)} parameters{of}"
    late = lives.failing_call(case)
    title = f"{subject} changes {shown} before {late} has used the old values"
    return Finding(
        code=CODE,
        severity="error",
        symptom="silent" if silent else "raises",
        title=title,
        message=f"{words.sentence(title)} Affected: {words.listed(names, 8)}.",
        location=location(where),
        label=f"{_moves(owner, names)} here",
        related=[
            *_forward(case, moved),
            *_steppers(case, moved, where),
            *lives.surfaced_here(case, where),
            *lives.callers(case, case.question.stack, change.stack, "its backward comes too late"),
        ],
        parameters=names,
        why=_why(case, change, silent),
        checked=[_checked(case, moved, change)],
        fix=_fix(case, change, owner),
        first_step=case.question.step,
    )


def _subject(change: Change, where: Span, library: Span | None) -> str:
    if change.kind == "step":
        return f"this `{change.op}` step"
    inside = " inside a library call" if library is not None else ""
    through = " through `.data`" if change.kind == "data" and change.op != "data=" else ""
    return f"{lives.spoken_write(change.op, where)}{through}{inside}"


def _owner(case: Case, moved: list[SavedValue]) -> str:
    """The one outermost module whose parameters moved."""
    infos = [case.parameter(value.leaf) for value in moved if value.leaf is not None]
    owners = {info.owner for info in infos if info is not None}
    return owners.pop() if len(owners) == 1 else ""


def _moves(owner: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"`{names[0]}` changes"
    return f"the parameters of `{owner}` change" if owner else f"{len(names)} parameters change"


def _forward(case: Case, moved: list[SavedValue]) -> list[Related]:
    """The forward calls that used the old values, the first ones only."""
    found: dict[tuple[str, int], Related] = {}
    for value in reversed(moved):
        span = case.places.node_span(value.event) if value.event is not None else None
        if span is None:
            continue
        label = f"{lives.kept_by(case, value)} used the old values and keeps them for backward"
        found.setdefault((span.file, span.line), Related("saved", location(span), label))
    return list(found.values())[:2]


def _steppers(case: Case, moved: list[SavedValue], where: Span) -> list[Related]:
    """If the update is made in a helper: the calls of it that came too early."""
    stacks = {c.stack for v in moved for c in v.changes if _is_at(case, c, where)}
    late = case.question.stack
    return [r for s in sorted(stacks) for r in lives.callers(case, s, late, "updates here")][:3]


def _why(case: Case, change: Change, silent: bool) -> str:
    used = (
        f"`{case.root_name}` was computed with the values from before this line. Its gradient is "
        "defined for those, and autograd kept the parameter itself, not a copy of it."
    )
    if not silent:
        return f"{used} By now they have been overwritten."
    how = "a fused optimizer" if change.kind == "step" else "a write through `.data`"
    return (
        f"{used} Autograd usually raises an error here, but {how} leaves its version counter "
        "alone: backward() runs and mixes old activations with new weights, and the gradients "
        "are wrong."
    )


def _checked(case: Case, moved: list[SavedValue], change: Change) -> str:
    at = words.count(len(moved), "value")
    made = "optimizer step" if change.kind == "step" else "write"
    return (
        f"{at} kept for this backward share{'s' if len(moved) == 1 else ''} memory with "
        f"parameters that this {made} changed after the forward pass."
    )


def _fix(case: Case, change: Change, owner: str) -> Fix:
    root = case.root_name
    step = f"this {'step' if change.kind == 'step' else 'update'}"
    whose = f" of `{owner}`" if owner else ""
    return Fix(
        title=f"call {lives.failing_call(case)} before {step}{whose}, or compute `{root}` anew "
        "after it",
        safety=f"backward first: `{root}` keeps its value; computed anew: it uses the new weights",
        deliberate="if two losses share a forward pass, call backward() on both, then step both "
        "optimizers.",
    )
