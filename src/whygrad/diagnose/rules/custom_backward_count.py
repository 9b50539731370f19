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
from whygrad.source.spans import Span, location
from whygrad.source.tree import node_span

CODE = "custom-backward-count"

_SHORT = 40  # characters of an expression that a line of advice can hold

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
    case: Case,
    found: Said,
    owner: Definition,
    chosen: list[Return],
    method: str = "backward",
    applied: int | None = None,
) -> tuple[Span, list[Related]]:
    span = chosen[0].span if chosen else custom.head(owner, method)
    where = custom.own_line(case, found, owner, span)
    related = custom.applied_here(case, owner, where, applied)
    return where, related + custom.other_returns(chosen, "this `return` gives as many")


def _count(case: Case, found: Said, owner: Definition) -> Finding:
    extra = int(custom.is_operator(owner))  # torch adds an argument of its own to an operator's
    expected, got = (int(found.words[name]) - extra for name in ("g2", "g3"))
    written = custom.returns(owner)
    chosen = custom.choose([*written, *custom.end(owner)], got)
    where, related = _places(case, found, owner, chosen)
    names = custom.arguments(owner)
    named = f": {words.listed(names, limit=6)}" if len(names) == expected else ""
    rest = ", and none may be left out." if got < expected else "; nothing comes after the last."
    does = f"returns {words.count(got, 'gradient')} for {words.count(expected, 'argument')} of its "
    does, label = f"{does}forward", f"{words.count(got, 'value')}, where {expected} must come back"
    if chosen and methods.is_end(chosen[0]):
        does = f"{'may end' if written else 'ends'} without a `return`"
        does += f", where {words.count(expected, 'value')} must come back"
        label = "no `return` at its end"
    return complaints.finding(
        case,
        found,
        where=where,
        related=related,
        title=f"{custom.spoken(owner, 'backward')} {does}",
        label=label,
        why=f"autograd matches what backward returns with what forward was given{named}, one by "
        f"one and in that order. An argument that needs no gradient takes a `None`{rest}",
        fix=_fix(owner, chosen, expected, got),
    )


def _fix(owner: Definition, chosen: list[Return], expected: int, got: int) -> Fix:
    if got > expected:
        return Fix(title=f"return {words.count(expected, 'value')}, one per argument of forward")
    unreturned = bool(chosen) and methods.is_end(chosen[0])
    learnable = [index for index in range(expected) if custom.ever_wanted(owner, index)]
    if not learnable or unreturned or learnable[-1] >= got:
        return Fix(title=_in_order(owner, expected, learnable))
    names = custom.arguments(owner)
    missing = words.listed(names[got:]) if len(names) == expected else "the constants at the end"
    return Fix(title=f"return `None` for {missing}", edits=_fill_up(chosen, expected - got))


def _in_order(owner: Definition, expected: int, learnable: list[int]) -> str:
    """What to return, argument by argument."""
    names = custom.arguments(owner)
    if len(names) != expected or not learnable:
        return _IN_ORDER
    values = f"the gradient for {words.listed([names[i] for i in learnable], limit=expected)}"
    rest = [name for index, name in enumerate(names) if index not in learnable]
    constants = f", `None` for {words.listed(rest, limit=expected)}" if rest else ""
    return f"return one value per argument of forward, in their order: {values}{constants}"


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
    name = custom.argument(owner, index)
    # What is no tensor wants no gradient: a call where it does is not the one that failed.
    stack, flags = next(
        (call for call in custom.calls(owner) if not custom.wants(call[1], index)), (0, ())
    )
    where, related = _places(case, found, owner, chosen, applied=stack)
    wanted = [place for place, wanted in enumerate(flags) if wanted]
    starved = [place for place in wanted if chosen and methods.is_none(chosen[0], place)]
    fix = Fix(title=f"return `None` for {name}", edits=_none_at(chosen, index))
    rest = ""
    if starved:
        left = custom.argument(owner, starved[0])
        fix = Fix(title=f"return the gradients in forward's order: {left} gets the `None` now")
    elif custom.ever_wanted(owner, index):
        fix = _where_wanted(owner, chosen, index)
        rest = " Other calls want a gradient for it, and `None` for all would leave them without."
        related += _learnable_at(case, owner, index, name)
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
        f"its place must hold `None`.{rest}",
        fix=fix,
    )


def _where_wanted(owner: Definition, chosen: list[Return], index: int) -> Fix:
    """Other calls train this argument: `None` for all of them would end that."""
    place = custom.derivative(owner)
    context = (methods.argument_names(place, 0) or ["ctx"])[0]
    text = chosen[0].text(index) if chosen else ""
    value = text if text and len(text) < _SHORT and "\n" not in text else "gradient"
    return Fix(
        title=f"return it only where it is wanted: "
        f"`{value} if {context}.needs_input_grad[{index}] else None`"
    )


def _learnable_at(case: Case, owner: Definition, index: int, name: str) -> list[Related]:
    """The call that a gradient for this argument is meant for."""
    stacks = [stack for stack, wanted in custom.calls(owner) if custom.wants(wanted, index)]
    span = custom.applied_at(case, owner, stacks[0])
    label = f"in this call {name} wants a gradient"
    return [Related("operation", location(span), label)] if span is not None else []


def _none_at(chosen: list[Return], index: int) -> list[Edit]:
    found = chosen[0] if len(chosen) == 1 else None
    if found is None or found.values is None or _is_one(found):
        return []
    value = found.values[index]
    inside = any(part is value for part in ast.walk(found.node))
    return replace_text(node_span(load(found.span.file), value), "None") if inside else []
