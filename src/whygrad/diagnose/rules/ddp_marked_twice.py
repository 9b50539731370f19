"""A parameter's gradient arrives twice in one pass under DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, replicas
from whygrad.diagnose.case import Case
from whygrad.record.events import Event, ParameterInfo
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location

CODE = "ddp-marked-twice"


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        return
    info = replicas.at(case, int(found.words["g1"])) if "g1" in found.words else None
    name = replicas.own_name(info.name) if info is not None else found.words.get("g2", "")
    found.words["name"] = f"`{name}`" if name else "a parameter"
    lines = _checkpoints(case, info)
    if not lines:
        yield complaints.finding(case, found, fix=_without_checkpoint(), parameters=_names(info))
        return
    yield complaints.finding(
        case,
        found,
        where=lines[-1],
        label="a re-entrant checkpoint: it runs a backward() of its own inside the other",
        why=f"{found.fill(found.message.meaning)} A checkpoint with use_reentrant=True computes "
        "its block again and goes back through it in a backward() of its own. A parameter that is "
        "used elsewhere too (in another block, in another turn of a loop) has its gradient "
        "completed in each of them.",
        related=[Related("created", location(line), "another one") for line in lines[:-1]],
        parameters=_names(info),
        inferred=[] if info is not None else ["that this checkpoint is the one that did it."],
    )


def _names(info: ParameterInfo | None) -> list[str]:
    return [info.name] if info is not None else []


def _checkpoints(case: Case, info: ParameterInfo | None) -> list[Span]:
    """Where re-entrant checkpoints were called: those that use the parameter, if any does."""
    recording = case.graph.recording
    numbers = {n for n, switch in enumerate(recording.switches) if switch.checkpoint}
    using = set()
    for fields in recording.events if info is not None and numbers else ():
        event = Event(*fields)
        if event.mode in numbers and info is not None and info.node in event.inputs:
            using.add(event.mode)
    spans = [case.user_span(recording.switches[n].stack) for n in sorted(using or numbers)]
    return list(dict.fromkeys(span for span in spans if span is not None))


def _without_checkpoint() -> Fix:
    return Fix(
        title="use each parameter inside of the wrapped model's forward only, call it once for "
        "each backward(), and return plain tensors, tuples or dictionaries from it",
        deliberate="if the graph is the same in every iteration, static_graph=True makes "
        "DistributedDataParallel count.",
    )
