"""The transforms of torch.func and torch.autograd.functional that an error passed through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import CodeType, FrameType
from typing import Any

import torch

from whygrad.record.events import Given, LayerRun, Transform
from whygrad.record.frames import TORCH
from whygrad.record.recorder import Recorder

_MODULES = ("torch._functorch.", "torch.autograd.functional", "torch._vmap_internals")
_NAMES = frozenset(
    """
    vmap chunk_vmap grad grad_and_value vjp jvp jacrev jacfwd hessian linearize functionalize
    jacobian hvp vhp
    """.split()
)
_FUNCTIONS = ("func", "f", "function")  # what torch calls the function that it transforms
_RESULTS = (
    "output",
    "outputs",
    "primals_out",
    "out",
    "result_duals",
)  # and what it calls what that returned
_MAX_UNWRAPPED = 16

GivenOf = Callable[[Iterable[tuple[str, Any]]], list[Given]]


def transforms(recorder: Recorder, frames: list[FrameType], given: GivenOf) -> list[Transform]:
    """Outermost first. Frames are without whygrad's own, from the outside in."""
    found: list[Transform] = []
    caller: FrameType | None = None
    for frame in frames:
        if recorder.frames.kind(frame) < TORCH:
            caller = frame
            continue
        if not str(frame.f_globals.get("__name__", "")).startswith(_MODULES):
            continue
        name, values = _name(frame), frame.f_locals
        function = _own(recorder, next((values[n] for n in _FUNCTIONS if n in values), None))
        if name:
            found.append(Transform(name, recorder.frames.stack(caller)))
        if found and function is not None:
            found[-1].function = (function.co_filename, function.co_firstlineno)
            found[-1].function_name = function.co_name
        results = [(n, values[n]) for n in _RESULTS if n in values]
        if found and results:
            found[-1].results = given(results)
    return found


def _name(frame: FrameType) -> str:
    """The public name of the transform that a frame is the beginning of."""
    name = frame.f_code.co_qualname.partition(".")[0]
    return name if name in _NAMES else ""


def _own(recorder: Recorder, function: Any) -> CodeType | None:
    """The program's own code behind a callable."""
    for _ in range(_MAX_UNWRAPPED):
        if isinstance(function, partial):
            function = function.func
        elif isinstance(function, torch.nn.Module):
            function = type(function).forward
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            function = getattr(function, "__func__", function)
            break
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or recorder.frames.file_kind(code.co_filename) >= TORCH:
        return None
    return code


def layer(recorder: Recorder, frames: list[FrameType]) -> LayerRun | None:
    """The innermost module that was running, if it is one of torch's."""
    chain: list[torch.nn.Module] = []
    caller: FrameType | None = None
    before: FrameType | None = None
    stack, direct = 0, False
    for frame in frames:
        if recorder.frames.kind(frame) < TORCH:
            caller = frame
        value = frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
        if isinstance(value, torch.nn.Module) and not (chain and chain[-1] is value):
            chain.append(value)
            stack, direct = recorder.frames.stack(caller), before is caller
        before = frame
    code = getattr(getattr(type(chain[-1]), "forward", None), "__code__", None) if chain else None
    if code is None or recorder.frames.file_kind(code.co_filename) < TORCH:
        return None
    last = chain[-1]
    own = vars(last)  # a module that is still being made has none of these tables
    tables = (own.get("_parameters", {}), own.get("_buffers", {}))
    tensors = [tensor for table in tables for tensor in table.values() if tensor is not None]
    nodes = (recorder.node_of(tensor) for tensor in tensors)
    return LayerRun(
        name=_dotted(chain),
        type=type(last).__name__,
        stack=stack,
        direct=direct,
        node=next((node for node in nodes if node is not None), None),
    )


def _dotted(chain: list[torch.nn.Module]) -> str:
    """The name of the last module of a chain of calls, in the first one that holds it."""
    for outer in chain:
        for name, module in outer.named_modules():
            if module is chain[-1]:
                return str(name)
    return ""
