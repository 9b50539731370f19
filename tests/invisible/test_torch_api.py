"""Torch's private API: what this torch answers, and what comes back from one that lacks it."""

from __future__ import annotations

import inspect
import sys
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from whygrad.record import torch_api


class Nothing:
    """Has none of the attributes that torch's objects have."""


class Refusing:
    """Answers with an error when asked for what it saved, as torch does when that is gone."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        raise self.error if "saved" in name else AttributeError(name)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx._raw_saved_mine = "the program's own"
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def leaf() -> torch.Tensor:
    return torch.tensor([[0.5, 1.5], [2.5, 3.5]], requires_grad=True)


# --- data_address -----------------------------------------------------------------------------


def test_an_address_is_that_of_the_first_element() -> None:
    x = torch.ones(4)
    assert torch_api.data_address(x) == x.data_ptr() != 0
    assert torch_api.data_address(x[1:]) == x.data_ptr() + x.element_size()
    assert torch_api.data_address(x.view(2, 2)) == torch_api.data_address(x.detach())
    assert torch_api.data_address(x) == torch_api.data_address(x.data)


def test_asking_for_an_address_makes_no_copy() -> None:
    x = torch.ones(4)
    lazy = torch._lazy_clone(x)
    assert torch_api.data_address(lazy) == torch_api.data_address(x)
    assert torch._C._is_cow_tensor(lazy)
    lazy.data_ptr()
    assert not torch._C._is_cow_tensor(lazy)


def test_an_address_without_the_private_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_api, "_data_address", None)
    x = torch.ones(4)
    assert torch_api.data_address(x[2:]) == x[2:].data_ptr()


@pytest.mark.parametrize("private", [True, False])
def test_no_address_is_zero(private: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not private:
        monkeypatch.setattr(torch_api, "_data_address", None)
    assert torch_api.data_address(torch.ones(2, device="meta")) == 0
    assert torch_api.data_address(torch.eye(2).to_sparse()) == 0
    assert torch_api.data_address(torch.empty(0)) == 0


@pytest.mark.parametrize("error", [RuntimeError, TypeError, ValueError])
def test_a_refused_address_is_zero(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(tensor: Any) -> int:
        raise error("no storage")

    monkeypatch.setattr(torch_api, "_data_address", refuse)
    assert torch_api.data_address(torch.ones(1)) == 0


# --- is_conversion ----------------------------------------------------------------------------


def _frames_of_conversion(convert: Any) -> list[bool]:
    """For each frame between a module's conversion and the function it applies, the answer."""
    answers: list[bool] = []

    def apply(tensor: torch.Tensor) -> torch.Tensor:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "_frames_of_conversion":
            answers.append(torch_api.is_conversion(frame))
            frame = frame.f_back
        return tensor

    convert(apply)
    return answers


def test_a_conversion_is_told_by_its_frame() -> None:
    assert any(_frames_of_conversion(nn.Linear(2, 2)._apply))
    assert not any(_frames_of_conversion(lambda apply: apply(torch.ones(1))))


@pytest.mark.parametrize("convert", ["double", "half", "cpu"])
def test_the_ways_to_convert_a_module_go_through_that_frame(
    convert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[bool] = []
    original = nn.Module._apply

    def noticed(self: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(True)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "_apply", noticed)
    getattr(nn.Linear(2, 2), convert)()
    assert called


def test_without_its_function_nothing_is_a_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_api, "_APPLY_CODE", None)
    assert not any(_frames_of_conversion(nn.Linear(2, 2)._apply))


# --- engine -----------------------------------------------------------------------------------


def test_the_engine_is_the_one_that_torch_uses() -> None:
    engine = torch_api.engine()
    assert engine is getattr(torch.autograd.Variable, torch_api.ENGINE)
    assert callable(engine.run_backward) and callable(engine.queue_callback)
    assert torch_api.ENGINE in inspect.getsource(torch.autograd.graph._engine_run_backward)


def test_no_engine_where_torch_gets_at_it_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd.Variable, torch_api.ENGINE)
    assert torch_api.engine() is None


# --- saved_names, raw_saved, complaint --------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "names"),
    [
        (lambda x: x.exp(), {"result"}),
        (lambda x: x.square(), {"self"}),
        (lambda x: x * x, {"self", "other"}),
        (lambda x: x @ x, {"self", "mat2"}),
        (lambda x: x + 1, set()),
        (lambda x: x.sum(), set()),
        (lambda x: Square.apply(x), {"tensors"}),
        (lambda x: nn.BatchNorm1d(2)(x), {"input", "weight", "running_mean", "running_var"}),
    ],
)
def test_names_of_what_a_node_keeps(result: Any, names: set[str]) -> None:
    found = torch_api.saved_names(result(leaf()).grad_fn)
    assert isinstance(found, tuple)
    assert names <= set(found)
    assert "mine" not in found
    assert bool(found) == bool(names)


@pytest.mark.parametrize("thing", [None, Nothing(), 3])
def test_what_is_no_node_keeps_nothing(thing: Any) -> None:
    assert torch_api.saved_names(thing) == ()


