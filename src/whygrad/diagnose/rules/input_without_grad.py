"""A gradient is asked for of a tensor that does not track gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from whygrad.diagnose import complaints, inputs, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.rules.frozen_parameters import where_frozen
from whygrad.diagnose.searching import search
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.edits import add_keyword
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, callee_name

CODE = "input-without-grad"

# Constructors that accept requires_grad=True.
_MAKERS = frozenset(
    """
    tensor randn rand zeros ones full empty normal eye linspace arange logspace rand_like randn_like
    zeros_like ones_like full_like empty_like new_tensor new_zeros new_ones new_full scalar_tensor
    """.split()
)
_MARKED = (
    "a tensor gets a gradient only if it, or something that it is computed from, was marked with "
    "requires_grad=True before it was used."
)
_WHY = f"{_MARKED} Data is not marked by default."


@dataclass(slots=True)
class _Unmarked:
    """Where a tensor should have been marked, and what is there."""

    where: Span
    label: str
    fix: Fix
    why: str = _WHY
    related: list[Related] = field(default_factory=list)
    title: str = ""


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    node = _wanted(case, said)
    if node is None:
        yield complaints.finding(case, said)
        return
    name = inputs.spoken(case, node)
    said.words["wanted"] = f"`{name}`"
    cut = _cut(case, node, name)
    if cut is not None:
        yield cut
        return
    found = _frozen(case, said, node, name) or _marked_copy(case, said, node, name)
    found = found or _behind_frozen(case, node, name) or _made(case, node, name)
    if found is None:
        yield complaints.finding(case, said)
        return
    yield complaints.finding(
        case,
        said,
        where=found.where,
        title=found.title,
        label=found.label,
        why=found.why,
        fix=found.fix,
        related=found.related,
        checked=[f"nothing that `{name}` is made from requires grad."],
    )


def _wanted(case: Case, said: Said) -> int | None:
    if case.question.targets:
        return inputs.wanted(case)
    given = [g for g in said.complaint.given if not g.requires_grad]
    return given[0].node if given else None


def _cut(case: Case, node: int, name: str) -> Finding | None:
    """The input was computed from something that tracks gradients, and lost its history."""
    inner = replace(case, roots=(node,), leaves=[], separations=[], spoken=name)
    search(inner)
    cut = inputs.cut_finding(inner) if inner.separations else None
    if cut is None or cut.code == "create-graph-missing":
        return cut
    title = f"{cut.title.partition(' cuts ')[0]} leaves `{name}` without gradients"
    fix = Fix(
        title=f"mark what it gives, if the derivative by `{name}` itself is wanted: "
        f"`{name}.requires_grad_()`, before it is used",
        deliberate=f"if gradient should pass on to what it is computed from: {cut.fix.title}."
        if cut.fix is not None
        else "",
    )
    return replace(
        cut,
        code=CODE,
        title=title,
        message=f"{words.sentence(title)} No gradient can be computed for it.",
        fix=fix,
        parameters=[],
    )


def _frozen(case: Case, said: Said, node: int, name: str) -> _Unmarked | None:
    """A parameter that was told not to take gradients."""
    source = case.graph.source(node)
    if source is None or not source.parameter:
        return None
    flagged = case.graph.recording.flags.get(node)
    froze = case.user_span(flagged.stack) if flagged is not None and not flagged.value else None
    tracked = [target for target in case.question.targets if inputs.tracks(case, target)]
    title = f"`{name}` is frozen, so there is no gradient for it"
    why = "requires_grad is False on this parameter: autograd leaves it out of the graph."
    unfreeze = f"set `requires_grad_(True)` on `{name}` before the forward pass"
    if froze is not None and not tracked:
        return _Unmarked(
            froze,
            "switches gradients off for it",
            Fix(title=f"leave it trainable, or {unfreeze}"),
            why=why,
            title=title,
        )
    related = [] if froze is None else [Related("created", location(froze), "frozen here")]
    return _Unmarked(
        said.where,
        f"`{name}` is among the inputs, and is frozen",
        Fix(
            title="ask only for what trains: `[p for p in model.parameters() if p.requires_grad]`",
            deliberate=f"if it should train after all, {unfreeze}.",
        ),
        why=why,
        related=related,
        title=title,
    )


def _behind_frozen(case: Case, node: int, name: str) -> _Unmarked | None:
    """A result of layers all of which were told not to take gradients."""
    behind = case.graph.ancestors([node])
    frozen = [n for n in behind if _is_frozen(case, n)]
    froze = where_frozen(case, frozen) if node not in frozen else None
    made = inputs.own_span(case, node)
    if froze is None or made is None:
        return None
    names = case.names(frozen)
    why = (
        f"{_MARKED} `{name}` is computed from data and from parameters with requires_grad=False "
        f"({words.listed(names)})."
    )
    if name in assigned_names(made):
        # It has a name there, by which it can be marked, and the layers can stay as they are.
        return _Unmarked(
            made,
            "computed from data and frozen parameters alone",
            Fix(
                title=f"mark it after this line: `{name}.requires_grad_()`",
                safety="forward values stay equal",
            ),
            why=why,
            related=[Related("created", location(froze), "frozen here")],
        )
    return _Unmarked(
        froze,
        f"freezes {words.listed(names)}",
        Fix(
            title="mark the input before the forward pass (`.requires_grad_()`), or leave a "
            f"parameter before `{name}` trainable",
            safety="forward values stay equal",
        ),
        why=why,
        related=[Related("operation", location(made), f"`{name}` is computed here")],
        title=f"only frozen parameters lie before `{name}`, so there is no gradient for it",
    )


def _is_frozen(case: Case, node: int) -> bool:
    source = case.graph.source(node)
    return source is not None and source.parameter and not source.requires_grad


def _marked_copy(case: Case, said: Said, node: int, name: str) -> _Unmarked | None:
    """A copy of the input was marked and used in its place: that one has a gradient."""
    flags = case.graph.recording.flags
    for other in sorted(case.graph.ancestors(case.question.roots), reverse=True):
        flagged = flags.get(other)
        marked = case.graph.trainable_leaf(other) or (flagged is not None and flagged.value)
        if other == node or not marked or node not in case.graph.ancestors([other]):
            continue
        copy, made = case.name(other), inputs.own_span(case, other)
        known = f"`{copy}`" if not copy.startswith("tensor") else "the copy"
        related = [Related("created", location(made), "this copy tracks gradients")] if made else []
        return _Unmarked(
            said.where,
            f"`{name}` itself does not track gradients, its copy does",
            Fix(title=f"differentiate by {known}, which is what the output was computed from"),
            why="autograd goes by the tensor object: requires_grad on a copy says nothing about "
            "the tensor that it was copied from.",
            related=related,
            title=f"{known} is marked with requires_grad, and `{name}` is asked about",
        )
    return None


def _made(case: Case, node: int, name: str) -> _Unmarked | None:
    """The line that makes the tensor, or else the first that uses it."""
    event = case.graph.event(node)
    where = inputs.own_span(case, node) if event is not None else None
    if where is not None:
        names, behind = assigned_names(where), case.graph.ancestors([node])
        made = f"`{names[0]}`" if names else "it"
        edits = _edits(where)
        title = "mark it where it is made: `requires_grad=True`" if edits else ""
        return _Unmarked(
            where,
            "made without requires_grad",
            Fix(
                title=title or f"mark {made} after this line: `.requires_grad_()`",
                edits=edits,
                safety="forward values stay equal",
            ),
            why=_MARKED if any(_is_frozen(case, n) for n in behind) else _WHY,
        )
    where = inputs.shared_span(case, node) or inputs.own_span(case, node)
    if where is None:
        return None
    return _Unmarked(
        where,
        f"`{name}` is used here, and does not track gradients",
        Fix(
            title=f"mark it before this line: `{name}.requires_grad_()`",
            safety="forward values stay equal",
        ),
    )


def _edits(where: Span) -> list[Edit]:
    name = (callee_name(where) or "").rsplit(".", 1)[-1]
    return add_keyword(where, "requires_grad=True") if name in _MAKERS else []
