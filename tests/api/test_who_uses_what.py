"""Who uses a parameter, and which of two comes first on the way to a loss."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import whygrad
from whygrad.graph.consumers import Consumers
from whygrad.graph.flow import FlowGraph
from whygrad.graph.order import Order, order
from whygrad.record.recorder import Recorder
from whygrad.watching import active


def recorder() -> Recorder:
    return active[-1].watcher.recorder


def node(tensor: torch.Tensor) -> int:
    found = recorder().node_of(tensor)
    assert found is not None
    return found


def test_results_without_a_user_are_ends() -> None:
    with whygrad.watch():
        used, astray, unused = (nn.Parameter(torch.ones(2)) for _ in range(3))
        unused.detach().norm()
        with torch.no_grad():
            unused.mul(2)
        hidden = used * astray
        side = hidden.exp()
        loss = (used * 3).sum()
        loss.backward()
        consumers = Consumers(recorder().recording())
        assert not consumers.is_used(node(unused))
        assert consumers.ends([node(astray)]) == [node(side)]
        assert consumers.ends([node(used)]) == [node(side), node(loss)]
        assert consumers.users(node(hidden)) == [node(side)]


def test_what_autograd_grad_was_asked_about() -> None:
    with whygrad.watch():
        points = torch.linspace(0, 1, 3).requires_grad_()
        weight = nn.Parameter(torch.ones(3))
        value = (points * weight).sum()
        torch.autograd.grad(value, points, create_graph=True)
        asked = Consumers(recorder().recording()).differentiated
        assert node(points) in asked and node(weight) not in asked


CASES = {
    "one after the other": ("ab", Order(before=True, after=False)),
    "in between": ("bab", Order(before=True, after=True)),
    "the other way round": ("ba", Order(before=False, after=True)),
    "alone": ("a", Order(before=False, after=False)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("transposed", [False, True])
def test_the_order_of_two_groups(case: str, transposed: bool) -> None:
    names, expected = CASES[case]
    with whygrad.watch():
        groups: dict[str, set[int]] = {"a": set(), "b": set()}
        x = torch.randn(2, 4)
        for name in names:
            weight = nn.Parameter(torch.randn(4, 4))
            groups[name].add(node(weight))
            x = x @ (weight.t() * 2 if transposed else weight)
        loss = x.sum()
        loss.backward()
        graph = FlowGraph(recorder().recording())
        assert order(graph, [node(loss)], groups["a"], groups["b"]) == expected


def test_two_towers_are_side_by_side() -> None:
    with whygrad.watch():
        one, other = nn.Linear(3, 2), nn.Linear(3, 2)
        x = torch.randn(4, 3)
        loss = (one(x) * other(x)).sum()
        loss.backward()
        graph = FlowGraph(recorder().recording())
        mine, theirs = ({node(p) for p in tower.parameters()} for tower in (one, other))
        found = order(graph, [node(loss)], mine, theirs)
    assert found == Order(before=False, after=False)
    assert not found.upstream and not found.interleaved
