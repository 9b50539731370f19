"""autograd.grad() is asked about an input that the output does not depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from whygrad.diagnose import complaints, functionals, inputs, lives, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.inputs import Lost
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import location

CODE = "unused-input"

_ALLOW = (
    "if it is meant not to depend on it, pass `allow_unused=True`, which gives None, or "
    "`materialize_grads=True`, which gives zeros."
)


def diagnose(case: Case) -> Iterator[Finding]:
    told = functionals.tell(case, CODE)
    if told is not None:
        yield told
        return
    said = complaints.said(case, CODE)
    if said is None:
        return
    node = inputs.wanted(case)
    lost = inputs.lost(case, node) if node is not None else None
    if node is None or lost is None:
        yield complaints.finding(case, said)
        return
    name, output = inputs.spoken(case, node), case.root_name
    said.words |= {"wanted": f"`{name}`", "output": f"`{output}`"}
    if lost.cut is not None:
        yield _cut(case, lost.cut, name, output)
    else:
        yield _told(case, said, lost, name, output)


def _cut(case: Case, cut: Finding, name: str, output: str) -> Finding:
    """A cut lies between the two: its own story, with the question that was asked."""
    if cut.code == "create-graph-missing":
        return cut
    title = f"{cut.title.partition(' cuts ')[0]} cuts `{output}` off from `{name}`"
    return replace(
        cut,
        code=CODE,
        title=title,
        message=f"{words.sentence(title)} No gradient can be computed for `{name}`.",
        parameters=[],
        checked=[],
        fix=None if cut.fix is None else replace(cut.fix, deliberate=_ALLOW),
    )


def _told(case: Case, said: Said, lost: Lost, name: str, output: str) -> Finding:
    used = _used(case, lost)
    label, why, fix = _WORDS[lost.relation]
    place = {"name": name, "output": output, "used": used}
    named = case.name(lost.used) if lost.used is not None else ""
    return complaints.finding(
        case,
        said,
        where=lost.where,
        title=_title(lost, name, output, used),
        label=label.format(**place),
        why=why.format(**place),
        fix=Fix(title=fix.format(**place), deliberate=_ALLOW),
        related=_made(lost, name),
        checked=[_checked(lost, name, output, used)],
        parameters=[named] if lost.used is not None and case.parameter(lost.used) else [],
    )


def _title(lost: Lost, name: str, output: str, used: str) -> str:
    match lost.relation:
        case "late":
            return f"`{name}` is marked with requires_grad after `{output}` was computed from it"
        case "constant":
            return f"the derivative of `{output}` does not depend on `{name}`"
        case "unused":
            return f"`{output}` is computed without `{name}`"
    return f"`{output}` was computed from {used}, not from `{name}`"


# Relation -> label, why, fix.
_WORDS = {
    "late": (
        "too late: `{output}` does not know of it",
        "an operation is recorded for the tensors that require grad at that moment. `{name}` did "
        "not when it was used, so nothing leads back to it.",
        "mark `{name}` before it is used",
    ),
    "constant": (
        "`{name}` has no part in what is differentiated here",
        "values of `{name}` did take part, but nothing that is left in the graph leads back to "
        "it. A derivative of something linear is a constant, for example, and has no derivative.",
        "pass `allow_unused=True` and take None as zero, or `materialize_grads=True`",
    ),
    "replaced": (
        "from here on `{name}` is another tensor, which `{output}` does not know of",
        "autograd goes by the tensor object, not by its name or values. What is made here was "
        "not there when `{output}` was computed, or was not used for it.",
        "do this before `{output}` is computed, or keep the tensor that was used under a name "
        "of its own and differentiate by that",
    ),
    "copied": (
        "`{name}` is not the tensor that `{output}` was computed from",
        "autograd goes by the tensor object, not by its values: `{name}` was made from {used}, "
        "but `{output}` was computed from {used} itself. No way leads from `{output}` to "
        "`{name}`.",
        "differentiate by {used}, and take the part that is needed from the result",
    ),
    "forgotten": (
        "computed from {used}; `{name}` is left aside",
        "autograd goes by the tensor object, not by its values: `{name}` was made from {used}, "
        "but this line goes on with {used}. No way leads from `{output}` to `{name}`.",
        "compute it from `{name}`",
    ),
    "unused": (
        "`{name}` takes no part in this",
        "none of the operations behind `{output}` used `{name}`, nor anything made from it, so "
        "no way leads from `{output}` to it.",
        "use `{name}` where `{output}` is computed, or leave it out of the inputs",
    ),
}


def _used(case: Case, lost: Lost) -> str:
    """What the output was computed from, as a person knows it."""
    if lost.used is None:
        return "something else"
    name = case.name(lost.used)
    return "another tensor" if name.startswith("tensor") else f"`{name}`"


def _made(lost: Lost, name: str) -> list[Related]:
    if lost.made is None or lives.same_place(lost.made, lost.where):
        return []
    if (lost.made.file, lost.made.line) == (lost.where.file, lost.where.line):
        return []
    label = "used here before" if lost.relation == "late" else f"`{name}` is made here"
    return [Related("used" if lost.relation == "late" else "created", location(lost.made), label)]


def _checked(lost: Lost, name: str, output: str, used: str) -> str:
    match lost.relation:
        case "late" | "constant":
            return f"values of `{name}` did flow into `{output}`, and no cut lies between them."
        case "unused":
            return f"neither `{name}` nor anything made from it flows into `{output}`."
    return f"{used} flows into `{output}`, and `{name}` does not."
