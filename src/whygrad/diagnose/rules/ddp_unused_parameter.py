"""DistributedDataParallel waits for gradients that do not come: whose, and why they do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from whygrad.diagnose import complaints, engine, replicas, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.events import ParameterInfo
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import location

CODE = "ddp-unused-parameter"


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        return
    if found.message.id == "ddp-unused-parameters":
        yield _unused(case, found)
    else:
        where = replicas.made_at(case, found.complaint.made)
        yield complaints.finding(case, found, where=where)


def _unused(case: Case, found: Said) -> Finding:
    infos = replicas.without_gradient(case)
    names = [replicas.own_name(info.name) for info in infos]
    found.words["names"] = words.listed(names) if names else "a part of the model"
    cause = _cause(case, infos) if infos else None
    wrapped = replicas.made_at(case, found.complaint.made)
    if cause is None:
        # Why is not known; that the wrapper may be told of it is.
        return complaints.finding(
            case,
            found,
            where=wrapped,
            label="waits for a gradient for every parameter",
            parameters=[info.name for info in infos],
        )
    related = [Related("created", location(wrapped), "wrapped here")] if wrapped else []
    result = complaints.finding(
        case,
        found,
        label=cause.label,
        why=f"{found.fill(found.message.meaning)} {words.sentence(cause.why)}",
        related=related,
        parameters=[info.name for info in infos],
        checked=cause.checked,
        inferred=cause.inferred,
        fix=Fix(
            title=cause.fix.title if cause.fix is not None else "use it in forward and in the loss",
            deliberate=found.message.deliberate,
        ),
    )
    result.location = cause.location
    return result


def _cause(case: Case, infos: list[ParameterInfo]) -> Finding | None:
    """Why these parameters got no gradient: the question that an optimizer's step would ask."""
    question = case.question
    everything = [
        dataclasses.replace(info, in_optimizer=True)
        if info.module_types[:1] == (replicas.WRAPPER,)
        else info
        for info in question.parameters
    ]
    asked = dataclasses.replace(
        question,
        kind="no-gradient",
        roots=tuple(question.root_stacks),
        targets=tuple(info.node for info in infos),
        parameters=everything,
        error_type="",
        error_text="",
        complaint=None,
    )
    findings, _ = engine.diagnose(case.graph.recording, asked)
    wanted = {info.name for info in infos}
    return next((each for each in findings if wanted & set(each.parameters)), None)
