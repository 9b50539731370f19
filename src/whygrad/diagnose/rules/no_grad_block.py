"""A value computed while gradients were switched off: no_grad, inference_mode, set_grad_enabled."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from whygrad.diagnose import complaints, lives, story, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.graph.separate import Separation
from whygrad.record.events import Event, Switch
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.arguments import function_name
from whygrad.source.edits import delete_statement, remove_decorator, remove_with_item
from whygrad.source.spans import Span, location
from whygrad.source.tree import (
    callee_name,
    decorator_span,
    enclosing_with,
    function_at,
    receiver_text,
    statement_at,
)

CODE = "no-grad-block"

SWITCHES = {"no_grad", "inference_mode", "set_grad_enabled", "_set_grad_enabled"}
_HISTORY_EXPECTED = "requires-grad-off"  # the rule that tells of hooks on tensors without one
_UNSEEN = Switch("inference_mode", False, -1, 0, None, False)


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        around = (enclosing_with(s, SWITCHES) for s in case.places.spans(said.complaint.stack))
        where = next((span for span in around if span is not None), None)
        yield complaints.finding(case, said, where=where)
    for separation in case.separations:
        if separation.first.kind == "switch":
            finding = _explain(case, separation)
            if finding is not None:
                yield _to_be_guarded(case, finding) or finding


def _explain(case: Case, separation: Separation) -> Finding | None:
    node = _first_node(case, separation)
    event = case.graph.event(node) if node is not None else None
    if node is None or event is None:
        return None
    switch = case.graph.recording.switches[event.mode] if event.mode > 0 else _UNSEEN
    found = switch_place(case, switch, event, separation.feeder(node))
    if found is None:
        return None
    where, form, function = found
    written = f"torch.{switch.kind}()"
    if switch.kind == "set_grad_enabled":
        written = "torch.set_grad_enabled(False)"
    subject = f"`@{written}`" if form == "decorator" else f"`{written}`"
    inside = story.cut_span(case, node)
    related = []
    if inside is not None and (inside.file, inside.line) != (where.file, where.line):
        related.append(Related("operation", location(inside), "computed while gradients are off"))
    return story.cut_finding(
        case,
        separation,
        code=CODE,
        where=where,
        subject=subject,
        label=_LABELS[form],
        why=f"while `{written}` is in force, operations compute values but record no history, "
        f"so autograd has no edge from `{case.root_name}` back through this code.",
        fix=_fix(case, where, form, written),
        related=related,
        function=function,
    )


def _to_be_guarded(case: Case, cut: Finding) -> Finding | None:
    """Code that trains at other times, run without gradients: it should not ask for them then."""
    said = complaints.said(case, _HISTORY_EXPECTED)
    node = complaints.without_history(case)
    around = _around(case, said, cut) if said is not None else None
    value = receiver_text(said.where) if said is not None else None
    if said is None or node is None or around is None or not value:
        return None
    before = _ran_with_gradients(case, node)
    elsewhere = (around.file, around.first_line) != (said.where.file, said.where.first_line)
    if not before and (not elsewhere or _differentiates(around)):
        return None
    call = said.words["call"].rpartition(".")[2]
    title = f"`{value}.{call}()` also runs where gradients are off, and `{value}` has no history"
    related = [Related("cut", cut.location, "gradients are off in here")]
    return replace(
        cut,
        title=title,
        message=f"{words.sentence(title)} The call should depend on `{value}.requires_grad`.",
        location=location(said.where),
        label=lives.error_label(case),
        related=[*related, *(r for r in cut.related if r.role not in ("surfaced", "via"))],
        why=f"while gradients are switched off nothing records a history, so there is no gradient "
        f"that `{call}` could wait for."
        + (" Where they are on, the same line works." if before else ""),
        checked=[f"before, with gradients on, the same code gave `{value}` a history."]
        if before
        else [],
        path=[],
        hidden_operations=0,
        parameters=[],
        fix=Fix(
            title=f"call it only where a gradient will come: `if {value}.requires_grad:`",
            safety="forward values and gradients stay equal",
        ),
    )


def _around(case: Case, said: Said, cut: Finding) -> Span | None:
    """The line in the block, or the decorated function, that ran when torch complained."""
    for span in case.places.spans(said.complaint.stack):
        decorator = decorator_span(span.file, span.first_line, SWITCHES)
        places = [location(s) for s in (enclosing_with(span, SWITCHES), decorator) if s]
        if any((p.file, p.line) == (cut.location.file, cut.location.line) for p in places):
            return span
    return None


def _differentiates(span: Span) -> bool:
    """Whether the function around a line goes back from something: then it is to train."""
    function = function_at(span)
    calls = [n.func for n in ast.walk(function) if isinstance(n, ast.Call)] if function else []
    return any(getattr(call, "attr", "") in ("backward", "grad", "step") for call in calls)


def _ran_with_gradients(case: Case, node: int) -> bool:
    """Whether the line that computed a value has computed one with a history as well."""
    event, recording = case.graph.event(node), case.graph.recording
    if event is None:
        return False
    earlier = (recording.event(number) for number in range(recording.base, node))
    return any(each is not None and each.live and each.site == event.site for each in earlier)


def _first_node(case: Case, separation: Separation) -> int | None:
    """The operation under the switch that is nearest to the parameters."""
    for node in separation.path.nodes:
        block = case.graph.block(node)
        if block is not None and block.key == separation.first.key:
            return node
    return None


_LABELS = {
    "block": "everything computed in this block has no history",
    "decorator": "everything computed in this function has no history",
    "call": "from here on nothing records history, until it is switched on again",
    "wrapped": "everything computed in this call has no history",
}


def switch_place(
    case: Case, switch: Switch, event: Event, fed_by: int | None
) -> tuple[Span, str, str] | None:
    """(span, a key of `_LABELS`, function) of the switch that was off at `event`."""
    if switch.decorated is not None:
        file, line = switch.decorated
        span = decorator_span(file, line, SWITCHES)
        if span is not None:
            return span, "decorator", function_name(file, line)
    span = case.blame(switch.stack, fed_by)[0] if switch.stack else None
    if span is None:
        # The switch itself was not seen: the source around the operation may show it.
        for inner in case.places.spans(event.stack):
            around = enclosing_with(inner, SWITCHES)
            if around is not None:
                return around, "block", ""
        return None
    if enclosing_with(span, SWITCHES) == span:
        return span, "block", ""
    # A switch stands alone or is named; what else ends up here wraps a callable in one.
    thrown = _stands_alone(span) or (callee_name(span) or "").rpartition(".")[2] in SWITCHES
    return span, "call" if thrown else "wrapped", ""


def _stands_alone(where: Span) -> bool:
    return isinstance(statement_at(where), ast.Expr)


def _fix(case: Case, where: Span, form: str, written: str) -> Fix:
    edits: list[Edit]
    if form == "decorator":
        title, edits = f"remove the `@{written}` decorator", remove_decorator(where)
    elif form == "block":
        title, edits = f"move this computation out of `{written}`", remove_with_item(where)
    elif form == "wrapped":
        title, edits = f"make this call without `{written}` around it", []
    else:
        title = "switch gradients off only where that is wanted: `with torch.no_grad():`"
        edits = delete_statement(where) if _stands_alone(where) else []
    loss = "this loss trains nothing" if case.raises else "these parameters do not train"
    rest = f"{case.take_out}add a term that reaches them."
    if case.raises:
        rest = "add a term that reaches a parameter."
    deliberate = f"if it is deliberate (frozen encoder, evaluation), {loss}: {rest}"
    if complaints.without_history(case) is not None:
        deliberate = (
            "if it is deliberate (evaluation), leave out the call that needs a history there: "
            f"`if {case.root_name}.requires_grad:`."
        )
    return Fix(
        title=title,
        edits=edits,
        safety="changes gradients and memory; forward values stay equal",
        deliberate=deliberate,
    )
