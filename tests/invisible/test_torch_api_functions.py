"""Torch's private API about custom Functions and operators, and what one that lacks it answers."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from whygrad.record import torch_api


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, factor: float, x: torch.Tensor) -> torch.Tensor:
        ctx.needs = "the program's own"
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, gradient


@torch.library.custom_op("whygrad_tests::twice", mutates_args=())
def twice(xs: list[torch.Tensor]) -> torch.Tensor:
    return xs[0] * 2


def backward_of_twice(ctx: Any, gradient: torch.Tensor) -> list[torch.Tensor]:
    return [gradient * 2]


twice.register_autograd(backward_of_twice)


def leaf() -> torch.Tensor:
    return torch.ones(2, requires_grad=True)


def test_a_custom_function_is_known_by_its_autograd_node() -> None:
    node = Scale.apply(2.0, leaf()).grad_fn
    assert torch_api.forward_class(node) is Scale
    assert torch_api.gradients_wanted(node) == (False, True)


@pytest.mark.parametrize("node", [None, object(), (leaf() * 2).grad_fn])
def test_other_nodes_have_none(node: object) -> None:
    assert torch_api.forward_class(node) is None
    assert torch_api.gradients_wanted(node) == ()


def test_the_parts_of_an_operator_are_found_behind_what_torch_makes_of_it() -> None:
    cls = torch_api.forward_class(twice([leaf()]).grad_fn)
    assert torch_api.registered_backward(cls) == ("whygrad_tests::twice", backward_of_twice, None)
    forward = torch_api.custom_op_forward("whygrad_tests::twice")
    assert forward.__code__.co_filename == __file__


@pytest.mark.parametrize("cls", [None, object, Scale])
def test_other_classes_are_no_operators(cls: object) -> None:
    assert torch_api.registered_backward(cls) is None


def test_without_the_module_no_operator_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._library.custom_ops")
    assert torch_api.custom_op_forward("whygrad_tests::twice") is None


def test_the_file_of_a_library_is_told_where_torch_tells_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = torch.library.Library("whygrad_tests_file", "DEF")
    library.define("nothing(Tensor x) -> Tensor")
    assert torch_api.library_file("whygrad_tests_file::nothing") == __file__
    assert torch_api.library_file("whygrad_tests_file::unknown") == ""
    monkeypatch.delattr(torch._C, "_dispatch_dump")
    assert torch_api.library_file("whygrad_tests_file::nothing") == ""


def test_gradcheck_is_known_by_its_frames() -> None:
    seen = []

    def checked(x: torch.Tensor) -> torch.Tensor:
        frame = sys._getframe(1)
        while frame is not None and not torch_api.is_check(frame):
            frame = frame.f_back  # type: ignore[assignment]
        seen.append(frame is not None)
        return x * 2

    checked(leaf())
    assert torch.autograd.gradcheck(checked, leaf().double().detach().requires_grad_())
    assert seen[0] is False and all(seen[1:]) and len(seen) > 1
