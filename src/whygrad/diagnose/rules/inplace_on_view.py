"""A view is written to in a way that autograd cannot follow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whygrad.diagnose import complaints, custom, lives, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.ops import display_name
from whygrad.session import Finding, Fix, Related
from whygrad.source.inplace_edits import find_inplace_constructors, out_of_place, set_inplace_false
from whygrad.source.inplace_layers import made_to_write
from whygrad.source.spans import Span, location
from whygrad.source.uses import is_iterated, is_object_call

CODE = "inplace-on-view"

_OUTPUT = re.compile(r"Output (\d+) of (\w+?)(?:Backward\d*)? is a view and (is being|its base)")
_MODE = re.compile(r"view (?:was|which was) created in \w+ mode")
_HOOK = "BackwardHookFunction"


def diagnose(case: Case) -> Iterator[Finding]:
    kind = _kind(case.question.error_text) if case.raises else None
    if kind is None:
        said = complaints.said(case, CODE)
        aliased = custom.returns_input(case, CODE)
        if aliased is not None:
            yield aliased
        elif said is not None:
            yield complaints.finding(case, said, where=_given_back(case, said))
        return
    question = case.question
    target = question.targets[0] if question.targets else None
    stack = question.raised_at or question.stack
    if kind == "base" and question.changes:
        stack = question.changes[-1].stack
    where, library = case.blame(stack, target)
    if where is not None:
        yield _finding(case, kind, where, library, target)


def _given_back(case: Case, said: Said) -> Span | None:
    """The operation that made the view which a module returned."""
    if said.message.group == "custom-function":
        return None  # the call that hands the view in is the one to change
    views = [g.node for g in said.complaint.given if not g.leaf and g.node >= 0]
    return case.places.node_span(views[-1]) if views else None


def _kind(text: str) -> str | None:
    """Which of torch's refusals this is."""
    output = _OUTPUT.search(text)
    if output is not None:
        if _HOOK in output.group(2):
            return "hook"
        if output.group(3) == "its base":
            return "base"
        return "several" if "returns multiple views" in text else "function"
    if _MODE.search(text):
        return "mode"
    if "Can't detach views in-place" in text:
        return "detach"
    if "single memory location" in text:
        return "overlap" if "some elements of the input" in text else "expanded"
    return None


_TITLE = {
    "hook": "{name} is written to, but a full backward hook has wrapped it",
    "base": "the memory under {name} is written to through another tensor",
    "several": "{name} is written to, but it is one of several views that `{op}` returned",
    "function": "{name} is written to, but it is a view that a custom Function returned",
    "mode": "{name} is written to, but it is a view made while gradients were off",
    "detach": "`detach_()` is called on {name}, which is a view",
    "overlap": "a write reads from the memory that it writes to",
    "expanded": "{name} is written to, but its elements share memory",
}
_WHY = {
    "hook": "a module with a full backward hook hands its output through a small Function, so that "
    "the hook can see the gradient. The output is then a view with a derivative of its own, and "
    "an in-place write would take that derivative away, so torch refuses.",
    "base": "a function that returns several views ties them together; after a write to the "
    "tensor beneath them autograd no longer knows how each of them came about.",
    "several": "a function that returns several views at once (`unbind`, `split`, `chunk`, "
    "iterating over a tensor) has one derivative for all of them. A write to one would need that "
    "derivative changed for the others too, which autograd does not do.",
    "function": "the output of the Function shares memory with its input. An in-place write would "
    "replace the Function's own backward by that of the write, so torch refuses.",
    "mode": "the view was made where gradients were off, so autograd does not know that it looks "
    "into another tensor. A recorded write to it would change that tensor behind autograd's back.",
    "detach": "`detach_()` would have to take the history away from the whole tensor that the "
    "view looks into, not just from the view.",
    "overlap": "the two sides share memory, so the result would depend on the order in which the "
    "elements are processed.",
    "expanded": "an expanded tensor repeats its elements without copying them: one place in "
    "memory stands for many elements, and cannot hold a different number for each.",
}


