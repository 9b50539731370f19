"""What the rules on in-place writes and graph lifetimes have in common."""

from __future__ import annotations

import re

from whygrad.diagnose import words
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.story import source_text
from whygrad.graph.lifetime import Meeting
from whygrad.record.events import Change, Pass, SavedValue
from whygrad.record.ops import IN_PLACE_DUNDERS, display_name
from whygrad.session import Location, Related
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, receiver_text
from whygrad.source.uses import is_parameter, values_used, written_name

_OUTPUTS = re.compile(r"result|output|out\b|out\d")
_AUGMENTED = {
    "__iadd__": "+=",
    "__isub__": "-=",
    "__imul__": "*=",
    "__itruediv__": "/=",
    "__ifloordiv__": "//=",
    "__imod__": "%=",
    "__ipow__": "**=",
    "__iand__": "&=",
    "__ior__": "|=",
    "__ixor__": "^=",
    "__imatmul__": "@=",
}


# --- writes -----------------------------------------------------------------------------------


def spoken_write(op: str) -> str:
    """An in-place operation as a person would name it."""
    if op in _AUGMENTED:
        return f"`{_AUGMENTED[op]}`"
    if op == "__setitem__":
        return "the index assignment"
    if op == "data=":
        return "the assignment to `.data`"
    if op in IN_PLACE_DUNDERS or op.endswith("_"):
        return f"`{op}()`"
    if op in ("embedding", "embedding_bag"):
        return f"`{op}(max_norm=...)`"
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


def changed_name(span: Span) -> str:
    """The written variable as the source calls it, or just what it is."""
    name = written_name(span)
    return f"`{name}`" if name and len(name) <= 40 else "the value"


# --- values that autograd kept ----------------------------------------------------------------


def kept_by(case: Case, value: SavedValue) -> str:
    """The operation that kept a value: `sigmoid`."""
    event = case.graph.event(value.event) if value.event is not None else None
    own = re.sub(r"Backward\d*$", "", value.function)
    if event is None:
        return own.lower()
    shown = display_name(event.op)
    # A call can consist of several derivatives; then autograd's name says which one it is.
    plain = re.sub(r"[^a-z]", "", shown.lower())
    related = plain in own.lower() or own.lower() in plain or own in _PARTS.get(shown, ())
    return shown if related or len(own) < 2 else f"{shown}` (in it, `{own}"


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
    label = f"`{kept_by(case, value)}` keeps {kept_what(value)} for backward here"
    return [Related("saved", location(span), label)]


def moved_parameters(case: Case, values: list[SavedValue]) -> list[str]:
    """The parameters among changed values, by name."""
    return case.names(list(dict.fromkeys(v.leaf for v in values if v.leaf is not None)))


# --- passes -----------------------------------------------------------------------------------


def pass_span(case: Case, earlier: Pass) -> Span | None:
    return case.user_span(earlier.stack)


def pass_name(case: Case, earlier: Pass) -> str:
    """What was backpropagated, as the source calls it."""
    span = pass_span(case, earlier)
    text = receiver_text(span) if span is not None else None
    return text if text and len(text) <= 30 and "\n" not in text else "loss"


def call_of(earlier: Pass) -> str:
    return "`backward()`" if earlier.call == "backward" else "`torch.autograd.grad()`"


def error_label(case: Case) -> str:
    question = case.question
    return f"{question.error_type}: {words.first_line(question.error_text)}"


def surfaced_here(case: Case, where: Span | None) -> list[Related]:
    """Where torch complained, unless that is the finding's own place."""
    surface = case.surface
    if surface is None or (where is not None and surface.extent == where.extent):
        return []
    if not case.question.error_text:
        return [Related("surfaced", location(surface), "runs, and computes wrong gradients")]
    return [Related("surfaced", location(surface), error_label(case))]


# --- where a value of the past comes in -------------------------------------------------------


def entry(case: Case, meeting: Meeting) -> tuple[Span | None, str]:
    """The line where the shared part is used again, and the name it goes by there.

    A function that got it as an argument is not to blame: its caller handed it in.
    """
    if meeting.enter is None:
        return None, ""
    event = case.graph.event(meeting.enter)
    spans = list(case.places.spans(event.stack)) if event is not None else []
    if not spans:
        span = case.places.node_span(meeting.enter)
        spans = [span] if span is not None else []
    maker = case.places.node_span(meeting.maker)
    made = assigned_names(maker) if maker is not None else []
    for depth, span in enumerate(spans):
        used = values_used(span)
        known = [name for name in used if name in made or name in assigned_names(span)]
        candidates = known or used
        handed_in = candidates and all(is_parameter(span, name) for name in candidates)
        if handed_in and depth + 1 < len(spans):
            continue
        if is_library(span.file) and (maker is None or maker.file != span.file):
            break
        return span, candidates[0] if len(candidates) == 1 else ""
    user = next((span for span in spans if not is_library(span.file)), None)
    return user or (spans[0] if spans else None), ""


def made_at(case: Case, node: int) -> Location | None:
    span = case.places.node_span(node)
    return location(span) if span is not None else None


def made_text(case: Case, node: int) -> str:
    span = case.places.node_span(node)
    return source_text(span) if span is not None else ""
