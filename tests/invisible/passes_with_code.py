"""Programs whose own code runs inside of backward(), with what can be told of each run."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from whygrad.commands.tracebacks import clean_traceback


def _leaf() -> torch.Tensor:
    return torch.tensor([0.3, -0.7, 1.1], requires_grad=True)


def _raised(call: Callable[[], Any]) -> list[str]:
    """The error of a call, and the places that its traceback shows."""
    try:
        call()
    except Exception as error:
        trace = traceback.extract_tb(clean_traceback(error.__traceback__))
        places = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in trace]
        return [f"{type(error).__name__}: {error}", *places]
    return ["nothing"]


def hooks() -> Any:
    x, log = _leaf(), []
    layer = nn.Linear(3, 3)
    layer.register_full_backward_hook(lambda module, given, got: log.append(got[0] * 2))
    x.register_post_accumulate_grad_hook(lambda leaf: log.append(leaf.grad.clone()))
    y = layer(x).tanh()
    y.register_hook(lambda gradient: gradient.clone().mul_(0.5))
    y.grad_fn.register_hook(lambda given, got: log.append(given[0]))
    y.square().sum().backward()
    return x.grad, layer.weight.grad, log


def a_callback_at_the_end() -> Any:
    x, log = _leaf(), []
    y = x * 2

    def hook(gradient: torch.Tensor) -> None:
        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: log.append(x.grad * 2))

    y.register_hook(hook)
    y.exp().sum().backward()
    return x.grad, log


def a_hook_that_raises() -> Any:
    x = _leaf()
    y = x * 2

    def inner(gradient: torch.Tensor) -> None:
        gradient.view(7)

    def hook(gradient: torch.Tensor) -> None:
        inner(gradient * 2)

    handle = y.register_hook(hook)
    first = _raised(lambda: y.sum().backward())
    second = _raised(lambda: torch.autograd.backward(y.sum()))
    third = _raised(lambda: torch.autograd.grad(y.sum(), x))
    handle.remove()
    y.sum().backward()
    return first, second, third, x.grad


def a_hook_that_raises_something_else() -> Any:
    x = _leaf()

    def hook(gradient: torch.Tensor) -> None:
        raise KeyError("no such thing")

    def hook_from_another(gradient: torch.Tensor) -> None:
        try:
            hook(gradient)
        except KeyError as error:
            raise ValueError("worse") from error

    x.register_hook(hook)
    first = _raised(lambda: (x * 2).sum().backward())
    y = x * 2
    y.register_hook(hook_from_another)
    return first, _raised(lambda: y.sum().backward())


def a_gradient_inside_a_hook() -> Any:
    x, other, log = _leaf(), _leaf(), []

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            inner = (other * gradient).exp().sum()
        (found,) = torch.autograd.grad(inner, other)
        log.append(found)
        return gradient + found

    y = x * 2
    y.register_hook(hook)
    y.square().sum().backward()
    return x.grad, other.grad, log


def backward_inside_a_hook() -> Any:
    x, other = _leaf(), _leaf()

    def inner_hook(gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone().add_(1)

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            inner = other * gradient
            inner.register_hook(inner_hook)
            inner.exp().sum().backward()
        return gradient * other.grad

    y = x * 2
    y.register_hook(hook)
    y.square().sum().backward()
    return x.grad, other.grad


def a_failing_backward_inside_a_hook() -> Any:
    x, log = _leaf(), []

    def fail() -> None:
        with torch.enable_grad():
            broken = x.exp()
            broken.add_(1)
            broken.sum().backward()

    def hook(gradient: torch.Tensor) -> None:
        log.append(_raised(fail))

    def failing_hook(gradient: torch.Tensor) -> None:
        fail()

    y = x * 2
    y.register_hook(hook)
    y.sum().backward()
    z = x * 2
    z.register_hook(failing_hook)
    return log, _raised(lambda: z.sum().backward()), x.grad


class Recomputed(torch.autograd.Function):
    """Goes forward and back again in its backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, fails: bool) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.fails = fails
        return x.exp().sin()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            out = again.exp().sin()
        if ctx.fails:
            out = out.detach()
        torch.autograd.backward(out, gradient)
        return again.grad, None


