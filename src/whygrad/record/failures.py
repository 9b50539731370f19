"""What torch's own words say a failed call was about, and which of its tensors."""

from __future__ import annotations

import re
from types import FrameType
from typing import Any

import torch

from whygrad.record.ops import Role

INFERENCE = "nference tensor"

_REFUSED_WRITE = re.compile(
    r"leaf Variable that requires grad (?:is being|has been) used in an in-place operation"
    r"|is a view and (?:is being|its base or another view of its base has been) modified inplace"
    r"|view (?:was|which was) created in \w+ mode"
    r"|Can't detach views in-place"
    r"|refers? to a single memory location"
    r"|cannot resize variables that require grad"
)
_OTHER_WROTE = "its base or another view of its base has been modified"


def is_refused_write(text: str) -> bool:
    """Whether torch refuses an in-place write, or a view because of an earlier one."""
    return bool(_REFUSED_WRITE.search(text))


def refused(text: str, args: Any, kwargs: Any) -> list[Any]:
    """The tensor that may not be written to (or used, if the write came before)."""
    found = tensors(args)
    if kwargs:
        given = [kwargs.get(name) for name in ("out", "tensor", "input", "self")]
        found = tensors(kwargs.get("out")) or found or tensors(given)
    if _OTHER_WROTE in text:
        return [tensor for tensor in found if tensor._is_view()]
    return found[:1]


def roots_of(role: Role, args: Any, kwargs: Any) -> list[Any]:
    """The tensors that a backward() or grad() starts from."""
    if args:
        return [args[0]] if type(args[0]) is torch.Tensor else tensors(args[0])
    kwargs = kwargs or {}
    name = "outputs" if role is Role.GRAD else "tensors" if "tensors" in kwargs else "self"
    return tensors(kwargs.get(name))


# Whose frame it is tells what was called, and its variables on what.
_BACKWARD_CODES: dict[Any, tuple[Role, str]] = {
    torch.Tensor.backward.__code__: (Role.BACKWARD, "self"),
    torch.autograd.backward.__code__: (Role.BACKWARD, "tensors"),
    torch.autograd.grad.__code__: (Role.GRAD, "outputs"),
}


def backward_in(frame: FrameType) -> tuple[Role | None, list[Any]]:
    """If a frame is torch's own, of a backward() or grad(): that, and what it started from."""
    role, name = _BACKWARD_CODES.get(frame.f_code, (None, ""))
    return role, tensors(frame.f_locals.get(name)) if role is not None else []


def inner_roots(error: BaseException) -> list[Any]:
    """What the backward() calls started from that an error passed through."""
    found: dict[int, Any] = {}
    trace = error.__traceback__
    while trace is not None:
        found.update({id(root): root for root in backward_in(trace.tb_frame)[1]})
        trace = trace.tb_next
    return list(found.values())


def tensors(value: Any) -> list[Any]:
    """The tensors in an argument that may be one tensor or nested sequences of them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors(item)]
    return []


def inference_tensors(args: Any, kwargs: Any) -> list[Any]:
    return [t for t in tensors([args, kwargs or {}]) if t.is_inference()]
