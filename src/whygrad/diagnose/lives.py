"""What the rules on in-place writes and graph lifetimes have in common."""

from __future__ import annotations

import re

from whygrad.diagnose import words
from whygrad.diagnose.case import Case, is_library
from whygrad.graph.lifetime import Meeting
from whygrad.record.events import Change, Pass, SavedValue
from whygrad.record.ops import HIDDEN_WRITERS, IN_PLACE_DUNDERS, display_name
from whygrad.session import Related
from whygrad.source.spans import Span, location
from whygrad.source.tree import callee_name, receiver_text
from whygrad.source.uses import (
    augmented_operator,
    is_object_call,
    written_name,
)

_OUTPUTS = re.compile(r"result|output|out\b|out\d")


# --- writes -----------------------------------------------------------------------------------


def spoken_write(op: str, where: Span) -> str:
    """An in-place operation as a person would name it."""
    operator = augmented_operator(where)
    if operator is not None:
        return f"`{operator}`"
    if is_object_call(where, op) and not has_flag(op):
        name = (callee_name(where) or "").rpartition(".")[2]
        return f"`{name}()`" if name.isidentifier() else f"`{op}()`"
    if op == "__setitem__":
        return "the index assignment"
    if op == "data=":
        return "the assignment to `.data`"
    if op in IN_PLACE_DUNDERS or op in HIDDEN_WRITERS or op.endswith("_"):
        return f"`{op}()`"
    return f"`{op}(inplace=True)`" if has_flag(op) else f"`{op}(out=...)`"


def has_flag(op: str) -> bool:
    """Whether an operation writes in place because it was asked to with `inplace=True`."""
    return op in _WITH_FLAG


_WITH_FLAG = frozenset(
    """
    relu relu6 leaky_relu elu selu celu silu mish hardswish hardsigmoid hardtanh rrelu threshold
    _threshold dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout
    """.split()
)


def change_span(case: Case, change: Change) -> tuple[Span | None, Span | None]:
    """(the line to change, the library's line if that is another one)."""
    if change.kind == "step":
        return case.user_span(change.stack), None
    return case.blame(change.stack, change.node)


def changed_name(span: Span, op: str = "") -> str:
    """The written variable as the source calls it, or just what it is."""
    name = written_name(span, op)
    return f"`{name}`" if name and len(name) <= 40 else "the value"


def same_place(one: Span, other: Span) -> bool:
    return one.file == other.file and one.extent == other.extent


def callers(case: Case, stack: int, other: int, label: str) -> list[Related]:
    """For a helper that was called twice, as in `update(opt, loss)`: this time's caller."""
    mine, theirs = case.places.spans(stack), case.places.spans(other)
    if not mine or not theirs:
        return []
    helper = (mine[0].file, mine[0].first_line)
    if len(mine) < 2 or helper != (theirs[0].file, theirs[0].first_line):
        return []
    if mine[1:2] == theirs[1:2] or is_library(mine[1].file):
        return []
    return [Related("via", location(mine[1]), label)]


# --- values that autograd kept ----------------------------------------------------------------


def kept_by(case: Case, value: SavedValue) -> str:
    """The operation that kept a value, quoted: `sigmoid`."""
    if not value.function:
        return "an operation"
    event = case.graph.event(value.event) if value.event is not None else None
    own = re.sub(r"Backward\d*$", "", value.function)
    if event is None:
        return f"`{own.lower()}`"
    shown = display_name(event.op)
    # A call can consist of several derivatives; then autograd's name says which one it is.
    plain = re.sub(r"[^a-z]", "", shown.lower())
    related = plain in own.lower() or own.lower() in plain or own in _PARTS.get(shown, ())
    return f"`{shown}`" if related or len(own) < 2 else f"`{shown}` (in it, `{own}`)"


_PARTS = {
    "linear": ("Addmm", "Mm", "MklLinear", "Linear"),
    "matmul": ("Bmm", "Mm", "Addmm", "Mv", "Dot"),
    "truediv": ("Div",),
    "rtruediv": ("Reciprocal", "Mul", "Div"),
    "rdiv": ("Reciprocal", "Mul", "Div"),
    "sub": ("Rsub", "Sub"),
}


def is_output(value: SavedValue) -> bool:
    """Whether the operation kept what it returned, not what it was given."""
    return bool(_OUTPUTS.match(value.name))


def kept_what(value: SavedValue) -> str:
    if is_output(value):
        return "its output"
    named = value.name in ("self", "input", "other", "tensors", "mat1", "mat2", "mat", "vec")
    return "its input" if named else f"its `{value.name}`"


def kept_related(case: Case, value: SavedValue) -> list[Related]:
    """The line whose operation kept the value."""
    span = case.places.node_span(value.event) if value.event is not None else None
    if span is None:
        return []
    label = f"{kept_by(case, value)} keeps {kept_what(value)} for backward here"
    return [Related("saved", location(span), label)]


def is_weight(case: Case, value: SavedValue) -> bool:
    """Whether a value is the memory of something that is trained.

    Any leaf is, in a program that updates its weights by hand; with an optimizer or a module in
    sight it is what these hold, and other leaves are inputs.
    """
    if value.leaf is None or (value.changes and value.changes[0].op in HIDDEN_WRITERS):
        return False
    source = case.graph.source(value.leaf)
    if case.parameter(value.leaf) is not None or (source is not None and source.parameter):
        return True
    return not case.question.parameters


def moved_parameters(case: Case, values: list[SavedValue]) -> list[str]:
    """The parameters among changed values, by name."""
    return case.names(list(dict.fromkeys(v.leaf for v in values if v.leaf is not None)))


# --- passes -----------------------------------------------------------------------------------


def pass_span(case: Case, earlier: Pass) -> Span | None:
    return case.user_span(earlier.stack)


def pass_name(case: Case, earlier: Pass) -> str:
    """What was backpropagated, as the source calls it; empty if it does not say."""
    span = pass_span(case, earlier)
    text = receiver_text(span) if span is not None else None
    spans = case.places.spans(earlier.stack)
    direct = bool(spans) and spans[0] == span
    return text if direct and text and len(text) <= 30 and "\n" not in text else ""


def failing_call(case: Case) -> str:
    """The backward() that failed, as a person would write it."""
    root = case.root_name
    if case.question.kind == "grad-raised":
        return f"`torch.autograd.grad({root}, ...)`"
    return f"`{root}.backward()`"


def shared_parameters(case: Case, meeting: Meeting) -> list[str]:
    """The parameters behind the part that two passes have in common, by name."""
    if case.lifetime is None:
        return []
    return case.names(case.lifetime.parameters_of(meeting.shared))


def call_of(earlier: Pass) -> str:
    return "`backward()`" if earlier.call == "backward" else "`torch.autograd.grad()`"


def error_label(case: Case) -> str:
    question = case.question
    return f"{question.error_type}: {words.first_sentence(question.error_text)}"


def surface_label(case: Case) -> str:
    """What happens at the failing backward()."""
    return error_label(case) if case.question.error_text else "runs, and computes wrong gradients"


def surfaced_here(case: Case, where: Span | None) -> list[Related]:
    """Where torch complained, unless that is the finding's own place."""
    surface = case.surface
    if surface is None or (where is not None and same_place(surface, where)):
        return []
    return [Related("surfaced", location(surface), surface_label(case))]
