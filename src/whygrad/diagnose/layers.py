"""Layers of torch's that a transform cannot run as they are."""

from __future__ import annotations

import ast

from whygrad.diagnose import complaints, transformed
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.record.events import LayerRun
from whygrad.session import Finding, Fix
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at


def spoken(layer: LayerRun) -> str:
    """The layer's class, and its name in the model if it has one."""
    return f"{layer.type} `{layer.name}`" if layer.name else layer.type


def keeps_statistics(layer: LayerRun) -> bool:
    return "BatchNorm" in layer.type or "InstanceNorm" in layer.type


def statistics(case: Case, found: Said, layer: LayerRun) -> Finding:
    """A layer that writes its running statistics: where it is made, or else where it is called."""
    called = case.user_span(layer.stack)
    made = _made(case, layer)
    place = made or (called if layer.direct else None) or called or found.where
    other = None if place is made else _first_seen(case, layer)
    transform = found.words["transform"]
    groups = (
        "use a norm without running statistics: `GroupNorm`, or "
        f"`{layer.type}(..., track_running_stats=False)`"
    )
    return complaints.finding(
        case,
        found,
        where=place,
        title=f"{spoken(layer)} updates its running statistics inside `{transform}`",
        label="`running_mean` and `running_var` would be written for each sample",
        why=f"in train mode a {layer.type} writes `running_mean`, `running_var` and "
        "`num_batches_tracked` in place. These belong to the model, not to the samples or "
        f"inputs that `{transform}` works on, and torch.func cannot write to what comes from "
        "outside.",
        fix=Fix(
            groups,
            deliberate="to keep the statistics as they are, call `model.eval()` before; "
            "`torch.func.replace_all_batch_norm_modules_(model)` takes them out of a model that "
            "you cannot change.",
        ),
        related=transformed.related(other, place, "it is made here"),
    )


def _first_seen(case: Case, layer: LayerRun) -> Span | None:
    return case.places.node_span(layer.node) if layer.node is not None else None


def _made(case: Case, layer: LayerRun) -> Span | None:
    """The program's own line that names the layer's class; no helper that makes any norm."""
    if layer.node is None:
        return None
    for span in case.places.node_spans(layer.node):
        node = expression_at(span)
        func = node.func if isinstance(node, ast.Call) else None
        name = getattr(func, "attr", None) or getattr(func, "id", None)
        if name == layer.type and not is_library(span.file):
            return span
    return None
