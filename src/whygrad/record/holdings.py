"""The parameters that a failing call was about: those of its optimizer, or those it was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from whygrad.record import failures, torch_api
from whygrad.record.events import Holding
from whygrad.record.ledger import parameters_of
from whygrad.record.recorder import Recorder

_MAX_HELD = 4_000


def held(recorder: Recorder, values: Mapping[str, Any]) -> list[Holding]:
    """What one of torch's functions works on, by the names of its arguments."""
    optimizers = [v for v in values.values() if isinstance(v, torch.optim.Optimizer)]
    tensors = [t for optimizer in optimizers[:1] for t in parameters_of(optimizer)]
    group, parameters = values.get("param_group"), values.get("parameters")
    if isinstance(group, dict):  # about to be added to the optimizer
        tensors += failures.tensors(group.get("params"))
    if not tensors and isinstance(parameters, (list, tuple)):
        tensors = list(parameters)
    tensors = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    with torch_api.without_torch_function():  # a look at `.grad` of ours is none of the program's
        return [_holding(recorder, tensor) for tensor in tensors[:_MAX_HELD]]


def _holding(recorder: Recorder, tensor: Any) -> Holding:
    node = recorder.node_of(tensor)
    gradient = tensor.grad if tensor.is_leaf else None
    return Holding(
        node=recorder.source(tensor, None) if node is None else node,
        dtype=str(tensor.dtype).removeprefix("torch."),
        gradient="" if gradient is None else str(gradient.layout).removeprefix("torch."),
    )
