"""The backward of a custom Function returns too few or too many gradients, or one too much."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.diagnose import complaints, custom, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Definition
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source import methods
from whygrad.source.edits import replace_text
from whygrad.source.files import load
from whygrad.source.methods import Return
from whygrad.source.spans import Span
from whygrad.source.tree import node_span

CODE = "custom-backward-count"

_IN_ORDER = "return one value per argument of forward, in their order, and `None` for constants"


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        return
    owner = custom.definition(found)
    method = "jvp" if found.message.id == "forward-ad-custom-jvp-count" else "backward"
    if owner is None or custom.derivative(owner, method) is None:
        yield complaints.finding(case, found)
    elif found.message.id == "custom-grad-for-non-tensor":
        yield _for_no_tensor(case, found, owner)
    elif found.message.id == "custom-grad-count":
        yield _count(case, found, owner)
    else:
        got = int(found.words.get("g2", 0)) or None
        chosen = custom.choose(custom.returns(owner, method), got)
        where, related = _places(case, found, owner, chosen, method)
        found.words["function"] = owner.name
        yield complaints.finding(case, found, where=where, related=related)


def _places(
    case: Case, found: Said, owner: Definition, chosen: list[Return], method: str = "backward"
) -> tuple[Span, list[Related]]:
    span = chosen[0].span if chosen else custom.head(owner, method)
    where = custom.own_line(case, found, owner, span)
    related = custom.applied_here(case, owner, where)
    return where, related + custom.other_returns(chosen, "this `return` gives as many")


def _count(case: Case, found: Said, owner: Definition) -> Finding:
    extra = int(custom.is_operator(owner))  # torch adds an argument of its own to an operator's
    expected, got = (int(found.words[name]) - extra for name in ("g2", "g3"))
    chosen = custom.choose(custom.returns(owner), got)
    where, related = _places(case, found, owner, chosen)
    names = custom.arguments(owner)
    named = f": {words.listed(names, limit=6)}" if len(names) == expected else ""
    rest = ", and none may be left out." if got < expected else "; nothing comes after the last."
    return complaints.finding(
        case,
        found,
        where=where,
        related=related,
        title=f"{custom.spoken(owner, 'backward')} returns {words.count(got, 'gradient')} for "
        f"{words.count(expected, 'argument')} of its forward",
        label=f"{words.count(got, 'value')}, where {expected} must come back",
        why=f"autograd matches what backward returns with what forward was given{named}, one by "
        f"one and in that order. An argument that needs no gradient takes a `None`{rest}",
        fix=_fix(owner, chosen, expected, got),
    )


def _fix(owner: Definition, chosen: list[Return], expected: int, got: int) -> Fix:
    if got > expected:
        return Fix(title=f"return {words.count(expected, 'value')}, one per argument of forward")
    if not owner.wanted or any(owner.wanted[got:expected]):
        return Fix(title=_IN_ORDER)
    names = custom.arguments(owner)
    missing = words.listed(names[got:]) if len(names) == expected else "the constants at the end"
    return Fix(title=f"return `None` for {missing}", edits=_fill_up(chosen, expected - got))


def _fill_up(chosen: list[Return], missing: int) -> list[Edit]:
    """`return grad` becomes `return grad, None`, where it is sure that it is no tuple yet."""
    node = chosen[0].node if len(chosen) == 1 else None
    value = node.value if isinstance(node, ast.Return) else None
    if value is None or chosen[0].values is None:
        return []
    source = load(chosen[0].span.file)
    span = node_span(source, value)
    text = source.text(span.extent)
    bare = isinstance(value, ast.Tuple) and not text.startswith("(")
    return replace_text(span, text + ", None" * missing) if bare or _is_one(chosen[0]) else []


def _is_one(found: Return) -> bool:
    return found.values is not None and len(found.values) == 1


def _for_no_tensor(case: Case, found: Said, owner: Definition) -> Finding:
    index = int(found.words["g2"]) - 1
    chosen = custom.choose(custom.returns(owner), None, index)
    where, related = _places(case, found, owner, chosen)
    name = custom.argument(owner, index)
    wanted = [place for place, wanted in enumerate(owner.wanted) if wanted]
    starved = [place for place in wanted if chosen and methods.is_none(chosen[0], place)]
    fix = Fix(title=f"return `None` for {name}", edits=_none_at(chosen, index))
    if starved:
        left = custom.argument(owner, starved[0])
        fix = Fix(title=f"return the gradients in forward's order: {left} gets the `None` now")
    return complaints.finding(
        case,
        found,
        where=where,
        related=related,
        title=f"{custom.spoken(owner, 'backward')} returns a gradient for {name}, which is no "
        "tensor",
        label=f"value {index + 1} belongs to {name}",
        why="autograd matches what backward returns with the arguments of forward, in their order. "
        f"In this call {name} was a plain Python value: nothing can take a gradient for it, so "
        "its place must hold `None`.",
        fix=fix,
    )


def _none_at(chosen: list[Return], index: int) -> list[Edit]:
    found = chosen[0] if len(chosen) == 1 else None
    if found is None or found.values is None or _is_one(found):
        return []
    value = found.values[index]
    inside = any(part is value for part in ast.walk(found.node))
    return replace_text(node_span(load(found.span.file), value), "None") if inside else []
