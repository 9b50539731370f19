"""The backward of a custom Function computes a gradient that does not fit, or a wrong one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from whygrad.diagnose import checking, complaints, custom
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Definition
from whygrad.record.ops import DATA_WRITE, display_name
from whygrad.session import Finding, Fix, Related
from whygrad.source import contexts, methods
from whygrad.source.methods import Return
from whygrad.source.spans import Span, location

CODE = "custom-backward-shape"

_NUMBER = re.compile(r"\d+")


def diagnose(case: Case) -> Iterator[Finding]:
    if case.question.autopsy is not None:
        return  # what the derivative works with was replaced: no wonder
    found = complaints.said(case, CODE)
    if found is None:
        return
    if found.message.group == "gradcheck":
        yield from _wrong_values(case, found)
        return
    owner = custom.definition(found)
    if owner is not None and custom.derivative(owner) is not None:
        yield _does_not_fit(case, found, owner)
    else:
        yield from _of_torch(case, found)


# --- a gradient of another shape, device or layout --------------------------------------------


def _does_not_fit(case: Case, found: Said, owner: Definition) -> Finding:
    index = _argument(owner, int(found.words.get("g2", 0)))
    chosen = custom.choose(custom.returns(owner), None, index)
    text = chosen[0].text(index) if chosen and index is not None else ""
    where = custom.own_line(case, found, owner, _line(chosen, index) or custom.head(owner))
    name = custom.argument(owner, index) if index is not None else "an input"
    what, expected, fix = _difference(found, name)
    related = _returned(chosen, where, text) + custom.applied_here(case, owner, where)
    return complaints.finding(
        case,
        found,
        where=where,
        related=related,
        title=f"{custom.spoken(owner, 'backward')} returns a gradient {what} for {name}, "
        f"which {expected}",
        label=f"{_named(text)} is the gradient for {name}",
        why="a gradient has one number for each number of the input that it belongs to, on the "
        "same device. Autograd sums over dimensions that were broadcast, and converts the dtype; "
        "it does nothing else to make a gradient fit.",
        fix=fix,
    )


def _argument(owner: Definition, index: int) -> int | None:
    """Torch counts the tensors among the arguments; None if it is not known which is meant."""
    if index < len(owner.gradients):
        return owner.gradients[index] if owner.gradients[index] >= 0 else None
    return index if not owner.wanted and index == 0 else None


def _line(chosen: list[Return], index: int | None) -> Span | None:
    """Where the gradient is computed, or else returned."""
    if not chosen:
        return None
    computed = methods.computed_at(chosen[0], index) if index is not None else None
    return computed or chosen[0].span


def _named(text: str) -> str:
    return f"`{text}`" if text.isidentifier() else "this"


def _returned(chosen: list[Return], where: Span, text: str) -> list[Related]:
    if not chosen or chosen[0].span.line == where.line:
        return []
    return [Related("return", location(chosen[0].span), f"{_named(text)} is returned here")]


def _difference(found: Said, name: str) -> tuple[str, str, Fix]:
    """(what the gradient is, what it should be, what to do)."""
    words = found.words
    if found.message.id == "invalid-gradient-device":
        move = Fix(title=f"make it on the device of {name}: {words['g3']}")
        return f"on {words['g4']}", f"is on {words['g3']}", move
    if found.message.id != "invalid-gradient-shape":
        return "of another kind", "it does not fit", Fix(title=found.fill(found.message.fix))
    got, expected = ([int(n) for n in _NUMBER.findall(words[g])] for g in ("g3", "g4"))
    return f"of shape {got}", f"has shape {expected}", Fix(title=_reshaping(got, expected, name))


def _reshaping(got: list[int], expected: list[int], name: str) -> str:
    if len(got) > 1 and got == expected[::-1]:
        return f"transpose it: the gradient for {name} has the shape of {name}"
    if math.prod(got) == math.prod(expected):
        return f"give it the shape of {name} again: `.reshape({expected})`, from the saved shape"
    if math.prod(got) > math.prod(expected):
        return f"sum over what forward has spread or repeated, down to the shape of {name}"
    return f"compute one number for each of {name}: shape {expected}"


def _of_torch(case: Case, found: Said) -> Iterator[Finding]:
    """An operation of torch's own: then a tensor that it uses got data of another kind."""
    failed, graph = found.complaint.failed, case.graph
    made = graph.event(failed) if failed is not None else None
    sources = [graph.source(fed) for fed in graph.inputs(failed)] if failed is not None else []
    origins = [source.origin for source in sources if source is not None]
    writes = [graph.event(origin) for origin in origins if origin is not None]
    spans = [case.user_span(w.stack) for w in writes if w is not None and w.op == DATA_WRITE]
    where = next((span for span in spans if span is not None), None)
    if made is None or where is None:
        operation = case.places.node_span(failed) if failed is not None else None
        yield complaints.finding(case, found, where=operation)
        return
    yield complaints.finding(
        case,
        found,
        where=where,
        title=f"a tensor that `{display_name(made.op)}` uses got data of another shape or device",
        label="other data for a tensor that autograd knows",
        why="autograd remembers the shape and device of a tensor that wants a gradient for as "
        "long as a graph with it is alive. Data of another kind, put in its place, gives "
        "gradients that do not fit what it remembers.",
        fix=Fix(title="make a new parameter of the new data, and a new optimizer for it"),
    )


# --- a gradient of wrong numbers --------------------------------------------------------------


def _wrong_values(case: Case, found: Said) -> Iterator[Finding]:
    """gradcheck() has compared with finite differences."""
    owners = [d for d in checking.definitions(found) if custom.derivative(d) is not None]
    ignoring = found.message.id == "gradcheck-not-multiplied"
    if ignoring:
        owners = [d for d in owners if _ignores_gradient(d)] or owners
    if not owners:
        yield from checking.without_function(case, found)
        return
    owner = owners[0]
    direct = checking.is_checked_directly(found, owner)
    index = int(found.words["g2"]) if direct and "g2" in found.words else None
    chosen = custom.choose(custom.returns(owner), None, index)
    formula = None if ignoring or not chosen else _formula(owner, chosen[0], index)
    span = formula or _line(chosen, index) or custom.head(owner)
    where = custom.own_line(case, found, owner, span)
    name = f" for {custom.argument(owner, index)}" if index is not None else ""
    found.words |= {"function": owner.name, "backward": custom.spoken(owner, "backward")}
    yield complaints.finding(
        case,
        found,
        where=where,
        related=[*custom.applied_here(case, owner, where), *_others(owners)],
        title=f"{found.words['backward']} computes a wrong gradient{name}" if not ignoring else "",
        label=f"computes the gradient{name}" if not ignoring else "",
        checked=checking.largest_difference(case.question.error_text),
        inferred=checking.doubts(found, owners),
    )


def _formula(owner: Definition, chosen: Return, index: int | None) -> Span | None:
    """The line with the derivative, if the one with the `return` just hands it over."""
    span = methods.formula_at(chosen, index, methods.argument_names(custom.derivative(owner), 1))
    return span if span is not None and span.line == span.end_line else None


def _others(owners: list[Definition]) -> list[Related]:
    spans = [custom.head(owner) for owner in owners[1:3]]
    return [Related("operation", location(s), "takes part as well") for s in spans if s is not None]


def _ignores_gradient(owner: Definition) -> bool:
    """Whether a backward never computes with what comes in."""
    place = custom.derivative(owner)
    incoming = methods.argument_names(place, 1)
    return place is not None and bool(incoming) and not contexts.computes_with(place, incoming)
