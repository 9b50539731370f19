"""What the pages about leaves, flags and assignments say about torch, checked against torch."""

import warnings

import pytest
import torch
from torch import nn

NON_LEAF = "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed."
FLAG = "you can only change requires_grad flags of leaf variables."
INTEGER = "nly Tensors of floating point"


def reads_none(tensor: torch.Tensor) -> bool:
    """Whether torch warns about reading a gradient, and there is none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gradient = tensor.grad
    return gradient is None and any(NON_LEAF in str(warning.message) for warning in caught)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x * 0.01,
        lambda x: x.view(3, 1),
        lambda x: x[0],
        lambda x: x.double(),
        lambda x: x.to(torch.float64),
        lambda x: x - 0.1 * torch.ones(3),
    ],
)
def test_a_changed_leaf_is_a_result_without_a_gradient(change):
    leaf = torch.ones(3, requires_grad=True)
    result = change(leaf)
    result.sum().backward()
    assert not result.is_leaf
    assert reads_none(result)
    assert leaf.grad is not None


@pytest.mark.parametrize("call", [lambda x: x.to("cpu"), lambda x: x.contiguous()])
def test_a_call_with_nothing_to_do_returns_the_leaf_itself(call):
    leaf = torch.ones(3, requires_grad=True)
    assert call(leaf) is leaf


def test_a_converted_parameter_is_not_registered():
    module = nn.Module()
    module.scale = nn.Parameter(torch.ones(2)).to(torch.float64)
    assert list(module.parameters()) == []


def test_retain_grad_keeps_the_gradient_of_a_result():
    hidden = torch.ones(2, requires_grad=True) * 2
    hidden.retain_grad()
    hidden.sum().backward()
    assert hidden.grad.tolist() == [1.0, 1.0]
    assert not reads_none(hidden)


def test_leaves_are_demanded_by_optimizers_and_modules():
    result = nn.Parameter(torch.ones(2)).clone()
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        torch.optim.SGD([result], lr=0.1)
    result.__class__ = nn.Parameter
    with pytest.raises(ValueError, match="Cannot assign non-leaf Tensor to parameter"):
        nn.Module().register_parameter("weight", result)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([3, -2]),
        lambda: torch.arange(5),
        lambda: torch.full((2,), 1),
        lambda: torch.rand(3).argmax(),
        lambda: torch.rand(3) > 0.5,
        lambda: torch.rand(3).long(),
    ],
)
def test_these_are_integers_and_get_no_gradient(make):
    tensor = make()
    assert not tensor.is_floating_point()
    with pytest.raises(RuntimeError, match=INTEGER):
        tensor.requires_grad_()
    with pytest.raises(RuntimeError, match=INTEGER):
        nn.Parameter(tensor)
    assert not nn.Parameter(tensor, requires_grad=False).requires_grad


def test_integers_are_refused_as_data_of_what_requires_grad():
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(RuntimeError, match="data set to a tensor that requires gradients must be"):
        weight.data = torch.tensor([1, 2])


def test_only_leaves_have_a_flag_of_their_own():
    leaf = torch.ones(2, requires_grad=True)
    result = leaf * 2
    with pytest.raises(RuntimeError, match=FLAG) as caught:
        result.requires_grad = False
    assert "use var_no_grad = var.detach()." in str(caught.value)
    with pytest.raises(RuntimeError, match=FLAG) as caught:
        result.requires_grad = True
    assert "var.detach()" not in str(caught.value)
    assert result.requires_grad_(True) is result
    assert result.detach().requires_grad_().is_leaf


def test_an_input_that_was_asked_for_gradients_gives_results_a_history():
    image = torch.ones(2)
    assert (image + 1).is_leaf
    image.requires_grad_()
    assert not (image + 1).is_leaf


@pytest.mark.parametrize(
    ("attribute", "value", "error"),
    [
        ("grad", 0, "assigned grad expected to be a Tensor or None but got grad of type int"),
        ("grad", torch.ones(2).numpy(), "assigned grad expected to be a Tensor or None"),
        ("grad", torch.ones(2).double(), "with dtype 'double' to a tensor with grad_dtype 'Float'"),
        ("requires_grad", 1, "requires_grad must be a bool"),
        ("requires_grad", "False", "requires_grad must be a bool"),
        ("data", 0.5, "Variable data has to be a tensor, but got float"),
        ("data", torch.ones(2).to_sparse(), "incompatible tensor type"),
    ],
)
def test_what_does_not_fit_is_refused(attribute, value, error):
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises((RuntimeError, TypeError)) as caught:
        setattr(weight, attribute, value)
    assert error in str(caught.value)


def test_a_tensor_is_not_its_own_gradient():
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(RuntimeError, match="can't assign Variable as its own grad"):
        weight.grad = weight


def test_data_may_have_another_shape_and_a_gradient_another_dtype_if_allowed():
    weight = nn.Parameter(torch.ones(2))
    weight.data = torch.ones(3)
    assert weight.shape == (3,)
    weight.grad_dtype = None
    weight.grad = torch.ones(3, dtype=torch.float64)
    assert weight.grad.dtype == torch.float64


def test_a_gradient_from_numpy_fits_once_converted():
    weight = nn.Parameter(torch.ones(2, 1))
    values = torch.ones(2, dtype=torch.float64).numpy()
    gradient = torch.as_tensor(values, dtype=weight.dtype, device=weight.device)
    weight.grad = gradient.view_as(weight)
    assert weight.grad.shape == (2, 1)


@pytest.mark.parametrize(
    "use",
    [
        lambda p: p.numel(),
        lambda p: p.pow(2),
        lambda p: p.clone(),
        lambda p: nn.init.zeros_(p),
        lambda p: nn.init.xavier_uniform_(p),
    ],
)
def test_a_placeholder_cannot_be_used(use):
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter in"):
        use(nn.LazyLinear(2).weight)


def test_a_placeholder_has_no_shape_and_stays_the_same_object():
    layer = nn.LazyLinear(2)
    weight = layer.weight
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        _ = weight.shape
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    assert torch.nn.parameter.is_lazy(weight)
    layer(torch.ones(1, 3)).sum().backward()
    before = weight.detach().clone()
    optimizer.step()
    assert layer.weight is weight
    assert not torch.equal(weight.detach(), before)
