"""An in-place write changes a value that an operation kept for backward."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, lives, refused_writes, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.story import source_text
from whygrad.record.events import Change, SavedValue
from whygrad.record.ops import HIDDEN_WRITERS
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.inplace_edits import (
    find_inplace_constructors,
    out_of_place,
    set_inplace_false,
)
from whygrad.source.spans import Span, location

CODE = "inplace-on-saved"


def diagnose(case: Case) -> Iterator[Finding]:
    found = _culprit(case)
    if found is not None:
        value, change = found
        where, library = lives.change_span(case, change)
        if where is not None:
            yield _finding(case, value, change, where, library)
        return
    said = complaints.said(case, CODE)
    if said is not None:
        yield refused_writes.tell(case, said)


def _culprit(case: Case) -> tuple[SavedValue, Change] | None:
    """The first write to the first changed value that autograd would have come to."""
    autopsy = case.question.autopsy
    if autopsy is None or case.meeting is not None:
        return None
    for value in autopsy.saved:
        if value.changes:
            return None if lives.is_weight(case, value) else (value, value.changes[0])
    return None


def _finding(
    case: Case, value: SavedValue, change: Change, where: Span, library: Span | None
) -> Finding:
    silent = value.state == "overwritten"
    operation = lives.kept_by(case, value)
    name = lives.changed_name(where, change.op) if library is None else "a value"
    if value.leaf is not None:
        name = f"`{case.name(value.leaf)}`"
    write = lives.spoken_write(change.op, where)
    if library is not None:
        write = f"{write} inside a library call"
    if silent and change.op not in HIDDEN_WRITERS:
        write += " through `.data`"
    verb = "detaches" if value.state == "detached" else "changes"
    title = f"{write} {verb} {name}, which {operation} still needs for its gradient"
    return Finding(
        code=CODE,
        severity="error",
        symptom="silent" if silent else "raises",
        title=title,
        message=f"{words.sentence(title)} {_message(case, value, silent)}".rstrip(),
        location=location(where),
        label=f"{name} is written to here, after {operation} kept it",
        related=[
            *lives.kept_related(case, value),
            *lives.surfaced_here(case, where),
            *_built(where, change),
        ],
        parameters=_behind(case, value),
        why=_why(value, operation, silent),
        checked=[_checked(value)] if value.function else [],
        inferred=[] if value.function else [_INFERRED],
        fix=_fix(case, value, change, where, library),
        first_step=case.question.step,
    )


_INFERRED = "of all writes seen, only this one fits the shape and the versions in torch's message."


def _message(case: Case, value: SavedValue, silent: bool) -> str:
    if silent:
        return "Autograd does not notice, and the gradients are wrong."
    span = case.places.node_span(value.event) if value.event is not None else None
    if span is None:
        return ""
    return f"It was kept at {words.at(span)}: `{source_text(span)}`."


def _behind(case: Case, value: SavedValue) -> list[str]:
    """Parameters whose gradient passes through the operation that kept the value."""
    if case.lifetime is None or value.event is None:
        return []
    leaves = [n for n in case.lifetime.behind((value.event,)) if case.graph.trainable_leaf(n)]
    return case.names(leaves)


def _why(value: SavedValue, operation: str, silent: bool) -> str:
    needs = (
        f"the derivative of {operation} is computed from {lives.kept_what(value)} (autograd's "
        f"name for it: `{value.name}`), so autograd keeps that very tensor, not a copy."
        if value.name
        else "an operation in a checkpointed (or otherwise packed) part computes its derivative "
        "from this tensor, so that very tensor is kept, not a copy."
    )
    if silent:
        return (
            f"{needs} This write changes the numbers without telling autograd, so backward() "
            "runs and uses numbers that the forward pass never had."
        )
    if value.state == "detached":
        return f"{needs} `detach_()` took its history away before backward() came to it."
    return f"{needs} The write came after that, so the numbers it needs are gone."


def _checked(value: SavedValue) -> str:
    shape = f"of shape {list(value.shape)} " if value.shape is not None else ""
    count = words.count(len(value.changes), "in-place write")
    if value.state == "overwritten":
        return f"the tensor {shape}that was kept shares its memory with the one written to."
    return f"{count} to the kept tensor {shape}since then; this is the first."


def _built(where: Span, change: Change) -> list[Related]:
    """Where the layer that writes in place was built."""
    if not lives.has_flag(change.op):
        return []
    built = find_inplace_constructors(where.file, where.line)
    return [Related("created", location(span), "built to write in place") for span in built[:1]]


def _fix(case: Case, value: SavedValue, change: Change, where: Span, library: Span | None) -> Fix:
    safety = "forward values stay equal, unless other code relies on the tensor being changed"
    if library is not None:
        return Fix(
            title="hand in a copy (`.clone()`), so that the library's write does not reach it",
            safety="forward values stay equal; one copy more",
        )
    if lives.has_flag(change.op):
        built = find_inplace_constructors(where.file, where.line)
        return Fix(
            title="compute out of place: `inplace=False`",
            edits=set_inplace_false(built[0]) if len(built) == 1 else out_of_place(where),
            safety=safety,
        )
    hidden = change.op in HIDDEN_WRITERS or value.state == "overwritten"
    edits: list[Edit] = [] if hidden else out_of_place(where)
    return Fix(
        title=_title(value, change, bool(edits)),
        edits=edits,
        safety=safety,
        deliberate=_deliberate(case, value),
    )


def _title(value: SavedValue, change: Change, edited: bool) -> str:
    if change.op in HIDDEN_WRITERS:
        return "make the call that writes before the value is used, or use a `.clone()` of it"
    if value.state == "overwritten":
        return "compute a new tensor instead of writing through `.data`"
    if value.state == "detached":
        return "use `.detach()`, which leaves the tensor itself as it is"
    if edited:
        return "write out of place, into a new tensor"
    if change.op == "__setitem__":
        return (
            "build the result from its parts with `torch.cat`, `torch.stack` or `torch.where`, "
            "or write into a `.clone()`"
        )
    return "use the out-of-place form of this operation, or write into a `.clone()`"


def _deliberate(case: Case, value: SavedValue) -> str:
    span = case.places.node_span(value.event) if value.event is not None else None
    if span is None or value.state == "overwritten":
        return ""
    if lives.is_output(value):
        return f"if the write must stay, let it change a copy: `.clone()` at {words.at(span)}."
    return f"if the write must stay, give {words.at(span)} a copy: `.clone()` of its input."
