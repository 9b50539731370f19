"""A deep copy meets the result of a computation: which line stored it there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.diagnose import complaints, words
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Given
from whygrad.session import Finding, Fix, Related
from whygrad.source.attributes import class_at, filling, statement_span, store_of
from whygrad.source.files import FUNCTIONS
from whygrad.source.putting import into_attribute, into_collection
from whygrad.source.spans import Span, location
from whygrad.source.tree import function_at, receiver_text, statement_at
from whygrad.source.uses import values_used

CODE = "deepcopy-non-leaf"


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    texts = said.complaint.texts
    given = next((g for g in said.complaint.given if g.requires_grad and not g.leaf), None)
    if texts.get("computed_from"):
        yield _recomputed(case, said, texts["computed_from"].split())
    else:
        yield _stored(case, said, given)


def _stored(case: Case, said: Said, given: Given | None) -> Finding:
    spans = _computed_at(case, given)
    where = _storing(case, said, spans)
    name = _kept_as(said)
    related = [
        Related("created", location(span), "what is stored is computed here")
        for span in spans[:1]
        if where is None or statement_at(span) is not statement_at(where)
    ]
    itself = not said.complaint.texts.get("kept_as")
    learnt = _learnt(case, given, where) if given is not None and not itself else []
    known = [node for node in learnt if case.parameter(node) is not None]
    title = (
        f"{name} is the result of a computation, and cannot be deep-copied"
        if itself
        else f"{name} holds the result of a computation, and cannot be deep-copied with the rest"
    )
    return complaints.finding(
        case,
        said,
        where=where,
        title=title,
        label="a result with its history is stored here" if where is not None else "",
        fix=_in_forward(case.names(known)) if learnt else _fix(itself),
        parameters=case.names(known),
        related=related,
        checked=[f"the copy had got as far as {name} when it failed."] if not itself else [],
    )


def _fix(itself: bool) -> Fix:
    if itself:
        return Fix(
            title="copy the numbers alone: `.detach().clone()`",
            deliberate="if gradient is to flow through the copy, `.clone()` keeps the history.",
        )
    return Fix(
        title="store the numbers alone (`.detach()`), or copy before it is stored",
        deliberate="if a loss still needs the stored tensor, return it from the function instead "
        "of keeping it, or set it to None before the copy.",
    )


def _in_forward(known: list[str]) -> Fix:
    """Stored without its history, it would never train what it was computed from."""
    return Fix(
        title=f"compute it from {words.listed(known)} in `forward`, anew for each pass"
        if known
        else "store the parameter itself, and compute this from it in `forward`",
        deliberate="if it is to stay a constant, store `.detach()` of it: then what it was "
        "computed from does not train.",
    )


def _learnt(case: Case, given: Given, where: Span | None) -> list[int]:
    """The parameters that a module has computed an attribute from ahead of its forward passes."""
    owner = class_at(where) if where is not None else None
    method = function_at(where) if where is not None else None
    if owner is None or method is None or not any(_is_forward(node) for node in owner.body):
        return []
    ahead = getattr(method, "name", "") == "__init__" or len(method.args.args) <= 1
    graph, seen, waiting = case.graph, {given.node}, [given.node]
    while waiting and ahead:
        node = waiting.pop()
        if graph.trainable_leaf(node):
            continue
        if _in_forward_pass(case, node):
            return []
        fresh = [fed for fed in graph.inputs(node) if graph.live(fed) and fed not in seen]
        seen.update(fresh)
        waiting += fresh
    return [node for node in seen if graph.trainable_leaf(node)]


def _is_forward(node: ast.AST) -> bool:
    return isinstance(node, FUNCTIONS) and node.name == "forward"


def _in_forward_pass(case: Case, node: int) -> bool:
    functions = [function_at(span) for span in case.places.node_spans(node)]
    return any(function is not None and _is_forward(function) for function in functions)


def _kept_as(said: Said) -> str:
    """The tensor as the program knows it: `Net.feat`, `history[3]`."""
    texts = said.complaint.texts
    way = texts.get("kept_as", "")
    if texts.get("attribute"):
        last = f".{texts['attribute']}"
        return f"`{texts['keeper']}{last}{f'.{way}'.rpartition(last)[2]}`"
    copied = receiver_text(said.where) or ""
    if not copied or len(copied) > 40 or "\n" in copied:
        return "a tensor in it" if way else "the tensor"
    return f"`{copied}{way}`"


def _computed_at(case: Case, given: Given | None) -> tuple[Span, ...]:
    spans = case.places.node_spans(given.node) if given is not None else ()
    return tuple(span for span in spans if not is_library(span.file))


def _storing(case: Case, said: Said, spans: tuple[Span, ...]) -> Span | None:
    """The line that put the tensor where the copy found it."""
    texts = said.complaint.texts
    attribute, keeper = texts.get("attribute", ""), texts.get("keeper", "")
    if attribute:
        own = [s for s in spans if (around := class_at(s)) is not None and around.name == keeper]
        for near in (own, list(spans)):
            statement = store_of(near, attribute) or filling(near, attribute)
            span = next((s for s in near if statement is not None), None)
            if span is not None and statement is not None and statement_at(span) is not None:
                found = [s for s in near if _holds(s, statement.lineno, statement.end_lineno)]
                return statement_span((found or [span])[0], statement)
    if not texts.get("kept_as"):
        return None
    files = dict.fromkeys([*(s.file for s in spans), *_program_files(case, said)])
    for file in files:
        placed = into_attribute(file, attribute, keeper) if attribute else []
        for name in [] if attribute else values_used(said.where):
            placed += into_collection(file, name)
        if placed:
            return placed[-1]
    return spans[0] if spans else None


def _holds(span: Span, first: int, last: int | None) -> bool:
    return first <= span.line <= (last or first)


def _program_files(case: Case, said: Said) -> list[str]:
    spans = case.places.spans(said.complaint.outer)
    return [span.file for span in spans if not is_library(span.file)]


def _recomputed(case: Case, said: Said, parameters: list[str]) -> Finding:
    """A hook of torch.nn.utils computes the weight anew: at the line that set the hook up."""
    where, names = None, []
    for info in case.question.parameters:
        if info.name.rpartition(".")[2] in parameters:
            source = case.graph.source(info.node)
            where = where or (case.user_span(source.stack) if source is not None else None)
            names.append(info.name)
    attribute = said.complaint.texts["attribute"]
    return complaints.finding(
        case,
        said,
        where=where,
        title=f"`{attribute}` is computed from {words.listed(parameters)}, and cannot be "
        "deep-copied",
        label="from here on the weight is a result, not a parameter" if where is not None else "",
        why=f"this makes `{attribute}` the result of a computation that is done anew for every "
        "forward pass. A deep copy takes all attributes along, and torch copies only tensors "
        "that were not computed.",
        fix=Fix(
            title="use the forms in `torch.nn.utils.parametrizations`, which can be copied",
            deliberate="if it has to stay, make a new model of the same class, and load the "
            "`state_dict()`.",
        ),
        parameters=names,
    )
