"""Compiled code runs as it does unwatched: same graphs, breaks and recompilations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from invisible_helpers import faults, observe
from torch import nn
from torch._dynamo.utils import counters
from torch.overrides import TorchFunctionMode

import whygrad
from whygrad.record import torch_api

compiled_graphs: list[Any] = []


def _backend(graph: Any, inputs: Any) -> Any:
    compiled_graphs.append(graph)
    return graph.forward


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    compiled_graphs.clear()
    yield
    torch.compiler.reset()


def train() -> Any:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    compiled = torch.compile(model, backend=_backend)

    @torch.compile(backend=_backend, fullgraph=True)
    def loss_of(out: torch.Tensor) -> torch.Tensor:
        return out.square().mean()

    model[0].compile(backend=_backend)
    loss = loss_of(compiled(torch.ones(3, 2)))
    loss.backward()
    return [loss, *[p.grad for p in model.parameters()]]


def breaks_and_recompiles() -> Any:
    @torch.compile(backend=_backend)
    def scaled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = x * weight
        if out.sum() > 0:
            out = out * 2
        return out

    weight = torch.ones(2, requires_grad=True)
    for rows in (1, 2, 3):
        scaled(torch.ones(rows, 2), weight).sum().backward()
    return weight.grad


def attention() -> Any:
    layer = nn.TransformerEncoderLayer(4, 1, dim_feedforward=4, batch_first=True).eval()
    with torch.no_grad():
        return torch.compile(layer, backend=_backend)(torch.ones(1, 2, 4))


def whole_step() -> Any:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend=_backend)
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    return [step(torch.ones(1, 2)) for _ in range(2)]


def refused() -> Any:
    @torch.compile(backend=_backend, fullgraph=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = x.sum()
        loss.backward()
        return loss

    return step(torch.ones(2, requires_grad=True))


class Passing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def under_a_mode() -> Any:
    sines = torch.compile(lambda x: x.sin().sum(), backend=_backend)
    with Passing():
        first = sines(torch.ones(2))
    return first, sines(torch.ones(2))


def nested_in_threads() -> Any:
    @torch.compile(backend=_backend)
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    @torch.compiler.disable
    def aside(x: torch.Tensor) -> torch.Tensor:
        return x.exp() + 1

    outer = torch.compile(lambda x: aside(inner(x)).sum(), backend=_backend)
    found: list[Any] = []

    def work() -> None:
        x = torch.ones(3, requires_grad=True)
        outer(x).backward()
        found.append(x.grad)

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    work()
    return found


@pytest.mark.parametrize(
    "program",
    [
        train,
        breaks_and_recompiles,
        attention,
        whole_step,
        refused,
        under_a_mode,
        nested_in_threads,
    ],
    ids=lambda program: program.__name__,
)
def test_what_is_compiled_and_how_is_the_same(program: Callable[[], Any]) -> None:
    observe(program, watched=False)  # torch imports parts of itself on first use, and warns
    seen = []
    for watched in (False, True):
        torch.compiler.reset()
        compiled_graphs.clear()
        counters.clear()
        observation = observe(program, watched=watched)
        assert faults(observation) == []
        counts = {kind: sum(counters[kind].values()) for kind in ("graph_break", "frames", "stats")}
        code = [str(graph.graph) for graph in compiled_graphs]
        seen.append((observation, counts, code))
    assert seen[0] == seen[1]
    assert seen[0][1]["frames"] > 0 or program is refused
    assert bool(seen[0][0].exception) is (program is refused)


def test_what_was_compiled_before_is_not_compiled_again() -> None:
    weight = torch.ones(2, requires_grad=True)
    compiled = torch.compile(lambda x: (x * weight).sum(), backend=_backend)
    compiled(torch.ones(2))
    assert len(compiled_graphs) == 1
    with whygrad.watch(quiet=True):
        compiled(torch.ones(2)).backward()
    assert len(compiled_graphs) == 1
    assert weight.grad is not None


def test_gradients_are_followed_through_a_region() -> None:
    model = nn.Linear(2, 1)
    compiled = torch.compile(model, backend=_backend)
    with whygrad.watch(quiet=True) as watch, pytest.raises(RuntimeError, match="does not require"):
        compiled(torch.ones(1, 2)).detach().sum().backward()
    (finding,) = watch.findings
    assert finding.code == "detach-call"
    assert [name.rpartition(".")[2] for name in finding.parameters] == ["weight", "bias"]


def _cut() -> None:
    weight = torch.ones(2, requires_grad=True)
    torch.compile(lambda x: (x * weight).detach().sum(), backend=_backend)(torch.ones(2)).backward()


def test_a_cut_inside_is_told_at_the_call_and_seen_when_run_eagerly() -> None:
    with whygrad.watch(quiet=True) as watch, pytest.raises(RuntimeError, match="does not require"):
        _cut()
    assert [finding.code for finding in watch.findings] == ["compile-related"]
    assert "--eager" in watch.findings[0].fix.title
    compiled_graphs.clear()
    with (
        whygrad.watch(quiet=True, eager=True) as eager,
        pytest.raises(RuntimeError, match="does not require"),
    ):
        _cut()
    assert [finding.code for finding in eager.findings] == ["detach-call"]
    assert compiled_graphs == []


def test_the_mode_is_back_after_a_region_however_it_ends() -> None:
    def fail(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    with whygrad.watch(quiet=True) as watch:
        mode = torch_api.top_mode()
        with Passing():
            with pytest.raises(ValueError, match="no"):
                torch.compile(fail, backend=_backend)(torch.ones(2))
            torch.compile(torch.sin, backend=_backend)(torch.ones(2))
            assert isinstance(torch_api.top_mode(), Passing)
        assert torch_api.top_mode() is mode
    assert mode is not None
    assert not watch.session.notes


def test_training_inside_of_a_region_is_not_taken_for_none() -> None:
    observation = observe(whole_step, watched=True)
    assert observation.findings == []
    assert any("--eager" in note for note in observation.notes)
