"""Nothing behind the loss ever asked for gradients: a leaf or an input without requires_grad."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from whygrad.diagnose import absent_stories, complaints, story, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.rules.frozen_parameters import where_frozen
from whygrad.record.ops import GRADIENT
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.arguments import argument_text
from whygrad.source.edits import add_keyword
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, callee_name

CODE = "requires-grad-off"

# Constructors that accept requires_grad=True, and whose result a person may want to train.
_MAKERS = frozenset(
    """
    tensor randn rand zeros ones full empty normal eye linspace arange rand_like randn_like
    zeros_like ones_like full_like empty_like new_tensor new_zeros new_ones new_full scalar_tensor
    """.split()
)


def diagnose(case: Case) -> Iterator[Finding]:
    yield from absent_stories.frozen(case, CODE, "not-asked", None)
    said = complaints.said(case, CODE)
    if said is None:
        yield from _never_asked(case)
    elif not case.separations:
        found = next(_never_asked(case), None)
        yield found if found is not None else _frozen(case, said)


def _frozen(case: Case, said: Said) -> Finding:
    """Parameters lie behind it, and none of them asks for gradients."""
    behind = case.graph.ancestors(case.roots)
    parameters = [node for node in behind if _is_parameter(case, node)]
    where = where_frozen(case, parameters)
    if where is None:
        return complaints.finding(case, said)
    names = case.names(parameters)
    value = said.words["receiver"]
    title = f"`{value}` has no history: {words.count(len(names), 'frozen parameter')} lie behind it"
    return complaints.finding(
        case,
        said,
        where=where,
        title=title,
        label="requires_grad is switched off here",
        why=f"`{value}` is computed from data and from parameters with requires_grad=False "
        f"({words.listed(names)}). Nothing behind it asks for a gradient, so it has no history, "
        "and no gradient will come to it.",
        fix=Fix(
            title="let something behind it ask for gradients: the input "
            "(`x.requires_grad_()`, before the forward pass), or these parameters",
            safety="forward values stay equal",
        ),
        parameters=names,
    )


def _never_asked(case: Case) -> Iterator[Finding]:
    if not case.unreached or not case.roots or case.question.kind == "operation-raised":
        return
    behind = case.graph.ancestors(case.roots)
    held = case.held_without_grad(behind)
    sources = held or [n for n in behind if n < 0 or not case.graph.inputs(n)]
    if any(_is_parameter(case, n) for n in sources) or _uses_gradients(case, behind):
        return
    candidates = sorted((n for n in sources if case.graph.floating(n)), key=_order(case))
    for node in candidates:
        finding = _explain(case, node, candidates)
        if finding is not None:
            yield finding
            return


def _is_parameter(case: Case, node: int) -> bool:
    source = case.graph.source(node)
    return source is not None and source.parameter


def _uses_gradients(case: Case, behind: set[int]) -> bool:
    """A loss made of gradients lacks create_graph, which is another story."""
    events = (case.graph.event(node) for node in behind)
    return any(event is not None and event.op in ("grad", GRADIENT) for event in events)


def _order(case: Case) -> Callable[[int], tuple[int, int]]:
    held = {info.node for info in case.question.parameters if info.in_optimizer}

    def weight(node: int) -> tuple[int, int]:
        event = case.graph.event(node)
        if node in held:
            return 0, node
        if event is not None and event.op in _MAKERS:
            return (1 if event.op in ("randn", "rand", "tensor", "normal") else 2), node
        return 3, abs(node)

    return weight


def _explain(case: Case, node: int, candidates: list[int]) -> Finding | None:
    event, source = case.graph.event(node), case.graph.source(node)
    stack = event.stack if event is not None else source.stack if source is not None else 0
    where = case.user_span(stack)
    if where is None:
        return None
    wanted = _wanted_name(case)
    made = assigned_names(where) if event is not None else []
    name = made[0] if made else wanted
    asked = case.question.kind == "grad-raised" and not _is_no_graph(case)
    root = wanted if asked else case.root_name
    title = (
        f"`{root}` never asked for gradients, so none can be computed for it"
        if asked
        else f"nothing that `{root}` is computed from asks for gradients"
    )
    related = story.surfaced(case, None, where)
    others = [n for n in candidates if n != node and case.graph.event(n) is not None][:3]
    for other in others:
        span = case.places.node_span(other)
        if span is not None and not asked and span.line != where.line:
            related.append(Related("created", location(span), "no requires_grad here either"))
    edits = _edits(where) if event is not None else []
    return Finding(
        code=CODE,
        severity="error",
        symptom="raises" if case.raises else "silent",
        title=title,
        message=f"{words.sentence(title)} `{name}` is made here without requires_grad=True.",
        location=location(where),
        label="made without requires_grad" if event is not None else "first seen here",
        related=related,
        parameters=[],
        path=story.leaf_path(case, node),
        why="a tensor gets a gradient only if it, or something it is computed from, was marked "
        "with requires_grad=True before it was used. Data is not marked by default.",
        checked=[
            f"of {words.count(len(candidates), 'source')} behind `{root}`, none requires grad."
        ],
        fix=Fix(
            title=_fix_title(name, bool(edits)),
            edits=edits,
            safety="forward values stay equal",
            deliberate="if it is plain data, the loss does not depend on anything trainable: "
            "check that the model's output is what the loss is computed from.",
        ),
        first_step=case.question.step,
    )


def _fix_title(name: str, edited: bool) -> str:
    if edited:
        return f"mark `{name}` as wanting a gradient where it is made"
    return f"mark it before it is used: `{name}.requires_grad_()`"


def _is_no_graph(case: Case) -> bool:
    return "does not have a grad_fn" in case.question.error_text


def _wanted_name(case: Case) -> str:
    """The variable whose gradient was asked for: the second argument of autograd.grad."""
    surface = case.surface
    if surface is None:
        return "input"
    text = argument_text(surface, 1, "inputs") or ""
    return text if text and len(text) <= 30 else "input"


def _edits(where: Span) -> list[Edit]:
    name = (callee_name(where) or "").rsplit(".", 1)[-1]
    return add_keyword(where, "requires_grad=True") if name in _MAKERS else []
