"""A tensor made in inference mode is used where autograd must save it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from whygrad import catalogue
from whygrad.diagnose import story, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.rules.no_grad_block import switch_place
from whygrad.record.events import Event, Switch
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.arguments import function_name
from whygrad.source.edits import replace_text
from whygrad.source.spans import Span, location

CODE = "inference-tensor"

_TITLE = "a tensor made under `torch.inference_mode()` is used in training"
_FIX = "use torch.no_grad() here: its results may be used in training"


def diagnose(case: Case) -> Iterator[Finding]:
    if (
        case.question.kind != "operation-raised"
        or "nference tensor" not in case.question.error_text
    ):
        return
    for node in case.question.targets:
        finding = _explain(case, node)
        if finding is not None:
            yield finding
            return


def _explain(case: Case, node: int) -> Finding | None:
    made = _made_in_inference(case, node)
    if made is None:
        return None
    event, switch = made
    found = switch_place(case, switch, event, next(iter(event.inputs), None))
    if found is None:
        return None
    where, form, function = found
    place = location(where)
    if function:
        place.function = function
    at = case.places.span(event.site)
    related = story.surfaced(case, None, where)
    if at is not None:
        related.append(Related("created", location(at), "the tensor was made here"))
    for call in _calls_into(case, event, where):
        related.append(Related("via", location(call), "called from here"))
    message = catalogue.find(case.question.error_text, case.question.error_type)
    title = message.title if message is not None and message.title else _TITLE
    fix = message.fix if message is not None and message.fix else _FIX
    return Finding(
        code=CODE,
        severity="error",
        symptom="raises",
        title=title,
        message=f"{words.sentence(title)} It carries no bookkeeping for autograd.",
        location=place,
        label="everything made in here is an inference tensor, for good",
        related=related,
        why="tensors made in inference mode carry no bookkeeping for autograd at all, not even "
        "a version counter, also long after the block was left. Outside of it they may not be "
        "kept for backward (also if they hold only token ids), written to in place, or asked to "
        "require grad.",
        checked=["the tensor that the operation refused was made while inference mode was on."],
        fix=Fix(
            title=fix,
            edits=_edits(where, form),
            safety="forward values stay equal; slightly more bookkeeping",
            deliberate="if inference mode must stay (serving code), give the training code a "
            "copy: `tensor.clone()` outside the block.",
        ),
        first_step=case.question.step,
    )


def _made_in_inference(case: Case, node: int) -> tuple[Event, Switch] | None:
    """The nearest operation behind `node` that ran in inference mode, with its switch."""
    switches = case.graph.recording.switches
    waiting, seen = [node], {node}
    while waiting:
        current = waiting.pop(0)
        event = case.graph.event(current)
        if event is not None:
            if event.mode > 0 and switches[event.mode].kind == "inference_mode":
                return event, switches[event.mode]
            if event.mode == -2:
                return event, Switch("inference_mode", False, -1, 0, None, False)
        for feeder in case.graph.inputs(current):
            if feeder not in seen:
                seen.add(feeder)
                waiting.append(feeder)
    return None


def _calls_into(case: Case, event: Event, where: Span) -> list[Span]:
    """The call through which the program entered the function that makes inference tensors."""
    spans = case.places.spans(event.stack)
    for inner, outer in pairwise(spans):
        if (
            inner.file == where.file
            and function_name(inner.file, inner.first_line)
            and (inner.first_line <= where.line <= inner.end_line)
        ):
            return [outer]
    return []


def _edits(where: Span, form: str) -> list[Edit]:
    if form == "call":
        return []
    return replace_text(where, "torch.no_grad()")
