"""Compiled code runs eagerly while it is watched, and is compiled again afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from invisible_helpers import faults, observe
from torch import nn

import whygrad

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


def _train() -> Any:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    compiled = torch.compile(model, backend=_backend)

    @torch.compile(backend=_backend, fullgraph=True)
    def loss_of(out: torch.Tensor) -> torch.Tensor:
        return out.square().mean()

    model[0].compile(backend=_backend)
    loss = loss_of(compiled(torch.ones(3, 2)))
    loss.backward()
    return [loss, *[p.grad for p in model.parameters()]]


def test_values_are_the_same_and_nothing_is_compiled() -> None:
    bare = observe(_train, watched=False)
    assert len(compiled_graphs) == 2
    compiled_graphs.clear()
    torch.compiler.reset()
    watched = observe(_train, watched=True)
    assert compiled_graphs == []
    assert watched == bare
    assert bare.exception == ""
    assert faults(watched) == []
    observe(_train, watched=False)
    assert len(compiled_graphs) == 2


def test_what_was_compiled_before_is_watched_too() -> None:
    weight = torch.ones(2, requires_grad=True)
    compiled = torch.compile(lambda x: (x * weight).detach().sum(), backend=_backend)
    compiled(torch.ones(2))
    before = len(compiled_graphs)
    with whygrad.watch(quiet=True) as watch, pytest.raises(RuntimeError, match="does not require"):
        compiled(torch.ones(3)[:2]).backward()
    assert len(compiled_graphs) == before
    assert [finding.code for finding in watch.findings] == ["detach-call"]
    compiled(torch.ones(1))
    assert len(compiled_graphs) > before
