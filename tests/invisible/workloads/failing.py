"""Calls that raise, and programs that catch it and go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn


def _outcome(call: Callable[[], Any]) -> Any:
    """The result, or all that an exception says of itself."""
    try:
        return call()
    except Exception as error:
        chain = [type(error.__context__).__name__, type(error.__cause__).__name__]
        return [type(error).__name__, str(error), repr(error.args), chain]


def _frames(call: Callable[[], Any]) -> list[str]:
    try:
        call()
    except Exception:
        return traceback.format_exc().splitlines()
    return []


def backward_that_raises() -> Any:
    x = torch.ones(3, requires_grad=True)
    model = nn.Linear(3, 1)
    cut = model(x).detach().sum()
    twice = (x * x).sum()
    twice.backward()
    saved = x.exp()
    stale = saved.sum()
    with torch.no_grad():
        saved.add_(1)
    calls = [
        lambda: cut.backward(),
        lambda: torch.autograd.backward(cut),
        lambda: torch.autograd.grad(cut, list(model.parameters())),
        lambda: torch.autograd.grad(model(x).sum(), cut),
        lambda: torch.autograd.grad(model(x).sum(), torch.ones(1, requires_grad=True)),
        lambda: twice.backward(),
        lambda: stale.backward(),
        lambda: model(x).expand(2).backward(),
        lambda: (x * 2).backward(torch.ones(5)),
    ]
    healthy = model(x).sum()
    healthy.backward()
    return [[_outcome(call) for call in calls], x.grad, *[p.grad for p in model.parameters()]]


def operations_that_raise() -> Any:
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    calls: list[Callable[[], Any]] = [
        lambda: torch.mm(torch.ones(2, 3), torch.ones(2, 3)),
        lambda: x.add_(1),
        lambda: x[0].mul_(2),
        lambda: torch.add("a", x),
        lambda: x + "a",
        lambda: x + np.ones(4),
        lambda: x.view(7),
        lambda: x.numpy(),
        lambda: y.requires_grad_(False),
        lambda: setattr(y, "requires_grad", True),
        lambda: setattr(x, "grad", torch.ones(7)),
        lambda: setattr(x, "data", "no"),
        lambda: x.no_such_thing,
        lambda: torch.ones(2).item(),
        lambda: bool(torch.ones(2)),
        lambda: torch.equal(x, 5),
        lambda: torch.stack([]),
        lambda: torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([5, 5])),
        lambda: nn.Linear(2, 2)(torch.ones(3)),
        lambda: torch.optim.SGD([y], lr=0.1),
        lambda: torch.optim.SGD([], lr=0.1),
        lambda: nn.Parameter("a"),
        lambda: torch.from_numpy(np.array(["a"])),
        lambda: torch.distributions.Normal(0.0, -1.0),
        lambda: x.register_hook(5),
        lambda: torch.tensor([[1], [1, 2]]),
        lambda: x.size(9),
        lambda: torch.ones(3).H,
        lambda: torch.utils.swap_tensors(x, 5),
        lambda: torch.profiler.record_function(5).__enter__(),
    ]
    return [_outcome(call) for call in calls]


class _Own(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


def exceptions_of_the_program_inside_torch() -> Any:
    x = torch.ones(2, requires_grad=True)
    y = (x * 2).sum()

    def hook(gradient: torch.Tensor) -> None:
        raise _Own(7, "from a hook")

    y.register_hook(hook)
    seen = [_outcome(y.backward)]
    try:
        raise ValueError("outer")
    except ValueError:
        seen.append(_outcome(lambda: torch.mm(x, x)))

    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise _Own(8, getattr(func, "__name__", ""))

    refusing = torch.ones(1).as_subclass(Refusing)
    for call in (
        lambda: refusing * 2,
        lambda: torch.relu(refusing),
        lambda: refusing.requires_grad,
    ):
        seen.append(_outcome(call))
    return seen


def tracebacks_of_calls_in_c() -> Any:
    x = torch.ones(3, requires_grad=True)
    return [
        _frames(lambda: torch.mm(x, x)),
        _frames(lambda: x.add_(1)),
        _frames(lambda: x @ torch.ones(9)),
        _frames(lambda: nn.Linear(2, 2)(x)),
        _frames(lambda: x.H),
        _frames(lambda: x.size(9)),
        _frames(lambda: torch.from_numpy(5)),
        _frames(lambda: nn.Parameter("a")),
        _frames(lambda: torch.optim.SGD([x * 2], lr=1.0)),
        _frames(lambda: torch.autograd.Variable("a")),
    ]
