"""A checkpointed block does something else when it runs again, or is used as it cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import checkpoints, complaints, recomputation
from whygrad.diagnose.alignment import First
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.recomputation import Difference
from whygrad.record.events import Again
from whygrad.record.ops import display_name
from whygrad.session import Finding, Fix, Related
from whygrad.source.branches import short_text
from whygrad.source.spans import Span, location

CODE = "checkpoint-mismatch"


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    match said.message.id:
        case "checkpoint-with-grad-call":
            yield _with_grad_call(case, said)
        case "selective-checkpoint-twice":
            yield complaints.finding(case, said, where=said.outer, code="second-backward")
        case "selective-checkpoint-mutated":
            yield _mutated(case, said)
        case _:
            yield _different(case, said)


def _with_grad_call(case: Case, said: Said) -> Finding:
    behind = case.graph.ancestors(case.roots or case.question.roots)
    calls = checkpoints.reentrant_calls(case, behind)
    where = calls[0][0] if calls else None
    fix = checkpoints.not_reentrant(where) if where is not None else None
    return complaints.finding(case, said, where=where, fix=fix)


def _mutated(case: Case, said: Said) -> Finding:
    """Said where the kept value is asked for; who wrote to it is in the first run."""
    run = said.complaint.recomputed
    where = recomputation.written_in_place(case, run, said.where) if run is not None else None
    related = [Related("saved", location(said.where), "kept from the first run")]
    return complaints.finding(
        case, said, where=where, code="inplace-on-saved", related=related if where else []
    )


def _different(case: Case, said: Said) -> Finding:
    run = said.complaint.recomputed
    raised = said.where if said.message.id == "selective-checkpoint-not-found" else None
    found = recomputation.difference(case, run, raised) if run is not None else None
    call = case.user_span(run.stack) if run is not None else None
    if run is None or found is None or found.where is None:
        return _unexplained(case, said, call)
    where = found.changed if found.between else found.where
    related = []
    read = found.where
    if found.changed is not None and not found.between:
        related.append(Related("written", location(found.changed), "changes what it depends on"))
    elif found.between and read is not None:
        related.append(Related("used", location(read), "depends on it"))
    if call is not None:
        related.append(Related("via", location(call), "checkpointed here"))
    return complaints.finding(
        case,
        said,
        where=where,
        label=_label(found),
        why=f"{said.fill(said.message.meaning)} {_told(found)}",
        related=related,
        fix=_fix(found, where),
        checked=["the operations of both runs were compared, each with the one at the same place."],
    )


def _label(found: Difference) -> str:
    if found.between:
        return "changed between the two runs of the block"
    if found.remembered:
        return "hands out the result of the first run again, without computing it"
    if found.decided is not None:
        return "comes out differently in the two runs"
    if found.read is not None:
        return "reads something else the second time"
    if found.same:
        return "gives another shape or dtype the second time"
    return "does something else the second time"


def _told(found: Difference) -> str:
    """What was different, in a sentence."""
    one, two = found.first, found.second
    if found.same and one is not None and two is not None:
        return _gave(one, two)
    alone = {1: one, 2: two}.get(found.only)
    if alone is not None and one is not None and two is not None:
        which = "first" if found.only == 1 else "second"
        text = f"`{display_name(alone.op)}` computed something in the {which} run only."
        then = found.then
        if then is not None and then.one is not None and then.two is not None:
            text += f" After that, {_gave(then.one, then.two)}"
        return text
    first = f"went on to `{display_name(one.op)}`" if one is not None else "had ended"
    second = f"went on to `{display_name(two.op)}`" if two is not None else "had ended"
    return f"At this point the first run {first}, and the second {second}."


def _gave(one: First, two: Again) -> str:
    gave = f"`{display_name(one.op)}` gave {_value(one)}"
    return f"{gave} in the first run, {_value(two)} in the second."


def _value(value: object) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    name = str(dtype).removeprefix("torch.")
    return f"{name} {list(shape)}" if shape is not None else name


def _fix(found: Difference, where: Span | None) -> Fix | None:
    if found.remembered:
        return Fix(
            title="compute it anew in each run: delete the decorator, or call the function outside "
            "of the block and pass its result in"
        )
    return _between_fix(where) if found.between else None


def _between_fix(where: Span | None) -> Fix:
    text = short_text(where) if where is not None else ""
    what = f"`{text}`" if text else "this change"
    return Fix(title=f"move {what} behind backward(), or before the forward pass")


def _unexplained(case: Case, said: Said, call: Span | None) -> Finding:
    """No operation differs, so that what each one kept does: a module was switched over."""
    run = said.complaint.recomputed
    switch = recomputation.switched(case, run) if run is not None else None
    if switch is None:
        return complaints.finding(case, said, where=call)
    return complaints.finding(
        case,
        said,
        where=switch,
        label="changed between the two runs of the block",
        why=f"{said.fill(said.message.meaning)} Between the forward pass and backward() the "
        "model was switched over, so its layers keep other values the second time.",
        fix=_between_fix(switch),
        related=[Related("via", location(call), "checkpointed here")] if call is not None else [],
    )
