"""Optimizers, schedulers, and what is done with a model between steps."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler import record_function
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.overrides import TorchFunctionMode


def _model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def _steps(model: nn.Module, *optimizers: Any, count: int = 3) -> list[Any]:
    seen: list[Any] = []
    for _ in range(count):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = model(torch.randn(4, 3)).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        seen.append(loss.detach())
    state = [value for o in optimizers for value in o.state_dict()["state"].values()]
    return [seen, [p.detach().clone() for p in model.parameters()], copy.deepcopy(state)]


def usual_optimizers() -> Any:
    seen: list[Any] = []
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
        lambda p: torch.optim.Adam(p, lr=0.01, foreach=False, amsgrad=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
        lambda p: torch.optim.Adagrad(p, lr=0.01),
        lambda p: torch.optim.NAdam([{"params": list(p), "lr": 0.02}]),
    ):
        model = _model()
        seen.append(_steps(model, make(model.parameters())))
    return seen


def two_optimizers_over_one_model() -> Any:
    model = _model()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.Adam(model[2].parameters(), lr=0.1)
    return _steps(model, first, second)


def lbfgs_with_a_closure() -> Any:
    model = _model()
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe"
    )
    inputs = torch.randn(4, 3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        return loss

    return [optimizer.step(closure), optimizer.step(closure), *model.parameters()]


class _SignDescent(torch.optim.Optimizer):
    """Written by hand; annotates its own parts and uses a mode of its own meanwhile."""

    def __init__(self, params: Any, lr: float, calls: list[str]) -> None:
        super().__init__(params, {"lr": lr})
        self.calls = calls

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        with _Noting(self.calls):
            with record_function("inner"):
                for group in self.param_groups:
                    for parameter in group["params"]:
                        if parameter.grad is not None:
                            parameter.sub_(parameter.grad.sign(), alpha=group["lr"])
            torch.ones(1).add(1)
        torch.ones(1).mul(1)


class _Noting(TorchFunctionMode):
    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def custom_optimizer() -> Any:
    model = _model()
    calls: list[str] = []
    trained = _steps(model, _SignDescent(model.parameters(), 0.01, calls))
    torch.ones(1).sub(1)  # after the step, its mode sees nothing any more
    return [trained, calls, torch._C._len_torch_function_stack() <= 1]


class _Failing(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        raise ValueError("no step today")


def step_that_raises() -> Any:
    model = _model()
    seen: list[Any] = []
    for kind in (_Failing, torch.optim.SGD):
        optimizer = kind(model.parameters(), lr=0.1)
        try:
            seen.append(_steps(model, optimizer))
        except ValueError as error:
            seen.append(str(error))
    return [seen, *[p.grad for p in model.parameters()]]


def optimizer_hooks() -> Any:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    log: list[Any] = []
    optimizer.register_step_pre_hook(lambda opt, args, kwargs: log.append(("pre", len(args))))
    optimizer.register_step_post_hook(
        lambda opt, args, kwargs: log.append(opt.param_groups[0]["params"][0].detach().clone())
    )
    optimizer.register_state_dict_pre_hook(lambda opt: log.append("saved"))
    return [_steps(model, optimizer), log]


def schedulers() -> Any:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    step = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    one_cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=9)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    step.step()  # before the optimizer: torch warns
    rates = []
    for _ in range(3):
        loss = model(torch.ones(1, 3)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step.step()
        one_cycle.step()
        plateau.step(loss.item())
        rates.append(optimizer.param_groups[0]["lr"])
    return [rates, step.state_dict(), *model.parameters()]


def mixed_precision() -> Any:
    model = _model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    seen: list[Any] = []
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(torch.randn(4, 3))
            loss = out.float().square().mean()
        scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        seen += [out.dtype, loss.detach(), norm, scaler.get_scale()]
    return [seen, *model.parameters()]


def gradient_accumulation_and_clipping() -> Any:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[Any] = []
    for _ in range(2):
        for _ in range(3):
            (model(torch.randn(2, 3)).square().mean() / 3).backward()
        seen.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        seen += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    flat = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(flat * 0.5, model.parameters())
    return [seen, flat, *model.parameters()]


def averaged_copied_and_saved() -> Any:
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    twin = copy.deepcopy(model)
    _steps(model, optimizer)
    average.update_parameters(model)
    twin.load_state_dict(model.state_dict())
    assigned = _model()
    assigned.load_state_dict(model.state_dict(), assign=True)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    optimizer.load_state_dict(saved["optimizer"])
    whole = io.BytesIO()
    torch.save(model, whole)
    whole.seek(0)
    loaded = torch.load(whole, weights_only=False)
    pickled = pickle.loads(pickle.dumps([model, torch.ones(2, requires_grad=True), optimizer]))
    shared = copy.copy(model)
    try:
        copy.deepcopy(model(torch.ones(1, 3)))
    except RuntimeError as error:
        refused = str(error)
    return [
        [
            list(m.state_dict().values())
            for m in (average, twin, assigned, loaded, pickled[0], shared)
        ],
        saved,
        pickled[1],
        refused,
        _steps(model, optimizer),
        _steps(pickled[0], torch.optim.SGD(pickled[0].parameters(), lr=0.1)),
    ]


def conversions_that_swap_tensors() -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    unused = nn.Linear(2, 2)
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        optimizer = torch.optim.SGD([*model.parameters(), *unused.parameters()], lr=0.1)
        trained = _steps(model, optimizer)
        optimizer.zero_grad()
        model.to(torch.float64)
        unused.double()  # never had a gradient
        out = model(torch.randn(4, 3, dtype=torch.float64)).sum()
        out.backward()
        optimizer.step()
        model.load_state_dict(model.state_dict())
        model.float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    one, other = torch.ones(2) * 1, torch.zeros(3) * 1
    torch.utils.swap_tensors(one, other)
    return [trained, out, one, other, *model.parameters(), *unused.parameters()]


def conversions_in_place() -> Any:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    _steps(model, optimizer)
    model.double().float().to(torch.float64)
    out = model(torch.ones(2, 3, dtype=torch.float64)).sum()
    out.backward()
    model.requires_grad_(False)
    frozen = model(torch.ones(2, 3, dtype=torch.float64))
    return [out, frozen.requires_grad, *[p.grad for p in model.parameters()]]
