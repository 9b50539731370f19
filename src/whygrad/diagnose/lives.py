"""What the rules on in-place writes and graph lifetimes have in common."""

from __future__ import annotations

import re

from whygrad.diagnose import words
from whygrad.diagnose.case import Case, is_library
from whygrad.graph.lifetime import Meeting
from whygrad.record.events import Change, Pass, SavedValue
from whygrad.record.ops import IN_PLACE_DUNDERS, display_name
from whygrad.session import Related
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, receiver_text
from whygrad.source.uses import (
    augmented_operator,
    can_be_old,
    is_object_call,
    is_parameter,
    values_used,
    written_name,
)

_OUTPUTS = re.compile(r"result|output|out\b|out\d")


# --- writes -----------------------------------------------------------------------------------


def spoken_write(op: str, where: Span) -> str:
    """An in-place operation as a person would name it."""
    operator = augmented_operator(where)
    if operator is not None:
        return f"`{operator}`"
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


def changed_name(span: Span, op: str = "") -> str:
    """The written variable as the source calls it, or just what it is."""
    name = written_name(span, op)
    return f"`{name}`" if name and len(name) <= 40 else "the value"


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
    if value.leaf is None:
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
    """What was backpropagated, as the source calls it."""
    span = pass_span(case, earlier)
    text = receiver_text(span) if span is not None else None
    return text if text and len(text) <= 30 and "\n" not in text else "loss"


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
    if surface is None or (where is not None and surface.extent == where.extent):
        return []
    return [Related("surfaced", location(surface), surface_label(case))]


# --- where a value of the past comes in -------------------------------------------------------


def entry(
    case: Case, meeting: Meeting, *, first: bool = False, network: bool = False
) -> tuple[Span | None, str]:
    """The line where the shared part is used again (or was used first), and its name there.

    A function that got it as an argument is not to blame: its caller handed it in. Where it is
    the `network` that counts which it is fed to, the call of that network is the place.
    """
    node = meeting.before if first else meeting.enter
    if node is None:
        return None, ""
    event = case.graph.event(node)
    spans = list(case.places.spans(event.stack)) if event is not None else []
    if not spans:
        span = case.places.node_span(node)
        spans = [span] if span is not None else []
    maker = case.places.node_span(meeting.maker)
    made = assigned_names(maker) if maker is not None else []
    for depth, span in enumerate(spans):
        used = [name for name in values_used(span) if can_be_old(span, name)]
        known = [name for name in used if name in made or name in assigned_names(span)]
        candidates = known or used
        is_called = network and event is not None and _calls_network(spans, depth, event.op)
        if _handed_in(span, candidates) and depth + 1 < len(spans) and not is_called:
            continue
        if is_library(span.file) and (maker is None or maker.file != span.file):
            break
        return span, candidates[0] if len(candidates) == 1 else ""
    user = next((span for span in spans if not is_library(span.file)), None)
    return user or (spans[0] if spans else None), ""


def _handed_in(span: Span, names: list[str]) -> bool:
    """Whether the value came in as an argument of the function around a span."""
    arguments = [name for name in names if is_parameter(span, name)]
    own = [name for name in names if name not in arguments and _is_own(span, name)]
    return bool(arguments) and not own


def _is_own(span: Span, name: str) -> bool:
    return "." in name or name in assigned_names(span)


def _calls_network(spans: list[Span], depth: int, op: str) -> bool:
    if depth == 0:
        return is_object_call(spans[0], op)
    return spans[depth - 1].function.rpartition(".")[2] in ("forward", "__call__")