def test_names_are_read_from_a_type_once() -> None:
    function = leaf().exp().grad_fn
    assert torch_api.saved_names(function) is torch_api.saved_names(leaf().exp().grad_fn)


def test_what_a_node_holds_is_the_tensor_itself() -> None:
    x = leaf()
    y = x * 2
    out = y.exp() * y
    (saved,) = torch_api.raw_saved(out.grad_fn, "other")
    assert saved.data.data_ptr() == y.data_ptr()
    assert saved.unpack_hook is None
    squared = Square.apply(y)  # an entry is good for as long as its node lives
    (saved,) = torch_api.raw_saved(squared.grad_fn, "tensors")
    assert saved.data.data_ptr() == y.data_ptr()


def test_a_list_of_saved_tensors_has_one_entry_each() -> None:
    x = leaf()
    index = (torch.tensor([0, 1]), torch.tensor([1, 0]))
    picked = (x * 2)[index]
    assert len(torch_api.raw_saved(picked.grad_fn, "indices")) == 2


def test_what_a_hook_packed_is_left_alone() -> None:
    unpacked: list[int] = []

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        unpacked.append(1)
        return tensor

    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        packed = (x * 2).exp()
    recomputed = checkpoint(torch.exp, x * 2, use_reentrant=False)
    assert torch_api.raw_saved(packed.grad_fn, "result") == []
    assert torch_api.raw_saved(recomputed.grad_fn, "result") == []
    assert unpacked == []


@pytest.mark.parametrize(
    "function",
    [
        Nothing(),
        None,
        Refusing(RuntimeError("freed")),
        Refusing(TypeError("another kind")),
        SimpleNamespace(_raw_saved_result=Nothing()),  # does not tell of hooks
        SimpleNamespace(_raw_saved_result=[Nothing()]),
        SimpleNamespace(_raw_saved_result=[]),
    ],
)
def test_nothing_is_known_of_what_a_node_holds(function: Any) -> None:
    assert torch_api.raw_saved(function, "result") == []


def test_a_freed_value_is_no_error() -> None:
    y = leaf().exp()
    y.sum().backward()
    assert torch_api.raw_saved(y.grad_fn, "no such name") == []
    assert [saved.data for saved in torch_api.raw_saved(y.grad_fn, "result")] in ([], [None])


@pytest.mark.parametrize(
    ("result", "name"), [(torch.exp, "result"), (Square.apply, "tensors")], ids=["exp", "custom"]
)
def test_complaints_are_torchs_own_words(result: Any, name: str) -> None:
    x = leaf()
    hidden = x * 2
    y = result(hidden)
    assert torch_api.complaint(y.grad_fn, name) == ""
    (y if name == "result" else hidden).add_(1)
    function = y.grad_fn if name == "tensors" else y.grad_fn.next_functions[0][0]
    text = torch_api.complaint(function, name)
    assert "has been modified by an inplace operation" in text
    with pytest.raises(RuntimeError) as caught:
        y.sum().backward()
    version = text[text.index("is at version") : text.index("instead")]
    assert version in str(caught.value)
    other = result(x * 2)
    other.sum().backward()
    assert "backward through the graph a second time" in torch_api.complaint(other.grad_fn, name)


def test_no_complaint_about_what_is_not_there() -> None:
    assert torch_api.complaint(Nothing(), "result") == ""
    assert torch_api.complaint(None, "result") == ""
    assert torch_api.complaint(leaf().exp().grad_fn, "no such name") == ""
    assert torch_api.complaint(Refusing(RuntimeError("freed")), "result") == "freed"


# --- is_unused, is_custom ---------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_are_unused_in_training_only(training: bool) -> None:
    function = nn.BatchNorm1d(2).train(training)(leaf()).grad_fn
    assert torch_api.is_unused(function, "running_mean") is training
    assert torch_api.is_unused(function, "running_var") is training
    assert not torch_api.is_unused(function, "input")


def test_a_node_that_does_not_tell_uses_what_it_kept() -> None:
    assert not torch_api.is_unused(Nothing(), "running_mean")
    assert not torch_api.is_unused(leaf().exp().grad_fn, "result")


def test_custom_functions_are_told_from_torchs_own() -> None:
    x = leaf()
    layer = nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda *_: None)
    assert torch_api.is_custom(Square.apply(x).grad_fn)
    assert torch_api.is_custom(checkpoint(torch.exp, x, use_reentrant=True).grad_fn)
    assert torch_api.is_custom(layer(x).grad_fn)
    for other in (x.exp().grad_fn, nn.Linear(2, 2)(x).grad_fn, x.grad_fn, Nothing()):
        assert not torch_api.is_custom(other)


# --- capabilities -----------------------------------------------------------------------------


def test_this_torch_has_everything() -> None:
    assert [what for what, available, _ in torch_api.capabilities() if not available] == []


def test_values_saved_for_backward_are_a_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._autograd, "SavedTensor")
    missing = [what for what, available, _ in torch_api.capabilities() if not available]
    assert missing == ["values saved for backward"]