def backward_inside_a_custom_function() -> Any:
    x = _leaf()
    Recomputed.apply(x, False).square().sum().backward()
    failed = _raised(lambda: Recomputed.apply(x, True).sum().backward())
    return x.grad, failed


def _block(x: torch.Tensor) -> torch.Tensor:
    return (x * 1.5).tanh().exp()


def checkpoints(reentrant: bool) -> Any:
    x, log = _leaf(), []
    inner = checkpoint(_block, x, use_reentrant=reentrant)
    inner.register_hook(lambda gradient: log.append(gradient.clone()))
    checkpoint(_block, inner, use_reentrant=reentrant).sum().backward()
    return x.grad, log


def a_reentrant_checkpoint() -> Any:
    return checkpoints(True)


def a_checkpoint() -> Any:
    return checkpoints(False)


def a_checkpoint_that_fails_the_second_time() -> Any:
    x, calls = _leaf(), []

    def block(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("not again")
        return x.exp()

    found = []
    for reentrant in (True, False):
        calls.clear()
        out = checkpoint(block, x, use_reentrant=reentrant)
        found.append(_raised(out.sum().backward))
    return found, x.grad


def backward_in_a_thread() -> Any:
    x, log = _leaf(), []

    def work() -> None:
        y = x * 2
        y.register_hook(lambda gradient: gradient.clone().mul_(3))
        y.exp().sum().backward()
        z = x * 2
        z.register_hook(lambda gradient: gradient.view(7))
        log.append(_raised(lambda: z.sum().backward()))
        log.append(torch._C._len_torch_function_stack() - depth[0])

    def at_depth() -> None:
        depth.append(torch._C._len_torch_function_stack())
        work()

    depth: list[int] = []
    thread = threading.Thread(target=at_depth)
    thread.start()
    thread.join()
    return x.grad, log


def a_thread_inside_a_hook() -> Any:
    x, other = _leaf(), _leaf()

    def hook(gradient: torch.Tensor) -> None:
        thread = threading.Thread(target=lambda: (other * 2).exp().sum().backward())
        thread.start()
        thread.join()

    y = x * 2
    y.register_hook(hook)
    y.sum().backward()
    return x.grad, other.grad


def passes_that_never_reach_the_engine() -> Any:
    x = _leaf()
    y = x * 2
    y.register_hook(lambda gradient: gradient * 2)
    failed = [
        _raised(y.backward),
        _raised(lambda: y.backward(torch.ones(7))),
        _raised(lambda: torch.autograd.grad(y, x)),
        _raised(lambda: torch.autograd.backward(torch.ones(()))),
        _raised(lambda: y.sum().backward(inputs=[])),
    ]
    y.sum().backward()
    return failed, x.grad


def a_closure_inside_a_step() -> Any:
    weight, log = nn.Parameter(torch.tensor([1.0, 2.0])), []
    optimizer = torch.optim.LBFGS([weight], max_iter=3)
    weight.register_hook(lambda gradient: log.append(gradient.clone().mul_(2)))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight - 3).square().sum()
        loss.backward()
        return loss

    return optimizer.step(closure), weight, log


def a_graph_of_the_gradient() -> Any:
    x = _leaf()
    y = x.exp()
    y.register_hook(lambda gradient: gradient * x)
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    first.sum().backward()
    return x.grad, first


PROGRAMS: list[Callable[[], Any]] = [
    hooks,
    a_callback_at_the_end,
    a_hook_that_raises,
    a_hook_that_raises_something_else,
    a_gradient_inside_a_hook,
    backward_inside_a_hook,
    a_failing_backward_inside_a_hook,
    backward_inside_a_custom_function,
    a_reentrant_checkpoint,
    a_checkpoint,
    a_checkpoint_that_fails_the_second_time,
    backward_in_a_thread,
    a_thread_inside_a_hook,
    passes_that_never_reach_the_engine,
    a_closure_inside_a_step,
    a_graph_of_the_gradient,
]
