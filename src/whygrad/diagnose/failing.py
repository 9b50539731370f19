"""Which operation of the forward pass a complaint from inside backward() is about."""

from __future__ import annotations

import re

from whygrad.diagnose.case import Case
from whygrad.record.derivatives import named_in, squashed
from whygrad.record.events import Complaint
from whygrad.record.ops import display_name
from whygrad.source.spans import Span

# What the program calls -> what torch's kernels call it, where the two have little in common.
_KERNELS = {
    "interpolate": "upsample",
    "upsample": "upsample",
    "grid_sample": "grid_sampler",
    "cross_entropy": "nll_loss",
    "pad": "reflection_pad replication_pad",
    "max_unpool2d": "max_unpooling",
    "max_unpool3d": "max_unpooling",
    "gammainc": "igamma",
    "gammaincc": "igammac",
    "special_gammainc": "igamma",
    "special_gammaincc": "igammac",
    "embedding": "embedding_dense",
    "gather": "scatter_add",
    "index": "index_put",
    "softmax": "host_softmax",
    "lstm": "cudnn_rnn",
    "gru": "cudnn_rnn",
    "rnn_tanh": "cudnn_rnn",
}


def operation(case: Case, complaint: Complaint) -> int | None:
    """The node of it; None if neither autograd nor the names tell."""
    name = named_in(case.question.error_text)
    node = complaint.failed
    if not name or _is_same(complaint.failed_function, name) or _likeness(case, node, name):
        return node
    roots = case.question.roots
    live = [n for n in case.graph.ancestors(roots) if n >= 0 and case.graph.live(n)]
    found = [(likeness, n) for n in live if (likeness := _likeness(case, n, name))]
    # Autograd works from the latest operation down.
    return max(found, default=(0, None))[1]


def _is_same(function: str, name: str) -> bool:
    own = squashed(re.sub(r"Backward\d*$", "", function))
    wanted = squashed(name)
    return bool(own) and (own in wanted or wanted in own)


def _likeness(case: Case, node: int | None, name: str) -> int:
    event = case.graph.event(node) if node is not None else None
    return likeness(event.op, name) if event is not None else 0


def likeness(op: str, name: str) -> int:
    """How well an operation of the program fits the name in torch's message; 0 if not at all."""
    shown, wanted = display_name(op), squashed(name)
    known = [squashed(own) for own in (shown, *_KERNELS.get(shown.rstrip("_"), "").split())]
    if wanted in known:
        return 3
    # scaled_dot_product_attention has many kernels: _scaled_dot_product_flash_attention_for_cpu
    parts = set(shown.strip("_").split("_"))
    if len(parts) > 2 and parts <= set(name.strip("_").split("_")):
        return 2
    return int(any(len(own) > 2 and (own in wanted or wanted in own) for own in known))


def span(case: Case, node: int | None) -> Span | None:
    """The program's own line of an operation."""
    if node is None:
        return None
    spans = case.places.node_spans(node)
    first = case.places.node_span(node)
    own = case.user_span(_stack(case, node)) if spans else None
    return own or first


def _stack(case: Case, node: int) -> int:
    event = case.graph.event(node)
    if event is None:
        return 0
    return event.stack or case.places.recording.first_stacks.get(event.site, 0)


def shown(case: Case, node: int | None) -> str:
    """An operation, quoted: `cdist`."""
    event = case.graph.event(node) if node is not None else None
    return f"`{display_name(event.op)}`" if event is not None else "an operation"


def dtype(case: Case, node: int) -> str:
    """The dtype of a value: "float32"; empty if it was not seen."""
    held = case.graph.event(node) or case.graph.source(node)
    return str(held.dtype).removeprefix("torch.") if held is not None and held.dtype else ""


def maker_of_dtype(case: Case, node: int, wanted: str) -> int:
    """Where values got their dtype: back to the operation whose inputs have another one."""
    seen: set[int] = set()
    while node not in seen:
        seen.add(node)
        behind = [n for n in case.graph.inputs(node) if dtype(case, n) == wanted]
        if not behind:
            break
        node = behind[0]
    return node
