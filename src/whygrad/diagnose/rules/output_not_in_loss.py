"""A part of the model is computed, and its result never reaches what backward() starts from."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import absent_stories, missing, words
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.missing import Missing
from whygrad.record.ops import display_name
from whygrad.session import Finding, Fix, Related
from whygrad.source.returns import is_among_others, is_given_back, takes_apart
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names
from whygrad.source.uses import callee_text

CODE = "output-not-in-loss"


def diagnose(case: Case) -> Iterator[Finding]:
    yield from absent_stories.apart(case, CODE)
    found = missing.unconnected(case)
    if found is None:
        return
    by_end: dict[Span, tuple[int, list[int]]] = {}
    for node in found.astray:
        end = _end(case, found, node)
        where = _where(case, end)
        if where is not None:
            by_end.setdefault(where, (end, []))[1].append(node)
    for where, (end, nodes) in by_end.items():
        yield _finding(case, where, end, nodes)


def _end(case: Case, found: Missing, node: int) -> int:
    """The last result of a parameter, preferably a loss: a single number."""
    began = max(found.consumers.users(node))
    ends = [end for end in found.consumers.ends([node]) if end >= began]
    losses = [end for end in ends if case.shape(end) == []]
    return (losses or ends or [began])[-1]


def _where(case: Case, end: int) -> Span | None:
    """The line at which the result is dropped: what a function returns goes on to its caller."""
    spans = case.places.node_spans(end)
    own = [span for span in spans if not is_library(span.file)]
    if not own:
        return next(iter(spans), None)
    where = own[0]
    for caller in own[1:]:
        if not is_given_back(where) or (is_among_others(where) and not takes_apart(caller)):
            break
        where = caller
    return where


def _finding(case: Case, where: Span, end: int, nodes: list[int]) -> Finding:
    names = case.names(nodes)
    root = case.root_name
    what, name = _what(case, where, end)
    whose = words.listed(names)
    title = f"{what} never reaches `{root}`: {whose} {_get(names)} no gradient"
    if name == root:
        title = f"what `{name}` held never reaches backward(): {whose} {_get(names)} no gradient"
    inside = case.places.node_spans(end)
    return Finding(
        code=CODE,
        severity="info" if inside and is_library(inside[0].file) else "warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} It is computed, and nothing goes on with it.",
        location=location(where),
        label="the result goes nowhere: nothing that leads to the loss uses it",
        related=_surfaced(case, where),
        parameters=names,
        why=f"backward() follows the operations that led to `{root}`, and nothing else. "
        f"{words.listed(names)} {'takes' if len(names) == 1 else 'take'} part in what ends here "
        f"and in nothing else, so no gradient comes back to {'it' if len(names) == 1 else 'them'}.",
        checked=[
            f"no operation with gradient uses this result, and nothing of it went into "
            f"{_starts(case)}."
        ],
        fix=Fix(
            title="add it to what backward() is called on, or leave out this part",
            safety="adding it changes the loss, and the gradients of all that it shares",
            deliberate="if it is only looked at, compute it under `torch.no_grad()` and keep its "
            "parameters out of the optimizer.",
        ),
        first_step=case.question.step,
        at_end=True,
    )


def _starts(case: Case) -> str:
    """What backward() was called on."""
    several = len(case.roots) > 1
    return f"any of {len(case.roots)} losses" if several else f"`{case.root_name}`"


def _get(names: list[str]) -> str:
    return "gets" if len(names) == 1 else "get"


def _what(case: Case, where: Span, end: int) -> tuple[str, str]:
    """What ends at a line, in words, and the variable that holds it."""
    names = assigned_names(where)
    if len(names) == 1:
        return f"`{names[0]}`", names[0]
    called = callee_text(where)
    if called is not None:
        return f"the result of `{called}(...)`", ""
    event = case.graph.event(end)
    return f"the result of `{display_name(event.op)}`" if event is not None else "a result", ""


def _surfaced(case: Case, where: Span) -> list[Related]:
    surface = case.surface
    if surface is None or surface == where:
        return []
    label = f"starts from `{case.root_name}`, which does not depend on it"
    return [Related("surfaced", location(surface), label)]
