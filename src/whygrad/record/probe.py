"""Follows the gradient of one backward pass through autograd's graph, operation by operation.

Hooks are put on autograd's nodes just before the pass and taken away after it. They look at
gradients and at what was kept for backward, and change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from whygrad.record import adoption, torch_api
from whygrad.record.accounts import Range, Trace, TraceNode
from whygrad.record.looks import range_of, size_of
from whygrad.record.recorder import Recorder

_MAX_NODES = 50_000
_MAX_VALUES = 20_000

# Derivatives of these are sums, copies and products of finite numbers: where only the first
# operation that makes NaN or infinity is looked for, they need no look.
HARMLESS = frozenset(
    name + "Backward0"
    for name in """
    T Transpose Permute View UnsafeView Reshape Unsqueeze Squeeze Expand Select Slice Split
    SplitWithSizes Chunk Cat Stack Clone Alias Add Sub Sum Mean Neg Addmm Mm Bmm Baddbmm
    Convolution Embedding ToCopy Index Gather Repeat Narrow Unbind AsStrided Flatten Dropout
    NativeDropout Roll Flip ConstantPadNd Copy Contiguous Unfold MaskedFill Tril Triu Movedim
    """.split()
) | frozenset(["SqueezeBackward1", "SumBackward1", "MeanBackward1", "SubBackward1", "AddBackward1"])


class Walk:
    """The autograd graph behind some tensors, as it is just before a backward pass."""

    def __init__(self, roots: list[Any]) -> None:
        self.functions: list[Any] = []
        self.index: dict[Any, int] = {}
        self.leaves: list[tuple[int, Any]] = []  # index, tensor
        self.starts = tuple(self._meet(root.grad_fn) for root in roots if root.grad_fn is not None)
        done = 0
        while done < len(self.functions) < _MAX_NODES:
            for following, _ in getattr(self.functions[done], "next_functions", ()):
                if following is not None:
                    self._meet(following)
            done += 1
        self.complete = done == len(self.functions)

    def _meet(self, function: Any) -> int:
        known = self.index.get(function)
        if known is None:
            known = self.index[function] = len(self.functions)
            self.functions.append(function)
            # By the name of its type: a custom Function may have a `variable` of its own.
            if type(function).__name__ == "AccumulateGrad":
                self.leaves.append((known, function.variable))
        return known


class Probe:
    """The hooks of one pass, and what they saw."""

    def __init__(self, recorder: Recorder, walk: Walk, whole: bool) -> None:
        self.recorder = recorder
        self.walk = walk
        self.whole = whole
        self.nodes = [self._node(function) for function in walk.functions]
        for index, tensor in walk.leaves:
            self.nodes[index].leaf = recorder.node_of(tensor)
        self.values: dict[int, Range] = {}
        self._handles: list[Any] = []

    def _node(self, function: Any) -> TraceNode:
        # Through the type: a custom Function's context may have a `name` of its own.
        name = str(type(function).name(function)).removeprefix("torch::autograd::")
        index = self.walk.index
        feeds = tuple(
            -1 if following is None else index.get(following, -1)
            for following, _ in function.next_functions
        )
        made = adoption.event_of(self.recorder, torch_api.node_sequence(function))
        return TraceNode(made, name, None, (None,) * len(feeds), feeds)

    def install(self) -> None:
        for function, node in zip(self.walk.functions, self.nodes, strict=True):
            if node.function == "AccumulateGrad" or not node.feeds:
                continue
            if self.whole or node.function not in HARMLESS:
                self._handles.append(function.register_hook(self._hook(function, node)))

    def _hook(self, function: Any, node: TraceNode) -> Callable[[Any, Any], None]:
        def look(outgoing: Any, incoming: Any) -> None:
            try:
                with torch_api.without_torch_function(), torch.no_grad():
                    _measure(function, node, outgoing, incoming)
            except Exception as fault:
                self.recorder.fault(fault)

        return look

    def look_at_values(self) -> None:
        self.values = living_values(self.recorder)

    def finish(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def trace(self, number: int, step: int) -> Trace:
        leaves = [tensor for _, tensor in self.walk.leaves]
        trace = _trace(self.recorder, leaves, self.values, self.nodes, number, step)
        trace.roots, trace.whole = self.walk.starts, self.whole
        return trace


def aftermath(recorder: Recorder, leaves: list[Any], number: int, step: int) -> Trace:
    """What can still be known when a pass has ended before anything was seen to be off."""
    return _trace(recorder, leaves, living_values(recorder), [], number, step)


def _trace(
    recorder: Recorder,
    leaves: list[Any],
    values: dict[int, Range],
    nodes: list[TraceNode],
    number: int,
    step: int,
) -> Trace:
    parameters = {}
    for tensor in leaves:
        known = recorder.node_of(tensor)
        found = range_of(tensor) if known is not None else None
        if known is not None and found is not None:
            parameters[known] = found
    return Trace(
        nodes=nodes,
        roots=(),
        number=number,
        step=step,
        whole=False,
        values={n: r for n, r in values.items() if n >= 0 and n not in parameters},
        parameters=parameters,
        data={n: r for n, r in values.items() if n < 0 and n not in parameters},
    )


def living_values(recorder: Recorder) -> dict[int, Range]:
    """Node -> the numbers in it, for every tensor that the record knows and that is alive."""
    tensors, base = recorder.tensors, 2 * recorder.base
    found = {}
    for key, code in list(tensors.codes.items())[-_MAX_VALUES:]:
        tensor = torch_api.alive(tensors.refs[key]) if code < 0 or code >= base else None
        values = range_of(tensor) if tensor is not None else None
        if values is not None:
            found[code >> 1] = values
    return found


def _measure(function: Any, node: TraceNode, outgoing: Any, incoming: Any) -> None:
    arrived = [size for gradient in incoming if (size := size_of(gradient)) is not None]
    node.incoming = largest(arrived) if arrived else None
    sent = tuple(size_of(gradient) for gradient in outgoing)
    node.outgoing = sent[: len(node.feeds)] + (None,) * (len(node.feeds) - len(sent))
    sizes = [size for size in sent if size is not None]
    dies = bool(node.incoming) and bool(sizes) and not any(sizes)
    if dies or not all(math.isfinite(size) for size in (*arrived, *sizes)):
        node.saved = _saved(function)


def _saved(function: Any) -> dict[str, Range]:
    found: dict[str, Range] = {}
    for name in torch_api.saved_names(function):
        for part in torch_api.raw_saved(function, name):
            values = range_of(part.data) if part.data is not None else None
            if values is not None:
                found.setdefault(name, values)
    return found


def largest(sizes: list[float]) -> float:
    """The largest of some sizes; NaN if there is any."""
    return math.nan if any(math.isnan(size) for size in sizes) else max(sizes)
