"""What rules about gradient values share: places, names and numbers, and tables of operations."""

from __future__ import annotations

import math
import re

from whygrad.diagnose import lives, words
from whygrad.diagnose.case import Case, is_library
from whygrad.graph.tracing import Followed, kind_of
from whygrad.record.accounts import PassUse, Range, TraceNode
from whygrad.record.events import INSIDE_FUNCTION
from whygrad.record.ops import display_name
from whygrad.session import Related
from whygrad.source.spans import Span, location
from whygrad.source.tree import expression_at, receiver_text, text_of

# --- places -----------------------------------------------------------------------------------


def place_of(case: Case, node: TraceNode) -> Span | None:
    """The user's line that made an operation; the library's if no line of the user's is known."""
    spans = case.places.node_spans(node.event) if node.event is not None else ()
    for span in spans:
        if not is_library(span.file):
            return span
    return spans[0] if spans else None


def backward_place(case: Case, number: int) -> Span | None:
    """The line of a backward(), by its number; of the latest one if that is not known."""
    question = case.question
    acts = question.account.acts if question.account is not None else []
    stacks = [act.stack for act in acts if isinstance(act, PassUse) and act.number == number]
    return case.user_span(next(iter([*stacks, *question.root_stacks.values(), question.stack])))


def loss_name(case: Case, number: int) -> str:
    span = backward_place(case, number)
    text = receiver_text(span) if span is not None else None
    return text if text and len(text) <= 30 and "\n" not in text else "loss"


def source_of(span: Span) -> str:
    """The expression at a span, as it is written; empty if it is none."""
    expression = expression_at(span)
    return text_of(expression, span.file) if expression is not None else ""


def surfaced(case: Case, number: int, where: Span, label: str) -> list[Related]:
    """The backward() at which it shows."""
    span = backward_place(case, number)
    if span is None or lives.same_place(span, where):
        return []
    return [Related("surfaced", location(span), label)]


# --- names ------------------------------------------------------------------------------------


def spoken(case: Case, node: TraceNode) -> str:
    """An operation as a person would name it: `tanh`, or `softmax` in `attention`."""
    event = case.graph.event(node.event) if node.event is not None else None
    own = _own_name(node)
    if event is None:
        return f"`{own}`"
    shown = display_name(event.op)
    plain, bare = shown.lower().replace("_", ""), own.replace("_", "")
    if plain == bare or plain.strip("_") in bare or bare in plain or own in _PARTS.get(plain, ()):
        return f"`{shown}`"
    return f"`{own}` (in `{shown}`)"


_PARTS = {
    "matmul": ("mm", "bmm", "mv", "dot"),
    "linear": ("addmm", "mm", "linear"),
    "conv1d": ("convolution",),
    "conv2d": ("convolution",),
    "conv3d": ("convolution",),
    "truediv": ("div",),
    "rtruediv": ("reciprocal", "mul", "div"),
    "rdiv": ("reciprocal", "mul", "div"),
    "square": ("pow",),
    "relu6": ("hardtanh",),
    "selu": ("elu",),
    "fix": ("trunc",),
    "max": ("maximum",),
    "min": ("minimum",),
}


def _own_name(node: TraceNode) -> str:
    """Autograd's name as torch's functions are written: `log_softmax` for LogSoftmax."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind_of(node)).lower()


def count(names: list[str]) -> str:
    """One parameter by its name, several by their number."""
    return f"`{names[0]}`" if len(names) == 1 else words.count(len(names), "parameter")


def number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinity"
    return f"{value:.3g}"


def between(values: Range) -> str:
    if values.low == values.high:
        return f"all {number(values.low)}"
    return f"between {number(values.low)} and {number(values.high)}"


def is_custom(case: Case, event: int | None) -> bool:
    """Whether a recorded operation is a custom Function, whose backward is the program's own."""
    if event is None or not case.graph.live(event):
        return False
    inside = (case.graph.event(fed) for fed in case.graph.inputs(event))
    return any(inner is not None and inner.mode == INSIDE_FUNCTION for inner in inside)


# --- what goes into a network -----------------------------------------------------------------


def largest_data(case: Case, passed: Followed, index: int) -> tuple[Range, Span] | None:
    """Of the data that flows into an operation, what has the largest numbers, and its use."""
    event = passed.nodes[index].event
    if event is None:
        return None
    trace, graph = passed.trace, case.graph
    found: list[tuple[float, Range, int]] = []
    for node in graph.ancestors([event]):
        if not graph.live(node):
            continue
        for fed in graph.inputs(node):
            values = trace.data.get(fed) or trace.values.get(fed)
            if values is not None and not graph.live(fed) and graph.floating(fed):
                found.append((max(abs(values.low), abs(values.high)), values, node))
    if not found:
        return None
    _, values, user = max(found, key=lambda entry: entry[0])
    span = case.places.node_span(user)
    return None if span is None else (values, span)
