"""A custom Function gives no gradient: it has no backward, returns no tensor, or returns None."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.diagnose import complaints, custom, starved, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.starved import Starved
from whygrad.session import Finding, Fix, Related
from whygrad.source import methods
from whygrad.source.methods import Return
from whygrad.source.spans import Span, location

CODE = "custom-backward-none"

_WHERE = {"": "in its place", "ends": "at its end", "may end": "on every path"}
_LIKE_NONE = "a function that comes to its end without a `return` gives `None`. "


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        for lost in starved.inputs(case):
            yield _silent(case, lost)
    elif found.message.id == "custom-grad-not-tensor":
        yield _no_tensor(case, found)
    else:
        yield _missing(case, found)


# --- no derivative at all ---------------------------------------------------------------------


def _missing(case: Case, found: Said) -> Finding:
    """The class, or the operator, where a backward (or jvp) has to be added."""
    owner = custom.definition(found)
    place = owner.methods.get("forward") if owner is not None else None
    if owner is None or place is None:
        operation = found.complaint.failed
        return complaints.finding(
            case, found, where=case.places.node_span(operation) if operation is not None else None
        )
    if custom.is_operator(owner):
        span: Span | None = methods.decorator_line(place)
    else:
        span = methods.class_span(place)
    where = custom.own_line(case, found, owner, span or methods.head_span(place))
    found.words |= {"function": owner.name, "arguments": words.listed(custom.arguments(owner))}
    return complaints.finding(
        case, found, where=where, related=custom.applied_here(case, owner, where)
    )


# --- something that is no tensor --------------------------------------------------------------


def _no_tensor(case: Case, found: Said) -> Finding:
    kind = found.words.get("g1", "")
    candidates = [
        (owner, chosen)
        for owner in found.complaint.functions
        if owner.autograd_name
        for chosen in custom.returns(owner)
    ]
    sure = [pair for pair in candidates if _index_of(pair[1], kind) is not None]
    if not candidates:
        return complaints.finding(case, found)
    owner, chosen = (sure or candidates)[0]
    index = _index_of(chosen, kind)
    where = custom.own_line(case, found, owner, chosen.span)
    name = f" for {custom.argument(owner, index)}" if index is not None else ""
    return complaints.finding(
        case,
        found,
        where=where,
        related=custom.applied_here(case, owner, where),
        title=f"{custom.spoken(owner, 'backward')} returns a `{kind}`{name}, where a tensor is due",
        label=f"`{chosen.text(index)}` is no tensor" if index is not None else "",
    )


def _index_of(found: Return, kind: str) -> int | None:
    """The value of a return that is surely of this type, as far as it is written down."""
    for index, value in enumerate(found.values or ()):
        if _type_of(value) == kind.rpartition(".")[2]:
            return index
    return None


def _type_of(value: ast.expr) -> str:
    match value:
        case ast.Constant(value=constant):
            return type(constant).__name__
        case ast.Tuple():
            return "tuple"
        case ast.List() | ast.ListComp():
            return "list"
        case ast.Call(func=ast.Name(id=name)) if name in ("float", "int", "bool", "list", "tuple"):
            return name
        case ast.Call(func=ast.Attribute(attr="item")):
            return "float"
        case ast.Call(func=ast.Attribute(attr="numpy")):
            return "ndarray"
        case ast.Call(func=ast.Attribute(attr="tolist")):
            return "list"
    return ""


# --- None, without a word ---------------------------------------------------------------------


def _silent(case: Case, lost: Starved) -> Finding:
    names = case.names(lost.targets)
    listed, argument = words.listed(names), lost.argument
    does = f"{lost.unreturned} without a `return`" if lost.unreturned else "returns `None`"
    backward, given = f"`{lost.function}.backward()`", "" if lost.unreturned else f" for {argument}"
    remedy = f"return the gradient for {argument} {_WHERE[lost.unreturned]}"
    title = f"{backward} {does}{given}: no gradient for {listed}"
    related = [Related("operation", location(lost.applied), "applied here")] if lost.applied else []
    surface = case.surface
    if surface is not None:
        related.append(Related("surfaced", location(surface), "runs, and leaves gradients out"))
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} {words.sentence(remedy)}",
        location=location(lost.where),
        label=f"no gradient goes on to {argument}",
        related=related,
        parameters=names,
        why=(_LIKE_NONE if lost.unreturned else "")
        + "`None` tells autograd that an argument has no influence that matters, and everything "
        f"behind {argument} gets no gradient from this Function. Nothing is raised, and the "
        "optimizer passes over parameters without a gradient.",
        checked=[
            f"in the first backward pass `{lost.function}Backward` got a gradient and handed none "
            f"on to {argument}; {words.count(len(names), 'parameter')} had none at the step."
        ],
        fix=Fix(
            title=remedy,
            deliberate="if it is meant to stay as it is, freeze it with `requires_grad_(False)`.",
        ),
        first_step=case.question.step,
    )
