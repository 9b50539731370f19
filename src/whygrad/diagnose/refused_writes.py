"""Writes of which torch says only in backward() that it cannot live with them."""

from __future__ import annotations

from whygrad.diagnose import complaints, failing, lives
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.ops import display_name
from whygrad.session import Finding, Fix
from whygrad.source.inplace_edits import find_inplace_constructors, out_of_place, set_inplace_false
from whygrad.source.inplace_layers import made_to_write
from whygrad.source.spans import Span
from whygrad.source.uses import is_object_call

_ACTIVATIONS = ("leaky_relu", "elu", "celu", "selu", "rrelu")


def tell(case: Case, found: Said) -> Finding:
    match found.message.id:
        case "saved-tensor-detached-inplace":
            return _detached(case, found)
        case "inplace-negative-slope":
            return _negative_slope(case, found)
    return complaints.finding(case, found)


def _detached(case: Case, found: Said) -> Finding:
    """The `detach_()` on a tensor that lies behind the loss."""
    behind = case.graph.ancestors(case.question.roots)
    recording = case.graph.recording
    nodes = range(recording.base, recording.base + len(recording.events))
    for node in reversed(nodes):
        event = case.graph.event(node)
        if event is None or event.op != "detach_" or not behind.intersection(event.inputs):
            continue
        where, library = case.blame(event.stack, event.inputs[0])
        if where is None:
            continue
        name = lives.changed_name(where, "detach_") if library is None else "a tensor"
        return complaints.finding(
            case,
            found,
            where=where,
            title=f"`detach_()` takes the history from {name}, which backward() still needs",
            fix=Fix(
                title="use `.detach()`, which leaves the tensor itself as it is, or call "
                "`detach_()` after backward()",
                edits=out_of_place(where) if library is None else [],
                safety="forward values stay equal",
            ),
        )
    return complaints.finding(case, found)


def _negative_slope(case: Case, found: Said) -> Finding:
    live = [n for n in case.graph.ancestors(case.question.roots) if n >= 0 and case.graph.live(n)]
    fitting = [n for n in live if _is_activation(case, n)]
    failed = found.complaint.failed
    node = failed if failed in fitting else max(fitting, default=None)
    where = failing.span(case, node) or found.where
    built: list[Span] = []
    if is_object_call(where, ""):
        event = case.graph.event(node) if node is not None else None
        files = [span.file for span in case.places.node_spans(node)] if node is not None else []
        built = find_inplace_constructors(where.file, where.line)
        if len(built) != 1 and event is not None:
            built = made_to_write(files, event.op)
    if len(built) == 1:
        edits, where = set_inplace_false(built[0]), built[0]
    else:
        edits = out_of_place(where)
    return complaints.finding(
        case,
        found,
        where=where,
        fix=Fix(
            title=found.message.fix,
            edits=edits,
            safety="forward values stay equal",
            deliberate=found.message.deliberate,
        ),
    )


def _is_activation(case: Case, node: int) -> bool:
    event = case.graph.event(node)
    return event is not None and display_name(event.op).rstrip("_") in _ACTIVATIONS