def _finding(
    case: Case, kind: str, where: Span, library: Span | None, target: int | None
) -> Finding:
    name = lives.changed_name(where) if library is None and kind != "base" else "a view"
    maker = _maker(case, target, kind)
    op = _operation(case, maker)
    title = _TITLE[kind].format(name=name, op=op)
    base = kind == "base"
    built = _built(case, where) if library is None else None
    return Finding(
        code=CODE,
        severity="error",
        symptom="raises",
        title=title,
        message=f"{words.sentence(title)} {_made_words(case, maker)}".strip(),
        location=location(built or where),
        label=_label(case, built, base),
        related=[
            *_made(case, kind, maker, where),
            *(lives.surfaced_here(case, built or where) if base or built is not None else []),
        ],
        parameters=[],
        why=_WHY[kind],
        checked=[_checked(case, maker, op)] if maker is not None and op else [],
        fix=_fix(kind, where, library, built),
        first_step=case.question.step,
    )


def _maker(case: Case, target: int | None, kind: str) -> int | None:
    """The node at which the view was made; for a hook, the layer whose output it wraps."""
    if target is None:
        return None
    if case.places.node_span(target) is None:
        return next(iter(case.graph.inputs(target)), None)
    return target


def _operation(case: Case, node: int | None) -> str:
    event = case.graph.event(node) if node is not None else None
    span = case.places.node_span(node) if node is not None else None
    if span is not None and is_iterated(span):
        return "for"
    return display_name(event.op) if event is not None else ""


def _made_words(case: Case, maker: int | None) -> str:
    span = case.places.node_span(maker) if maker is not None else None
    return f"The view was made at {words.at(span)}." if span is not None else ""


def _made(case: Case, kind: str, maker: int | None, where: Span) -> list[Related]:
    span = case.places.node_span(maker) if maker is not None else None
    if span is None or lives.same_place(span, where):
        return []
    label = "the hooked layer's output" if kind == "hook" else "the view is made here"
    return [Related("created", location(span), label)]


def _built(case: Case, where: Span) -> Span | None:
    """The line that made the layer which writes, if it is a layer and just one fits."""
    if not is_object_call(where, ""):
        return None
    built = find_inplace_constructors(where.file, where.line)
    complaint = case.question.complaint
    if len(built) != 1 and complaint is not None and complaint.layer is not None:
        files = [span.file for span in case.places.spans(complaint.stack)]
        built = made_to_write(files, complaint.layer.type)
    return built[0] if len(built) == 1 else None


def _label(case: Case, built: Span | None, base: bool) -> str:
    if built is not None:
        return "this layer is built to write in place"
    return "this write" if base else lives.error_label(case)


def _checked(case: Case, maker: int | None, op: str) -> str:
    return f"the tensor that may not be written to was made by `{op}`."


def _fix(kind: str, where: Span, library: Span | None, built: Span | None) -> Fix:
    if built is not None:
        edits = set_inplace_false(built)
    else:
        edits = out_of_place(where) if library is None and kind != "detach" else []
    titles = {
        "hook": "let the layer after the hooked one compute out of place (`inplace=False`)",
        "mode": "make the view and the write in the same mode, or write out of place",
        "detach": "use `.detach()` and keep its result",
        "overlap": "read from a copy: `.clone()` on the right-hand side",
        "expanded": "write into a copy: `.clone()` after the expand",
    }
    title = titles.get(kind, "write out of place, or write into a `.clone()` of the view")
    return Fix(
        title=title,
        edits=edits,
        safety="forward values stay equal, unless other code relies on the tensor being changed",
        deliberate="if the tensor beneath must change as well, index it directly: "
        "`tensor[i] = ...` is recorded."
        if kind in ("several", "base")
        else "",
    )
