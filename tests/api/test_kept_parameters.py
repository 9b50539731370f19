"""What modules keep without registering it, and who knows of it."""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import whygrad
from whygrad.record import census
from whygrad.record.events import ParameterInfo
from whygrad.watching import active


class Keeper(nn.Module):
    """A module with something in its attribute `kept`."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self.own = nn.Linear(2, 2)
        self.kept = make()


class Plain:
    def __init__(self) -> None:
        self.layer = nn.Linear(2, 2, bias=False)


def closure() -> Callable[[Any], Any]:
    layer = nn.Linear(2, 2, bias=False)
    return lambda x: layer(x)


def found_in(module: nn.Module) -> dict[str, ParameterInfo]:
    return {info.name: info for info in census.take(active[-1].watcher.recorder)}


CONTAINERS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "list": (lambda: [nn.Linear(2, 2, bias=False)], "kept[0].weight", "list"),
    "nested": (lambda: [[nn.Linear(2, 2, bias=False)]], "kept[0][0].weight", "list"),
    "tuple": (lambda: (nn.Linear(2, 2, bias=False),), "kept[0].weight", "tuple"),
    "dict": (lambda: {"a": nn.Linear(2, 2, bias=False)}, "kept['a'].weight", "dict"),
    "ordered": (lambda: OrderedDict(a=nn.Parameter(torch.ones(2))), "kept['a']", "dict"),
    "deque": (lambda: deque([nn.Parameter(torch.ones(2))]), "kept[0]", "deque"),
    "object": (Plain, "kept.layer.weight", "object"),
    "closure": (closure, "kept.layer.weight", "function"),
    "partial": (
        lambda: functools.partial(torch.mul, nn.Parameter(torch.ones(2))),
        "kept(0)",
        "partial",
    ),
    "tensor": (lambda: torch.ones(2, requires_grad=True), "kept", ""),
    "converted": (lambda: nn.Parameter(torch.ones(2)).double(), "kept", "result"),
}


@pytest.mark.parametrize("case", CONTAINERS)
def test_what_is_kept_has_a_name(case: str) -> None:
    make, where, within = CONTAINERS[case]
    with whygrad.watch():
        module = nn.Sequential(Keeper(make))
        infos = found_in(module)
    info = infos[f"0.{where}"]
    assert (info.kept_as, info.keeper, info.keeps_in) == (where, "Keeper", within)
    assert not info.registered and not info.in_optimizer
    assert infos["0.own.weight"].registered and not infos["0.own.weight"].kept_as
    assert infos["0.own.weight"].root == info.root


def test_a_list_of_what_is_registered_hides_nothing() -> None:
    with whygrad.watch():
        module = Keeper(list)
        module.kept.append(module.own)
        infos = found_in(module)
    assert set(infos) == {"own.weight", "own.bias"}
    assert all(info.registered for info in infos.values())


def test_what_an_optimizer_holds_belongs_to_itself() -> None:
    with whygrad.watch():
        layer = nn.Linear(3, 3, bias=False)
        keeper = Keeper(lambda: [layer])
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        infos = census.take(active[-1].watcher.recorder, {id(optimizer): 7})
    assert keeper.kept[0] is layer
    assert sorted((i.name, i.registered, i.optimizer) for i in infos) == [
        ("own.bias", True, -1),
        ("own.weight", True, -1),
        ("weight", True, 7),
    ]


def test_a_child_that_knows_its_parent_is_no_keeper_of_it() -> None:
    with whygrad.watch():
        parent = Keeper(list)
        parent.own.parents = [parent]  # type: ignore[assignment]
        infos = found_in(parent)
    assert set(infos) == {"own.weight", "own.bias"}


def test_two_that_keep_each_other_are_both_found() -> None:
    with whygrad.watch():
        one, two = Keeper(list), Keeper(list)
        one.kept.append(two)
        two.kept.append(one)
        infos = census.take(active[-1].watcher.recorder)
    assert sorted(info.name for info in infos) == ["own.bias", "own.bias"] + ["own.weight"] * 2
    assert len({info.root for info in infos}) == 2


def test_loaded_values_are_told_from_first_ones() -> None:
    with whygrad.watch():
        fresh, loaded = nn.Linear(2, 2), nn.Linear(2, 2)
        loaded.load_state_dict(fresh.state_dict())
        nn.init.orthogonal_(fresh.weight)
        with torch.no_grad():
            fresh.bias.copy_(torch.randn(2))
        infos = census.take(active[-1].watcher.recorder)
    assert sorted(info.loaded for info in infos) == [False, False, True, True]


def test_the_mode_of_the_outermost_module_counts() -> None:
    with whygrad.watch():
        module = Keeper(lambda: [nn.Linear(2, 2, bias=False).eval()])
        infos = found_in(module)
    assert infos["own.weight"].training and not infos["kept[0].weight"].training
