"""How programs run: threads, worker processes, compiled, scripted and traced code."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import torch.fx
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info


def _trained(seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, generator=generator).requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=0.1)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = (weight * torch.randn(3, generator=generator)).sum().square()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            losses.append(loss.clone())
    return [losses, weight.detach()]


def threads_side_by_side() -> Any:
    results: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: _trained(n)})) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ThreadPoolExecutor(2) as pool:
        pooled = list(pool.map(_trained, range(3)))
    return [[results[n] for n in range(4)], pooled, _trained(9)]


class _OddTarget:
    __module__ = 5  # type: ignore[assignment]

    def __init__(self, out: queue.Queue[Any]) -> None:
        self.out = out

    def __call__(self) -> None:
        self.out.put(torch.ones(2) * 2)


def thread_with_an_odd_target() -> Any:
    out: queue.Queue[Any] = queue.Queue()
    thread = threading.Thread(target=_OddTarget(out))
    thread.start()
    thread.join()
    return out.get_nowait()


class _Squares(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        return torch.tensor([index**2.0]).requires_grad_().detach(), torch.rand(1), info.id

    def __repr__(self) -> str:
        return "squares"


class _Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from (torch.full((2,), float(n)) * np.float64(0.5) for n in range(3))


def _worker_started(number: int) -> None:
    torch.manual_seed(number)
    np.random.seed(number)


def data_loader_workers() -> Any:
    model = nn.Linear(1, 1)
    seen: list[Any] = []
    loaders = [
        DataLoader(_Squares(), batch_size=2, num_workers=2, worker_init_fn=_worker_started),
        DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2, shuffle=True),
        DataLoader(_Stream(), batch_size=None, num_workers=1),
    ]
    for loader in loaders:
        for batch in loader:
            first = batch[0] if isinstance(batch, (list, tuple)) else batch
            loss = model(first.reshape(-1, 1)).sum()
            loss.backward()
            seen += [batch, loss.detach()]
    return [seen, *[p.grad for p in model.parameters()]]


def scripted_and_traced() -> Any:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with torch.autograd.profiler.record_function("label"):
            if bool(x.sum() > 0):
                return torch.nn.functional.relu(x * weight)
            return x

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.attention = nn.MultiheadAttention(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x)[0] + self.linear(x).view(x.size(0), -1).reshape(x.shape)

    scripted = torch.jit.script(function)
    weight = torch.ones(2, requires_grad=True)
    out = scripted(torch.ones(2), weight).sum()
    out.backward()
    net = Net()
    whole = torch.jit.script(net)
    traced = torch.jit.trace(net, torch.ones(3, 1, 2))
    flat = torch.jit.trace(lambda v: v.view(v.shape[0], -1).sum(1) * v.size(1), torch.ones(2, 3))
    through = whole(torch.ones(3, 1, 2)).sum() + traced(torch.ones(2, 1, 2)).sum()
    through.backward()
    graphs = [scripted.code, traced.code, flat.code]
    gradients = [p.grad for p in net.parameters()]
    return [out, weight.grad, through, gradients, flat(torch.ones(4, 5)), graphs]


def symbolic_tracing() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.scale = nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.cat([self.linear(x), x * self.scale], dim=1)
            return torch.nn.functional.softmax(y, dim=-1).sum() + y.shape[0]

    net = Net()
    traced = torch.fx.symbolic_trace(net)
    out = traced(torch.ones(3, 2))
    out.backward()
    try:
        torch.fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
    except torch.fx.proxy.TraceError as error:
        refused = str(error)
    return [str(traced.graph), out, refused, *[p.grad for p in net.parameters()]]


def symbolic_shapes() -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).reshape(x.shape[0] * 2, -1).sum() + x.shape[0]

    traced = make_fx(function, tracing_mode="symbolic")(torch.ones(4, 2))
    with FakeTensorMode():
        fake = nn.Linear(2, 3)(torch.ones(5, 2))
    return [traced.code, traced(torch.ones(6, 2)), tuple(fake.shape)]


def profiled() -> Any:
    x = torch.ones(3, requires_grad=True)
    with torch.profiler.profile() as profiler:
        with torch.profiler.record_function("forward"):
            y = (x * 2).sum()
        y.backward()
    names = [event.key for event in profiler.key_averages()]
    return [y, x.grad, "forward" in names, "aten::mul" in names]


def generated_code() -> Any:
    """Code without a module of its own still gets its warnings, once for each place."""
    namespace: dict[str, Any] = {"torch": torch, "__name__": "made_up"}
    text = "x = torch.ones(1, requires_grad=True)\nfor _ in range(2):\n    y = float(x * 2)\n"
    exec(compile(text, "generated.py", "exec"), namespace)
    odd: dict[str, Any] = {"torch": torch, "__name__": ["not", "a", "string"]}
    exec(compile("y = torch.ones(2) * 2", "odd.py", "exec"), odd)
    return [namespace["y"], odd["y"], list(namespace)]
