"""Collectives of torch.distributed: calls that no mode sees, and that autograd knows little of."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from whygrad.record.frames import TORCH
from whygrad.record.ops import COLLECTIVES
from whygrad.record.patches import CurrentMode, Patches, stand_in
from whygrad.record.recorder import Recorder

_MAX_TENSORS = 1024


def install(patches: Patches, recorder: Recorder, current: CurrentMode) -> None:
    """Only what takes part in gradients is recorded: training averages plain ones all the time."""
    if not torch.distributed.is_available():
        return
    import torch.distributed.distributed_c10d as home

    for name, (written, read) in COLLECTIVES.items():
        original = getattr(torch.distributed, name, None)
        if original is None:
            continue

        def after(
            args: tuple[Any, ...],
            kwargs: Any,
            result: Any,
            frame: FrameType,
            call: tuple[str, int, int] = (name, written, read),
        ) -> None:
            mode = current()
            if mode is None or mode.quiet or recorder.frames.kind(frame) >= TORCH:
                return
            name, written, read = call
            given = _tensors([*args, *kwargs.values()][read : read + 1])
            if not any(tensor.requires_grad for tensor in given):
                return
            for tensor in _tensors([*args, *kwargs.values()][written : written + 1]):
                sources = (tensor,) if written == read else (tensor, *given)
                recorder.flow(name, True, sources, None, tensor, frame, mode.switches)

        replacement = stand_in(recorder, original, after=after)
        for owner in (home, torch.distributed):
            if vars(owner).get(name) is original:
                patches.set(owner, name, replacement)


def _tensors(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        inner = value if isinstance(value, (list, tuple)) else [value]
        found += [tensor for tensor in inner if isinstance(tensor, torch.Tensor)]
    return found[:_MAX_TENSORS]
