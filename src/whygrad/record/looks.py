"""Looks at the values of gradients and parameters: one number for each, one transfer for all."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import torch

from whygrad.record import torch_api
from whygrad.record.accounts import GradientState, Range

_SMALL = 2048  # elements
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(slots=True)
class Truth:
    """What all looks at one parameter's gradient have shown."""

    looks: int = 0
    flowed: bool = False  # finite and not all zero, at some look
    norm: float | None = None  # largest absolute value at the latest look
    moved: bool | None = None  # a step has changed the parameter

    def saw(self, size: float) -> None:
        self.looks += 1
        self.norm = size
        self.flowed = self.flowed or (math.isfinite(size) and size > 0)

    @property
    def state(self) -> GradientState:
        if self.norm is None:
            return "none"
        if not math.isfinite(self.norm):
            return "non-finite"
        return "flows" if self.flowed else "zero"


_PLAIN = (torch.Tensor, torch.nn.Parameter)
_UNREADABLE = (RuntimeError, TypeError, NotImplementedError)


def numbers_in(tensor: Any) -> Any:
    """A tensor's numbers as a plain tensor; None if a look could run code or be noticed."""
    if type(tensor) not in _PLAIN or tensor.is_nested or not torch_api.may_compute():
        return None
    values = tensor.detach()
    if values.layout is torch.sparse_coo:
        values = values._values()
    elif values.layout is not torch.strided:
        return None
    return values if values.is_floating_point() or values.is_complex() else None


def size_of(gradient: Any) -> float | None:
    """The largest absolute value: NaN or infinite if any is, None where there is nothing."""
    values = None if gradient is None else numbers_in(gradient)
    if values is None:
        return None
    with contextlib.suppress(*_UNREADABLE):
        return float(torch.linalg.vector_norm(values, math.inf)) if values.numel() else 0.0
    return None


def sizes_of(gradients: list[Any]) -> list[float | None]:
    """The size of each gradient, in one transfer if possible."""
    values = [numbers_in(gradient) for gradient in gradients]
    device = values[0].device if values and values[0] is not None else None
    if any(v is None or v.device != device or not v.numel() for v in values):
        return [size_of(gradient) for gradient in gradients]
    with contextlib.suppress(*_UNREADABLE):
        norms = torch_api.largest_of_each(values)
        if any(norm.dtype != norms[0].dtype for norm in norms):
            norms = [norm.to(torch.float64) for norm in norms]
        return [float(size) for size in torch.stack(norms).tolist()]
    return [size_of(gradient) for gradient in gradients]


def range_of(tensor: Any) -> Range | None:
    """A tensor's lowest and highest value; None for what has none."""
    values = numbers_in(tensor)
    if values is None or not values.numel():
        return None
    with contextlib.suppress(*_UNREADABLE):
        low, high = torch.aminmax(torch.view_as_real(values) if values.is_complex() else values)
        return Range(float(low), float(high), int(values.numel()))
    return None


def seems_finite(gradient: Any) -> bool:
    """A quick look for NaN and infinity: the sum of all numbers has them too."""
    if type(gradient) is not torch.Tensor or gradient.requires_grad or gradient.is_nested:
        return True
    return not torch_api.may_compute() or math.isfinite(abs(gradient.sum().item()))


def is_all_zero(gradient: Any) -> bool:
    """Whether a gradient holds nothing but zeros, as far as that can be seen."""
    return size_of(gradient) == 0


def snapshot(tensor: Any) -> Any:
    """Something by which to tell later whether a tensor has changed: a copy of a small one.

    Of a large one, the sum of all elements, read as whole numbers, still on its device.
    """
    values = numbers_in(tensor)
    with contextlib.suppress(*_UNREADABLE):
        if values is not None:
            values = torch.view_as_real(values) if values.is_complex() else values
            if values.numel() <= _SMALL:
                return values.clone()
            kind = _BITS.get(values.element_size())
            return None if kind is None else values.view(kind).sum(dtype=torch.int64)
    return None


def has_changed(tensor: Any, before: Any) -> bool:
    """Whether a tensor is not what it was at the time of a snapshot. NaN is a change."""
    now = snapshot(tensor)
    return now is None or now.shape != before.shape or not bool(torch.equal(now, before))
