"""An operation's derivative raised: which operation of the forward pass that was."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, lives, words
from whygrad.diagnose.case import Case
from whygrad.graph.flow import FlowGraph
from whygrad.record.events import Complaint
from whygrad.record.ops import display_name
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location

CODE = "failed-in-backward"

_FORKED = "fork-after-cuda-backward"
_TRIAL = "gradcheck._test_batched_grad"


def diagnose(case: Case) -> Iterator[Finding]:
    complaint = case.question.complaint
    if complaint is None or complaint.warning or case.question.autopsy is not None:
        return
    if any(call.endswith(_TRIAL) for call in complaint.calls):
        return  # gradcheck() catches it, and then says in words of its own what failed
    if not complaint.message:
        yield from _unknown(case, complaint)
        return
    said = complaints.said(case, CODE)
    if said is None:
        return
    of_call = said.message.id == _FORKED  # the fault is not in any operation
    operation = None if of_call else _operation(case, complaint)
    yield complaints.finding(case, said, where=operation)


def _unknown(case: Case, complaint: Complaint) -> Iterator[Finding]:
    """A message that nobody has explained yet: the place and the values are worth a lot."""
    inside = case.user_span(complaint.stack) if complaint.stack != complaint.outer else None
    operation = inside or _operation(case, complaint)
    if operation is None:
        return
    surface = case.user_span(complaint.outer)
    name = _name(case, complaint)
    shown = lives.error_label(case)
    yield Finding(
        code=CODE,
        severity="error",
        symptom="raises",
        title=f"the backward of {name} raised {case.question.error_type}",
        message=f"The backward of {name} raised: {words.first_line(case.question.error_text)}",
        location=location(operation),
        label="its derivative fails" if inside is None else shown,
        related=[
            Related("surfaced", location(span), shown)
            for span in (surface,)
            if span is not None and span != operation
        ],
        why=_values(case, complaint)
        or "the program's own code, which autograd called, raised the exception.",
        checked=["the derivatives of what came after it had been computed."]
        if inside is None and complaint.failed_surely
        else [],
        inferred=[]
        if inside is not None or complaint.failed_surely
        else [
            "operations right after it keep nothing by which it would show whether their "
            "derivatives had been computed: it may have been one of them."
        ],
        fix=Fix(title="look at the shapes and dtypes here: the values above are what it met"),
        first_step=case.question.step,
    )


def _operation(case: Case, complaint: Complaint) -> Span | None:
    return case.places.node_span(complaint.failed) if complaint.failed is not None else None


def _name(case: Case, complaint: Complaint) -> str:
    event = case.graph.event(complaint.failed) if complaint.failed is not None else None
    if event is not None:
        return f"`{display_name(event.op)}`"
    return f"`{complaint.failed_function}`" if complaint.failed_function else "an operation"


def _values(case: Case, complaint: Complaint) -> str:
    """Shapes and dtypes of what went in and came out."""
    node, graph = complaint.failed, case.graph
    if node is None or graph.event(node) is None:
        return ""
    given = [_value(graph, fed) for fed in graph.inputs(node)]
    return (
        f"in the forward pass it took {', '.join(given) or 'no tensor'} and gave "
        f"{_value(graph, node)}. Its derivative takes a gradient like what it gave, and makes one "
        "like everything it took that needs one."
    )


def _value(graph: FlowGraph, node: int) -> str:
    held = graph.event(node) or graph.source(node)
    if held is None or held.shape is None:
        return "a tensor"
    return f"{str(held.dtype).removeprefix('torch.')} {[int(size) for size in held.shape]}"
