"""Two losses share a part of the graph, and the first backward frees it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from whygrad.diagnose import lives, words
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.entries import entry
from whygrad.graph.lifetime import Meeting
from whygrad.session import Finding, Fix, Related
from whygrad.source.inplace_edits import detach_name
from whygrad.source.spans import Span, location
from whygrad.source.uses import callee_text, is_object_call

CODE = "shared-graph-freed"


def diagnose(case: Case) -> Iterator[Finding]:
    meeting = case.meeting
    if meeting is None or meeting.kind != "shared" or meeting.earlier.retained:
        return
    if case.question.autopsy is None or case.question.autopsy.saved:
        return
    lifetime = case.lifetime
    if lifetime is None:
        return
    apart = lifetime.trained_apart(meeting)
    first = lifetime.first_was_for_another(meeting)
    late = meeting.enter is not None and meeting.enter >= meeting.earlier.time
    heads = meeting.repeated and lifetime.other_parameters(meeting)
    where, name = case.surface, ""
    if apart or first or (late and not heads):
        entered, name = entry(case, meeting, first=first, network=True)
        where = entered or where
    if where is not None:
        yield _finding(case, meeting, where, name, first)


def _finding(case: Case, meeting: Meeting, where: Span, name: str, first: bool) -> Finding:
    root, before = case.root_name, lives.pass_name(case, meeting.earlier)
    part = _part(case, meeting)
    both = f"`{before}` and `{root}`" if before not in ("", root) else "two losses"
    title = f"{both} share {part}, and the first backward frees it"
    at_entry = where != case.surface
    what = f"`{name}`" if name else "the shared value"
    return Finding(
        code=CODE,
        severity="error",
        symptom="raises",
        title=title,
        message=f"{words.sentence(title)} The second one then finds it gone.",
        location=location(where),
        label=f"{what} brings {part} into the graph of {_loss(before if first else root)}"
        if at_entry
        else lives.error_label(case),
        related=[
            *_shared(case, meeting, where),
            *_freed(case, meeting, where),
            *lives.surfaced_here(case, where),
        ],
        parameters=lives.shared_parameters(case, meeting),
        why=f"{lives.call_of(meeting.earlier)} frees the values that the graph kept, as it goes. "
        f"`{root}` goes back through {part} as well, and what its derivatives need is gone.",
        checked=[
            f"{words.count(len(meeting.shared), 'operation')} "
            f"{'lies' if len(meeting.shared) == 1 else 'lie'} behind both losses."
        ],
        fix=_detach(where, root, before, name, first) if at_entry else _sum(root, before),
        first_step=case.question.step,
    )


def _part(case: Case, meeting: Meeting) -> str:
    """The shared part by the module it belongs to, or by the line that ends it."""
    span = case.places.node_span(meeting.maker)
    event = case.graph.event(meeting.maker)
    if span is not None and event is not None and is_object_call(span, event.op):
        called = (callee_text(span) or "").removeprefix("self.")
        if called.replace(".", "").isidentifier():
            return f"`{called}`"
    names = lives.shared_parameters(case, meeting)
    prefix = os.path.commonprefix([name.split(".") for name in names]) if names else []
    if len(names) == 1:
        prefix = prefix[:-1]
    if prefix:
        return f"`{'.'.join(prefix)}`"
    owners = {
        info.owner
        for node in (case.lifetime.parameters_of(meeting.shared) if case.lifetime else [])
        if (info := case.parameter(node)) is not None
    }
    if len(owners) == 1:
        return f"`{owners.pop()}`"
    return f"the graph up to {words.at(span)}" if span is not None else "a part of the graph"


def _shared(case: Case, meeting: Meeting, where: Span) -> list[Related]:
    span = case.places.node_span(meeting.maker)
    if span is None or lives.same_place(span, where):
        return []
    return [Related("created", location(span), "the part that both go through ends here")]


def _freed(case: Case, meeting: Meeting, where: Span) -> list[Related]:
    span = lives.pass_span(case, meeting.earlier)
    if span is None or lives.same_place(span, where):
        return []
    return [Related("freed", location(span), "this backward frees it")]


_PRICE = (
    "`retain_graph=True` in the first backward also works; its price is the memory of the whole "
    "graph until the second one, and no optimizer may step in between."
)


def _detach(where: Span, root: str, before: str, name: str, first: bool) -> Fix:
    loss = _loss(before if first else root)
    return Fix(
        title=f"detach {f'`{name}`' if name else 'the shared value'} here, if {loss} should not "
        "train what lies behind it",
        edits=detach_name(where, name or None) if not is_library(where.file) else [],
        safety=f"the value of {loss} stays equal; it no longer trains the shared part",
        deliberate=f"if both should train it: one backward on the sum of both losses. {_PRICE}",
    )


def _loss(name: str) -> str:
    return f"`{name}`" if name else "the first loss"


def _sum(root: str, before: str) -> Fix:
    both = before not in ("", root)
    summed = f": `({before} + {root}).backward()`" if both else " of the losses"
    return Fix(
        title=f"call backward once, on the sum{summed}",
        safety="the gradients are the same: those of a sum are the sum of the gradients",
        deliberate=f"if the two must stay apart: {_PRICE}",
    )
