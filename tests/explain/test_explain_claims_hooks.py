"""What the pages about hooks and checkpoints say about torch, checked against torch."""

import random
import warnings

import pytest
import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook, saved_tensors_hooks
from torch.utils.checkpoint import CheckpointError, checkpoint


def leaf():
    return torch.ones(3, requires_grad=True)


# --- hooks on gradients -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hook", "error", "message"),
    [
        (lambda g: g[:2], RuntimeError, "has changed the size of value"),
        (lambda g: g.half(), RuntimeError, r"was torch.FloatTensor got torch.HalfTensor"),
        (lambda g: float(g.norm()), TypeError, "hook returned 'float'"),
    ],
)
def test_what_a_hook_returns_must_fit(hook, error, message):
    w = leaf()
    w.register_hook(hook)
    with pytest.raises(error, match=message):
        w.sum().backward()


@pytest.mark.parametrize(("hook", "grad"), [(lambda g: None, 1.0), (lambda g: g * 0, 0.0)])
def test_none_leaves_the_gradient_and_zeros_replace_it(hook, grad):
    w = leaf()
    w.register_hook(hook)
    w.sum().backward()
    assert w.grad.tolist() == [grad] * 3


def test_a_post_accumulate_hook_returns_none():
    w = leaf()
    w.register_post_accumulate_grad_hook(lambda p: p.grad)
    with pytest.raises(RuntimeError, match="should return None"):
        w.sum().backward()


def test_a_node_hook_returns_one_gradient_for_each_input():
    y = leaf() * 2
    y.grad_fn.register_hook(lambda given, _: (given[0] * 5, None))
    y.sum().backward()
    y = leaf() * torch.ones(3)
    y.grad_fn.register_hook(lambda given, _: (given[0], given[0]))
    with pytest.raises(RuntimeError, match="can't replace a None gradient"):
        y.sum().backward()


def test_a_hook_on_a_module_that_returns_a_dict_is_never_called():
    class Head(nn.Module):
        def forward(self, x):
            return {"out": x * 2}

    head, seen = Head(), []
    head.register_full_backward_hook(lambda *given: seen.append(given))
    with pytest.warns(UserWarning, match="For backward hooks to be called"):
        head(leaf())["out"].sum().backward()
    assert seen == []


def test_the_handle_of_a_hook_is_a_context_manager():
    layer = nn.Linear(3, 1)
    with layer.register_full_backward_hook(lambda *_: None):
        assert layer._backward_hooks
    assert not layer._backward_hooks


def test_a_module_has_one_kind_of_hooks():
    layer = nn.Linear(3, 1)
    layer.register_backward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="Cannot use both"):
        layer.register_full_backward_hook(lambda *_: None)


@pytest.mark.parametrize(("mode", "calls"), [("all", 1), ("any", 1)])
def test_the_modes_of_a_hook_on_several_gradients(mode, calls):
    first, second, seen = leaf(), leaf(), []
    register_multi_grad_hook([first, second], seen.append, mode=mode)
    (first * second).sum().backward()
    assert len(seen) == calls


# --- hooks on saved tensors -------------------------------------------------------------------


def test_a_pack_hook_gets_the_tensor_itself():
    x, given = leaf(), []
    with saved_tensors_hooks(lambda t: given.append(t.data_ptr()) or t, lambda t: t):
        x.sin()
    assert given == [x.data_ptr()]


def test_a_pack_hook_may_return_anything():
    x, kept = leaf(), {}
    with saved_tensors_hooks(lambda t: kept.setdefault("a", t) is None, lambda _: kept["a"]):
        y = x.sin()
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones(3).cos())


# --- checkpoints ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize(("reentrant", "live"), [(True, False), (False, True)])
def test_only_re_entrant_checkpoints_need_an_input_with_gradient(reentrant, live):
    block = nn.Linear(3, 3)
    assert checkpoint(block, torch.ones(3), use_reentrant=reentrant).requires_grad == live


def test_random_numbers_of_torch_are_the_same_in_both_runs_and_pythons_are_not():
    drawn: list[tuple[float, float]] = []

    def block(x):
        drawn.append((float(torch.rand(())), random.random()))
        return x.sin()

    checkpoint(block, leaf(), use_reentrant=False).sum().backward()
    (torch_one, python_one), (torch_two, python_two) = drawn
    assert torch_one == torch_two
    assert python_one != python_two


def test_other_values_of_the_same_shape_go_unnoticed():
    scales = [2.0, 3.0]

    def block(x):
        return (x * scales.pop(0)).sin()

    x = leaf()
    checkpoint(block, x, use_reentrant=False, early_stop=False).sum().backward()
    assert torch.allclose(x.grad, 2.0 * torch.full((3,), 3.0).cos())


def test_another_number_of_tensors_is_noticed():
    rounds = [2, 1]

    def block(x):
        for _ in range(rounds.pop(0)):
            x = x.sin()
        return x

    with pytest.raises(CheckpointError, match="A different number of tensors"):
        checkpoint(block, leaf(), use_reentrant=False).sum().backward()


def test_a_re_entrant_checkpoint_passes_no_keyword_arguments_on():
    with pytest.raises(ValueError, match="Unexpected keyword arguments: mask"):
        checkpoint(lambda x, mask=None: x, leaf(), use_reentrant=True, mask=None)


def test_without_the_argument_it_is_re_entrant_and_warns():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = checkpoint(nn.Linear(3, 3), torch.ones(3))
    assert not out.requires_grad
    assert any("use_reentrant" in str(w.message) for w in caught)
