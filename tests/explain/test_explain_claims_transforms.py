"""What the pages about torch.func and autograd.functional say about torch, checked."""

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch import nn
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call, grad, jacfwd, jvp, vmap

ROWS = torch.tensor([[1.0, -2.0], [3.0, 4.0]])


def raises(text: str):
    return pytest.raises((RuntimeError, NotImplementedError, ValueError), match=text)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x if x.sum() > 0 else -x, "data-dependent control flow"),
        (lambda x: x * x.sum().item(), r"calling \.item\(\)"),
        (lambda x: x * float(x.sum()), r"calling \.item\(\)"),
        (lambda x: x[x > 0].sum(), "dynamic shape"),
        (lambda x: x.nonzero(), "dynamic shape"),
        (lambda x: x.unique(), "dynamic shape"),
        (lambda x: nn.functional.dropout(x), "randomness error mode"),
        (lambda x: x + torch.randn(2), "randomness error mode"),
        (lambda x: x.data * 2, "accessing `data` under vmap"),
        (lambda x: x.clone().requires_grad_().sum(), r"requires_grad_\(\)"),
        (lambda x: nn.BatchNorm1d(2)(x.expand(3, 2)), "Batch norm got a batched tensor"),
    ],
)
def test_vmap_refuses(function, text):
    with raises(text):
        vmap(function)(ROWS)


def test_what_is_said_to_help_inside_vmap_does():
    chosen = vmap(lambda x: torch.where(x > 0, x, 0).sum())(ROWS)
    assert torch.equal(chosen, torch.tensor([1.0, 7.0]))
    for kind in ("same", "different"):
        assert vmap(nn.functional.dropout, randomness=kind)(ROWS).shape == ROWS.shape
    assert vmap(nn.Dropout().eval())(ROWS).shape == ROWS.shape
    assert vmap(lambda x: x.detach() * 2)(ROWS).shape == ROWS.shape
    images = torch.randn(3, 5, 2)
    assert vmap(nn.BatchNorm1d(2, track_running_stats=False))(images).shape == images.shape
    assert vmap(nn.BatchNorm1d(2).eval())(images).shape == images.shape
    assert vmap(nn.GroupNorm(1, 2))(images).shape == images.shape


def test_batch_norms_can_be_taken_out_of_a_model():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    torch.func.replace_all_batch_norm_modules_(model)
    params = dict(model.named_parameters())
    assert vmap(lambda x: functional_call(model, params, (x,)))(torch.randn(3, 5, 2)).shape[0] == 3


def test_a_captured_tensor_cannot_be_written_inside_grad():
    total = torch.zeros(2)
    with raises("would mutate a captured Tensor"):
        grad(lambda x: (total.add_(x)).sum())(ROWS[0])
    assert torch.equal(grad(lambda x, t: (t + x).sum())(ROWS[0], total), torch.ones(2))


def test_a_kept_tensor_is_dead_after_the_transform_and_aux_is_not():
    kept = []
    vmap(lambda x: kept.append(x * 2) or x.sum())(ROWS)
    with raises("may have escaped"):
        kept[0] + 1
    gradient, doubled = vmap(grad(lambda x: (x.sum(), x * 2), has_aux=True))(ROWS)
    assert torch.equal(doubled, ROWS * 2) and torch.equal(gradient, torch.ones(2, 2))


def test_retain_grad_and_data_writes_are_refused_inside_grad():
    def retained(x):
        h = x * 2
        h.retain_grad()
        return h.sum()

    with raises(r"Tensor\.retain_grad\(\)"):
        grad(retained)(ROWS[0])
    assert torch.equal(grad(lambda x: (x.data * x).sum())(ROWS[0]), ROWS[0])  # reading is allowed


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Batched(Twice):
    generate_vmap_rule = True


def test_a_function_needs_a_rule_for_vmap_and_setup_context_for_the_others():
    assert torch.equal(grad(lambda x: Twice.apply(x).sum())(ROWS[0]), torch.full((2,), 2.0))
    with raises("does not have vmap support"):
        vmap(Twice.apply)(ROWS)
    assert torch.equal(vmap(Batched.apply)(ROWS), ROWS * 2)


def test_the_side_that_was_not_chosen_can_still_give_nan():
    gradient = grad(lambda x: torch.where(x > 0, x.sqrt(), 0.0))(torch.tensor(0.0))
    assert gradient.isnan()


def test_a_loop_over_the_samples_gives_the_same_gradients():
    x, y, w = torch.randn(4, 3), torch.randn(4), torch.randn(3)

    def loss(w, x, y):
        return (x @ w - y) ** 2

    together = vmap(grad(loss), in_dims=(None, 0, 0))(w, x, y)
    one_by_one = torch.stack([grad(loss)(w, a, b) for a, b in zip(x, y, strict=True)])
    assert torch.allclose(together, one_by_one)


def test_forward_mode_has_one_level_and_one_tangent():
    x = torch.ones(2)
    with raises("no level exists"):
        fwAD.make_dual(x, x)
    with fwAD.dual_level():
        with raises("Nested forward mode"):
            fwAD.enter_dual_level()
        dual = fwAD.make_dual(x, x)
        with raises("already has a forward gradient"):
            fwAD.make_dual(dual, x)
        plain = fwAD.unpack_dual(dual).primal
        assert fwAD.unpack_dual(fwAD.make_dual(plain, x)).tangent is not None
        with raises("cannot resize"):
            dual.resize_(1, 2)
        assert fwAD.unpack_dual(dual.reshape(1, 2)).tangent.shape == (1, 2)
    assert fwAD.unpack_dual(x).tangent is None


def test_a_level_is_closed_after_an_error_and_jvp_takes_tuples():
    with raises("different size"), fwAD.dual_level():
        fwAD.make_dual(torch.ones(2), torch.ones(3))
    with fwAD.dual_level():
        pass
    with raises("Expected primals to be a tuple"):
        jvp(torch.sin, torch.ones(2), torch.ones(2))
    assert torch.equal(jvp(torch.sin, (torch.zeros(2),), (torch.ones(2),))[1], torch.ones(2))


@pytest.mark.parametrize(
    "options",
    [
        {"strict": True, "vectorize": True},
        {"strict": True, "strategy": "forward-mode", "vectorize": True},
        {"strategy": "forward-mode"},
        {"strategy": "forward-mode", "vectorize": True, "create_graph": True},
    ],
)
def test_options_of_jacobian_that_exclude_each_other(options):
    with raises("together|only implemented for"):
        jacobian(torch.sin, torch.ones(2), **options)


def test_what_hessian_takes_and_what_jacfwd_can_do():
    with raises("should return a single Tensor"):
        hessian(lambda x: (x.sum(), x), torch.ones(2))
    with raises("should contain a single element"):
        hessian(lambda x: x**2, torch.ones(2))
    jacobian(torch.sin, torch.ones(2), strategy="forward-mode", vectorize=True)
    weight = torch.tensor(2.0, requires_grad=True)
    jacfwd(lambda x: weight * x**2)(torch.tensor(3.0)).backward()
    assert weight.grad == 6.0
    assert torch.func.hessian(lambda x: x**2)(torch.ones(2)).shape == (2, 2, 2)
