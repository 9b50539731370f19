"""requires_grad=False on what should train: everything frozen, or an island among the trained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from whygrad.diagnose import absent_stories, complaints, story, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.frozen import Part, frozen_parts
from whygrad.record.events import Event, ParameterInfo
from whygrad.session import Finding, Fix, PathStep, Related, Severity
from whygrad.source.spans import Span, location

CODE = "frozen-parameters"


_NOTHING_TRAINS = "ddp-no-trainable-parameters"
_MIXED = "fsdp-uniform-requires-grad"


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is not None:
        yield _told(case, found)
    elif case.absence is not None:
        where = where_frozen(case, [read.node for read in case.absence.reads])
        yield from absent_stories.frozen(case, CODE, "frozen", where)
    elif case.raises or case.question.kind == "asked":
        yield from _everything_frozen(case)
    elif case.question.kind == "no-gradient":
        yield from _islands(case)


def _told(case: Case, found: Said) -> Finding:
    """What wraps a model for several processes does not go with what is frozen in it."""
    by_root: dict[int, list[ParameterInfo]] = defaultdict(list)
    for info in case.question.parameters:
        by_root[info.root].append(info)
    wanted: list[ParameterInfo] = []
    for infos in by_root.values():
        frozen = [info for info in infos if not info.requires_grad]
        if frozen and (len(frozen) < len(infos)) is (found.message.id == _MIXED):
            wanted += frozen
    where = where_frozen(case, [info.node for info in wanted])
    names = [info.name for info in wanted]
    if found.message.id == _NOTHING_TRAINS:
        return complaints.finding(case, found, where=where, parameters=names)
    if found.message.id == _MIXED and where is not None:
        frozen_at = Related("created", location(where), f"{words.listed(names)} frozen here")
        return complaints.finding(case, found, related=[frozen_at], parameters=names)
    return complaints.finding(case, found)


def _everything_frozen(case: Case) -> Iterator[Finding]:
    """No trainable leaf is left behind the loss, but frozen parameters are."""
    if not case.unreached or not case.roots or complaints.without_history(case) is not None:
        return
    behind = case.graph.ancestors(case.roots)
    if case.held_without_grad(behind):
        return  # what should change is a plain tensor; the frozen network is only in between
    frozen = [
        node
        for node in behind
        if (source := case.graph.source(node)) is not None
        and source.parameter
        and not source.requires_grad
    ]
    if not frozen:
        return
    where = where_frozen(case, frozen)
    if where is None:
        return
    total = len(frozen)
    yield _finding(
        case,
        frozen,
        where,
        title=f"every parameter behind `{case.root_name}` is frozen ({total} of {total})",
        checked=f"{total} of {total} parameters behind `{case.root_name}` have "
        "requires_grad=False, and nothing else there asks for gradients.",
        severity="error",
        title_of_fix="freeze only what should stay fixed: leave the part that trains out of this",
    )


def _islands(case: Case) -> Iterator[Finding]:
    """Frozen parts in the midst of trained ones of their own kind."""
    by_line: dict[Span, list[Part]] = defaultdict(list)
    for part in frozen_parts(case.question.parameters):
        if any(info.node in case.question.had_gradient for info in part.members):
            continue  # frozen for a while, as a discriminator is in the generator's step
        where = where_frozen(case, [info.node for info in part.members])
        if where is not None:
            by_line[where].append(part)
    trained_through = _trained_through(case) if by_line else set()
    for where, parts in by_line.items():
        islands = [part for part in parts if part.lonely and part.passes(trained_through)]
        infos = [info for part in islands for info in part.members]
        if infos:
            yield _island_finding(case, where, islands, infos)
        held = [i for part in parts if part not in islands for i in part.members if i.in_optimizer]
        if held and not infos:
            yield _held_finding(case, where, held, _given_on_purpose(case, held))


def _trained_through(case: Case) -> set[int]:
    """Inputs of operations that carry gradient: what was trained lies before and after them."""
    found: set[int] = set()
    for fields in case.graph.recording.events:
        event = Event(*fields)
        if event.live:
            found.update(event.inputs)
    return found


def _island_finding(
    case: Case, where: Span, islands: list[Part], infos: list[ParameterInfo]
) -> Finding:
    part = islands[0]
    return _finding(
        case,
        [info.node for info in infos],
        where,
        title=f"{words.listed(info.name for info in infos)} "
        f"{'is' if len(infos) == 1 else 'are'} frozen while everything around trains",
        checked=f"all {words.count(part.alike, 'other ' + part.kind)} of `{infos[0].owner}` "
        f"{'trains' if part.alike == 1 else 'train'}, and so does everything next to "
        f"`{part.path}`.",
        severity="warning",
        title_of_fix="leave these parameters out of what this line freezes",
    )


def _given_on_purpose(case: Case, held: list[ParameterInfo]) -> bool:
    """Whether somebody chose to give the optimizer just these, and not a whole model with them."""
    if all(info.group_frozen for info in held):
        return True
    roots = {info.root for info in held}
    return not any(i.requires_grad for i in case.question.parameters if i.root in roots)


def _held_finding(case: Case, where: Span, infos: list[ParameterInfo], on_purpose: bool) -> Finding:
    return _finding(
        case,
        [info.node for info in infos],
        where,
        title=f"{words.count(len(infos), 'frozen parameter')} of `{infos[0].owner}` "
        f"{'is' if len(infos) == 1 else 'are'} in the optimizer, which passes over "
        f"{'it' if len(infos) == 1 else 'them'}",
        checked="requires_grad is False, and no gradient was there when the optimizer stepped.",
        severity="warning" if on_purpose else "info",
        title_of_fix="if they should train, do not freeze them here",
    )


def where_frozen(case: Case, nodes: list[int]) -> Span | None:
    """The line that set requires_grad=False on most of them; None if it was not seen."""
    lines: dict[Span, int] = defaultdict(int)
    for node in nodes:
        source = case.graph.source(node)
        stack = source.flag_stack if source is not None else 0
        span = case.user_span(stack) if stack else None
        if span is None and source is not None and source.born_frozen:
            span = case.user_span(source.stack)
        if span is not None:
            lines[span] += 1
    return max(lines, key=lambda span: lines[span]) if lines else None


def _finding(
    case: Case,
    nodes: list[int],
    where: Span,
    *,
    title: str,
    checked: str,
    severity: Severity,
    title_of_fix: str,
) -> Finding:
    names = case.names(nodes)
    ordered = sorted(nodes, key=lambda node: names.index(case.name(node)))
    steps = [
        PathStep(kind="parameter", name=case.name(node), state="off", shape=case.shape(node))
        for node in ordered[1:]
    ]
    first, *rest = story.leaf_path(case, ordered[0])
    steps = [first, *steps, *rest]
    return Finding(
        code=CODE,
        severity=severity,
        symptom="raises" if case.raises else "silent",
        title=title,
        message=f"{words.sentence(title)} Frozen here: {words.listed(names, 8)}.",
        location=location(where),
        label="requires_grad is set to False here",
        related=story.surfaced(case, None, where) if case.raises else [],
        parameters=names,
        path=steps,
        why="a parameter with requires_grad=False gets no gradient and no update, whatever the "
        "loss, and without a word: the optimizer passes over it.",
        checked=[checked],
        fix=Fix(
            title=title_of_fix,
            safety="these parameters will then change during training",
            deliberate="if it is deliberate, this loss trains nothing: unfreeze at least one layer."
            if case.raises
            else "if it is deliberate, keep them out of the optimizer, or silence this line.",
        ),
        first_step=case.question.step,
    )
