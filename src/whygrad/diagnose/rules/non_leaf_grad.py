"""The gradient of a result is asked for: it is stored in leaves only."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import absent_stories, complaints, results
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.results import Result
from whygrad.session import Finding, Fix, Related, Severity
from whygrad.source.guards import asks_for_none
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, receiver_text

CODE = "non-leaf-grad"

_READ = "non-leaf-grad-access"
_LONG = 40


def diagnose(case: Case) -> Iterator[Finding]:
    absence = case.absence
    if absence is not None:
        said = absent_stories.said(case)
        if said is not None and absence.kind == "result":
            yield from _explain(case, said, [read.node for read in absence.reads])
        return
    said = complaints.said(case, CODE)
    if said is None:
        return
    nodes = [given.node for given in said.complaint.given if not given.leaf]
    if nodes:
        yield from _explain(case, said, nodes[:1])
    elif said.message.id != _READ:  # torch's own warning comes with the read itself
        yield complaints.finding(case, said)


def _explain(case: Case, said: Said, nodes: list[int]) -> Iterator[Finding]:
    found = results.result(case, nodes[0])
    if found is None:
        if said.message.id != _READ:
            yield complaints.finding(case, said, code=CODE)
        return
    name = _name(case, said, found)
    computed = found.where
    results.find_store(case, found, _read(case, said))
    leaf = _leaf_name(case, found)
    said.words |= {"name": name, "operation": found.operation}
    yield complaints.finding(
        case,
        said,
        code=CODE,
        where=found.where,
        title=_title(name, found),
        label=_label(name, leaf, found),
        why=_why(name, leaf, found),
        fix=_fix(name, leaf, found, _is_registered(case, found)),
        related=_related(found, said.where, computed),
        parameters=[name] if name.isidentifier() else [],
        checked=_checked(leaf, found),
        severity=_severity(said, found),
    )


def _name(case: Case, said: Said, found: Result) -> str:
    """The tensor as the line that asks for its gradient calls it, else as it was first called."""
    read = _read(case, said)
    text = receiver_text(read) if read is not None else None
    if text and len(text) <= _LONG and "\n" not in text:
        return text
    names = assigned_names(found.where)
    return names[0] if names else "the tensor"


def _read(case: Case, said: Said) -> Span | None:
    """Where the gradient is asked for."""
    if case.absence is not None:
        return case.user_span(case.absence.reads[0].stack)
    return said.where if said.message.id == _READ else None


def _leaf_name(case: Case, found: Result) -> str:
    if found.leaf is None or found.made is None or found.made.line == found.where.line:
        return ""
    info = case.parameter(found.leaf)
    if info is not None and info.name:
        return info.name
    names = assigned_names(found.made)
    return names[0] if len(names) == 1 else ""


def _is_registered(case: Case, found: Result) -> bool:
    info = case.parameter(found.leaf) if found.leaf is not None else None
    return info is not None and info.registered


def _quoted(name: str) -> str:
    return name if name == "the tensor" else f"`{name}`"


def _title(name: str, found: Result) -> str:
    if found.updated:
        return f"the update makes {_quoted(name)} a new tensor, whose `.grad` is never filled"
    if found.leaf is not None:
        return f"{_quoted(name)} is no leaf: `{found.operation}` made it, so its `.grad` stays None"
    return f"{_quoted(name)} is the result of `{found.operation}`: its gradient is not kept"


def _label(name: str, leaf: str, found: Result) -> str:
    if found.updated:
        return f"from here on {_quoted(name)} is a result, not the leaf"
    if leaf and leaf != name:
        return f"gradient goes on to `{leaf}`, the leaf, and is kept there"
    if found.leaf is not None:
        return "a leaf goes in, a result comes out: the leaf's gradient is kept, not this one's"
    if found.stored is not None:
        return "the tensor is kept here, its gradient is not"
    return "computed here"


def _why(name: str, leaf: str, found: Result) -> str:
    said = _quoted(name)
    why = (
        "backward() stores gradients in leaves: tensors that were made, not computed. "
        "Gradient passes through a result and is not kept there. "
    )
    if found.updated:
        return (
            f"{why}This line computes a new tensor from the old {said} and gives it the same "
            "name; only the old one, the leaf, has a gradient. The history grows with each update."
        )
    if found.leaf is None:
        return f"{why}{said[:1].upper()}{said[1:]} is such a result, and nothing asked to keep it."
    behind = f"`{leaf}`, the leaf behind it," if leaf and leaf != name else "the leaf behind it"
    return f"{why}`{found.operation}` returns a new tensor, and {behind} gets the gradient."


def _fix(name: str, leaf: str, found: Result, registered: bool) -> Fix:
    if found.updated:
        return Fix(
            title=f"update the leaf itself: `with torch.no_grad(): {name} -= ...`",
            safety="the numbers stay equal",
            deliberate="if gradient should flow through the updates (meta-learning), use "
            "torch.autograd.grad() instead of `.grad`.",
        )
    if found.stored is not None:
        stored = found.stored
        inside = f"in `{stored.function}`" if stored.function else "in the lambda"
        return Fix(title=f"call `{stored.value}.retain_grad()` here too, {inside}")
    keep = f"call `{name}.retain_grad()` before backward()"
    if found.leaf is None:
        return Fix(title=keep if name != "the tensor" else "call `.retain_grad()` on it first")
    if leaf and leaf != name and registered:
        return Fix(title=f"read the gradient of the leaf: `{leaf}.grad`", deliberate=f"or {keep}.")
    here = found.made is None or found.made.line == found.where.line
    return Fix(
        title="make the leaf last, of the finished values: `(...).requires_grad_()`, or "
        "`nn.Parameter(...)`, around all of it"
        if here
        else "ask for the gradient after this line, not before: leave requires_grad out where "
        "the leaf is made, and call `.requires_grad_()` on what comes out here",
        safety="forward values stay equal",
        deliberate=f"if it is meant to be computed, {keep}, or read the leaf's own `.grad`.",
    )


def _related(found: Result, read: Span, computed: Span) -> list[Related]:
    if found.stored is not None:
        return [Related("operation", location(computed), f"`{found.operation}` runs in here")]
    made = found.made
    if made is None or made.line in (found.where.line, read.line):
        return []
    return [Related("created", location(made), "the leaf")]


def _checked(leaf: str, found: Result) -> list[str]:
    if found.leaf is None:
        return []
    return [f"of what went into it, only {f'`{leaf}`' if leaf else 'the leaf'} carries gradient."]


def _severity(said: Said, found: Result) -> Severity | None:
    """Who only asks whether there is a gradient, of a result inside a model, may well know."""
    if not said.complaint.warning:
        return None
    guarded = asks_for_none(said.where) or said.library is not None
    return "info" if found.leaf is None and guarded else "warning"
