"""What the pages about leaving torch, dtypes and missing derivatives say, checked against torch."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

REFUSED = "Can't call numpy"
DEEPCOPY = "Only Tensors created explicitly by the user"
OUT = "functions with out=... arguments don't support automatic differentiation"


def computed() -> torch.Tensor:
    return nn.Parameter(torch.ones(3)) * 2


@pytest.mark.parametrize(
    "convert", [lambda x: x.numpy(), np.asarray, lambda x: np.mean([x.sum(), x.sum()])]
)
@pytest.mark.parametrize("make", [computed, lambda: nn.Parameter(torch.ones(3))])
def test_numpy_refuses_results_and_parameters(convert, make):
    with pytest.raises(RuntimeError, match=REFUSED):
        convert(make())


def test_without_gradients_nothing_is_refused():
    with torch.no_grad():
        assert computed().numpy().tolist() == [2, 2, 2]
        assert nn.Parameter(torch.ones(3)).numpy().tolist() == [1, 1, 1]


def test_single_numbers_are_copied_without_refusal():
    total = computed().sum()
    assert total.item() == 6 and computed().tolist() == [2, 2, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert float(total) == 6


def test_an_array_shares_its_memory_with_the_tensor():
    x = computed()
    x.detach().numpy()[0] = 7
    assert x[0].item() == 7


class Holder(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.held = held


@pytest.mark.parametrize("held", [computed(), [computed()], {"last": computed()}])
def test_a_stored_result_cannot_be_deep_copied_and_torch_always_hints_at_weight_norm(held):
    with pytest.raises(RuntimeError, match=DEEPCOPY) as caught:
        copy.deepcopy(Holder(held))
    assert "weight_norm" in str(caught.value)


def test_a_module_without_stored_results_can_be_copied():
    with torch.no_grad():
        held = computed()
    twin = copy.deepcopy(Holder(held))
    assert torch.equal(twin.held, held)
    holder = Holder(computed())
    assert torch.equal(copy.deepcopy(holder.state_dict())["layer.bias"], holder.layer.bias)


def test_the_older_weight_norm_cannot_be_copied_and_the_parametrization_can():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        older = nn.utils.weight_norm(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match=DEEPCOPY):
        copy.deepcopy(older)
    newer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    newer(torch.ones(1, 2)).sum().backward()
    assert torch.equal(copy.deepcopy(newer).weight, newer.weight)


def test_out_is_refused_for_inputs_and_buffers_that_require_grad():
    for source, buffer in [
        (computed(), torch.empty(3)),
        (torch.ones(3), nn.Parameter(torch.empty(3))),
    ]:
        with pytest.raises(RuntimeError, match=OUT):
            torch.add(source, 1, out=buffer)
        with torch.no_grad():
            assert torch.add(source, 1, out=buffer) is buffer


def test_writes_by_methods_and_by_index_are_recorded():
    weight = nn.Parameter(torch.ones(3))
    total = torch.zeros(3)
    total[:] = weight * 2
    total.add_(weight)
    total.sum().backward()
    assert weight.grad.tolist() == [3, 3, 3]


def test_elements_are_cast_and_products_are_not():
    assert (torch.ones(2) + torch.ones(2, dtype=torch.double)).dtype == torch.double
    assert torch.from_numpy(np.ones(3)).dtype == torch.double
    for layer, shape in [(nn.Linear(2, 1), (1, 2)), (nn.Conv1d(1, 1, 1), (1, 1, 2))]:
        with pytest.raises(RuntimeError):
            layer(torch.ones(shape, dtype=torch.double))


def product(with_decorators: bool) -> type[torch.autograd.Function]:
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad @ b.t(), a.t() @ grad

    if with_decorators:
        forward = torch.amp.custom_fwd(forward, device_type="cpu")
        backward = torch.amp.custom_bwd(backward, device_type="cpu")
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Product", (torch.autograd.Function,), methods)


def test_decorators_make_a_custom_backward_run_as_its_forward():
    for with_decorators in (False, True):
        weight = nn.Parameter(torch.ones(2, 2))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = product(with_decorators).apply(torch.ones(2, 2), weight)
        if with_decorators:
            result.sum().backward()
            assert weight.grad.tolist() == [[2, 2], [2, 2]]
        else:
            with pytest.raises(RuntimeError, match="same dtype"):
                result.sum().backward()


def test_a_cast_to_real_numbers_drops_the_imaginary_part():
    z = torch.tensor([1 + 2j], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real = z.to(torch.float32)
    real.sum().backward()
    assert real.item() == 1 and z.grad.item() == 1


def test_a_second_derivative_exists_for_what_is_advised_instead():
    x = torch.tensor([[0.0, 1.0], [2.0, 3.0]], requires_grad=True)
    others = torch.tensor([[1.0, 0.5]])
    with pytest.raises(NotImplementedError, match="_cdist_backward"):
        (slope,) = torch.autograd.grad(torch.cdist(x, others).sum(), x, create_graph=True)
        slope.sum().backward()
    by_hand = (x[:, None] - others[None]).norm(dim=-1)
    assert torch.allclose(by_hand, torch.cdist(x, others))
    (slope,) = torch.autograd.grad(by_hand.sum(), x, create_graph=True)
    slope.sum().backward()
    assert x.grad.isfinite().all()


def test_the_plain_attention_kernel_has_a_second_derivative():
    q = torch.rand(1, 1, 3, 4, requires_grad=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = nn.functional.scaled_dot_product_attention(q, q, q)
    (slope,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    slope.pow(2).sum().backward()
    assert q.grad.abs().sum() > 0
    out = nn.functional.scaled_dot_product_attention(q, q, q)
    (slope,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="is not implemented"):
        slope.pow(2).sum().backward()


def test_deterministic_mode_refuses_or_warns():
    call = nn.MaxUnpool2d(2)
    x, places = torch.rand(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.long)
    try:
        torch.use_deterministic_algorithms(True)
        with pytest.raises(RuntimeError, match="max_unpooling2d_forward_out does not have"):
            call(x, places)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="does not have a deterministic implementation"):
            call(x, places)
    finally:
        torch.use_deterministic_algorithms(False)
