"""What the pages about calls of backward() and grad() say about torch, checked against torch."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from claim_helpers import NO_GRAD_FN
from torch import nn

SCALAR = "grad can be implicitly created only for scalar outputs"


def weight():
    return torch.ones(3, requires_grad=True)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_of_any_shape_is_enough(shape):
    w = weight()
    w.sum().reshape(shape).backward()
    assert w.grad.tolist() == [1.0, 1.0, 1.0]


def test_more_than_one_element_needs_weights():
    w = weight()
    with pytest.raises(RuntimeError, match=SCALAR):
        (w * 2).backward()
    (w * 2).backward(torch.tensor([1.0, 2.0, 3.0]))
    assert w.grad.tolist() == [2.0, 4.0, 6.0]


def test_ones_as_weights_are_the_derivative_of_the_sum():
    w = weight()
    (by_ones,) = torch.autograd.grad(w**2, w, grad_outputs=torch.ones(3))
    (by_sum,) = torch.autograd.grad((w**2).sum(), w)
    assert torch.equal(by_ones, by_sum)


def test_a_complex_loss_is_refused_and_its_magnitude_is_not():
    z = torch.ones((), dtype=torch.cfloat, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"real scalar outputs but got torch\.complex64"):
        (z * z).backward()
    (z * z).abs().backward()
    assert z.grad is not None


def test_every_slice_is_another_tensor():
    w = weight()
    y = (w**2).sum()
    with pytest.raises(RuntimeError, match="at index 0 appears to not have been used"):
        torch.autograd.grad(y, w[:2], retain_graph=True)
    assert torch.autograd.grad(y, w)[0][:2].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("copy", [torch.clone, lambda w: w.view(3), lambda w: w.to(torch.double)])
def test_a_copy_made_after_use_is_not_in_the_graph(copy):
    w = weight()
    y = w.sum()
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(y, copy(w))


def test_marking_after_use_is_too_late():
    x = torch.ones(3)
    y = (weight() * x).sum()
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(y, x)


def test_unused_inputs_give_none_or_zeros_if_asked():
    w, other = weight(), weight()
    assert torch.autograd.grad(w.sum(), other, allow_unused=True) == (None,)
    (zeros,) = torch.autograd.grad(w.sum(), other, materialize_grads=True)
    assert zeros.tolist() == [0.0, 0.0, 0.0]


def test_retaining_a_graph_does_not_give_the_gradient_one():
    w = weight()
    (kept,) = torch.autograd.grad((w**3).sum(), w, retain_graph=True)
    (created,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
    assert not kept.requires_grad and created.requires_grad
    with pytest.raises(RuntimeError) as caught:
        kept.sum().backward()
    assert f"RuntimeError: {caught.value}" == NO_GRAD_FN


def test_a_constant_gradient_has_no_history_even_with_create_graph():
    w = weight()
    (slope,) = torch.autograd.grad((2 * w).sum(), w, create_graph=True)
    assert not slope.requires_grad


def test_a_generator_of_parameters_is_used_up():
    model = nn.Linear(2, 1)
    parameters = model.parameters()
    assert len(list(parameters)) == 2
    with pytest.raises(RuntimeError, match="cannot be empty"):
        torch.autograd.grad(model(torch.ones(1, 2)).sum(), parameters)


def test_only_inputs_false_fills_no_gradient():
    model, x = nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
    with pytest.warns(FutureWarning, match="only_inputs argument is deprecated"):
        torch.autograd.grad(model(x).sum(), x, only_inputs=False)
    assert model.weight.grad is None


LOSSES = [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_these_losses_warn_and_compare_all_with_all(loss):
    prediction, target = torch.randn(4, 1), torch.randn(4)
    with pytest.warns(UserWarning, match="Using a target size"):
        value = loss(prediction, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pairs = loss(prediction.expand(4, 4), target.expand(4, 4))
    assert torch.allclose(value, pairs)


@pytest.mark.parametrize(
    "loss", [F.binary_cross_entropy, F.binary_cross_entropy_with_logits], ids=lambda f: f.__name__
)
def test_these_losses_refuse_other_shapes(loss):
    with pytest.raises(ValueError, match=r"[Tt]arget size"):
        loss(torch.full((4, 1), 0.5), torch.ones(4))
