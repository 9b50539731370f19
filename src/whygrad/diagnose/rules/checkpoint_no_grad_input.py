"""A re-entrant checkpoint none of whose inputs requires grad: nothing inside gets a gradient."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import checkpoints, complaints, story, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.graph.separate import paths_to
from whygrad.session import Finding, Fix, Related
from whygrad.source.arguments import argument_text
from whygrad.source.spans import Span, location

CODE = "checkpoint-no-grad-input"

_WHY = (
    "a re-entrant checkpoint is tied to the graph through the tensors that are passed to it. None "
    "of them requires grad (data, or the output of a frozen layer), so its result does not "
    "either, and the parameters inside the block are cut off."
)
_TITLE = "no gradient passes through this checkpoint(): none of its inputs requires grad"


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        yield from _warned(case, said)
    elif case.question.kind in ("no-gradient", "backward-raised", "asked"):
        yield from _silent(case)


def _warned(case: Case, said: Said) -> Iterator[Finding]:
    block = said.complaint.block
    if said.complaint.gradients_off or (block is not None and not block.trains and block.file):
        return  # nobody wants a gradient here: evaluation, or a frozen block
    names = case.names(list(block.parameters)) if block is not None else []
    trains = block is not None and block.trains
    yield complaints.finding(
        case,
        said,
        title=_TITLE,
        why=_WHY,
        parameters=names,
        fix=_fix(case, said.where) if said.library is None else None,
        severity="warning" if trains else "info",
    )


def _silent(case: Case) -> Iterator[Finding]:
    """The warning was filtered, or backward() itself failed for want of a graph."""
    found: dict[Span, list[int]] = {}
    for start in case.roots:
        for target, path in paths_to(case.graph, start, case.leaves).items():
            inside = [n for n in path.nodes if checkpoints.reentrant_call(case, n) is not None]
            # With an input that requires grad, its result does too.
            if path.cuts or not inside or _is_live_after(case, path.nodes, inside[-1]):
                continue
            where = checkpoints.reentrant_call(case, inside[0])
            if where is not None:
                found.setdefault(where, []).append(target)
    for where, targets in found.items():
        yield _finding(case, where, targets)


def _is_live_after(case: Case, nodes: list[int], last: int) -> bool:
    after = nodes[nodes.index(last) + 1 :][:1]
    event = case.graph.event(after[0]) if after else None
    return event is not None and event.live and last in event.inputs and len(event.inputs) == 1


def _finding(case: Case, where: Span, targets: list[int]) -> Finding:
    names = case.names(targets)
    related = []
    surface = case.surface
    if surface is not None and not case.raises:
        left = f"runs, and leaves {words.count(len(names), 'parameter')} without a gradient"
        related.append(Related("surfaced", location(surface), left))
    elif surface is not None:
        related = story.surfaced(case, None, where)
    return Finding(
        code=CODE,
        severity="error" if case.raises else "warning",
        symptom="raises" if case.raises else "silent",
        title=_TITLE,
        message=f"{words.sentence(_TITLE)} Affected: {words.listed(names, 8)}.",
        location=location(where),
        label="re-entrant: no gradient passes through here",
        related=related,
        parameters=names,
        why=_WHY,
        checked=[
            f"{words.count(len(names), 'parameter')} inside, and no cut but this on the way to "
            f"`{case.root_name}`."
        ],
        fix=_fix(case, where),
        first_step=case.question.step,
    )


def _fix(case: Case, where: Span) -> Fix:
    fix = checkpoints.not_reentrant(where)
    given = argument_text(where, 1, "args")
    if given and given.isidentifier():
        fix.deliberate = (
            f"if it has to be re-entrant, let an input require grad: `{given}.requires_grad_()`."
        )
    return fix
