"""What the pages about zero, NaN and exploding gradients say about torch, checked against it."""

import math

import pytest
import torch
from torch import nn

F = nn.functional


def gradient(expression: str, *values: float, dtype: torch.dtype = torch.float32) -> list[float]:
    """The gradient of the sum of `expression` with respect to `x`, which has these values."""
    x = torch.tensor(values, dtype=dtype, requires_grad=True)
    names = {"torch": torch, "nn": nn, "F": F, "math": math, "x": x}
    eval(expression, names).sum().backward()
    return x.grad.tolist()


def passes(expression: str, *values: float, dtype: torch.dtype = torch.float32) -> bool:
    return any(gradient(expression, *values, dtype=dtype))


def poisons(expression: str, *values: float) -> bool:
    return any(map(math.isnan, gradient(expression, *values)))


# --- flat everywhere --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "x.round()",
        "x.round(decimals=1)",
        *(f"x.{name}()" for name in ("floor", "ceil", "trunc", "sign")),
        "torch.bernoulli(x.sigmoid())",
        *(f"x.div(0.3, rounding_mode={mode!r})" for mode in ("floor", "trunc")),
        "x.clone().zero_()",
        "x.clone().fill_(3)",
        "x.clone().copy_(torch.ones(2))",
        "x.clone().round_()",
        "(x + (x.round() - x).detach()).round()",
    ],
)
def test_step_functions_and_overwriting_pass_zeros(expression):
    assert gradient(expression, 0.22, 0.78) == [0.0, 0.0]


@pytest.mark.parametrize(
    "expression",
    [
        "x % 1",
        "x.frac()",
        "x - x.floor()",
        "torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)",
        "x + (x.round() - x).detach()",
    ],
)
def test_these_have_jumps_and_pass_the_whole_gradient(expression):
    assert gradient(expression, 0.22, 0.58) == [1.0, 1.0]


@pytest.mark.parametrize("expression", ["torch.heaviside(x, x.detach())", "x // 1"])
def test_these_refuse_instead(expression):
    with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
        gradient(expression, 0.22, 0.78)


def test_a_comparison_leaves_the_gradient_at_none():
    x, other = (torch.ones(2, requires_grad=True) for _ in range(2))
    ((x > 0) * other).sum().backward()
    assert x.grad is None and other.grad is not None


@pytest.mark.parametrize(
    "expression", ["torch.sigmoid(5 * x)", "torch.tanh(x)", "F.gumbel_softmax(x)[:1]"]
)
def test_the_stand_ins_for_step_functions_have_a_slope(expression):
    assert passes(expression, 0.22, 0.78)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop", "AdamW"])
def test_only_weight_decay_moves_a_parameter_with_zero_gradients(kind):
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.zeros(2)
    getattr(torch.optim, kind)([weight], lr=0.1).step()
    assert (weight < 1).all() if kind == "AdamW" else (weight == 1).all()


# --- flat where it is used --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "dtype", "still", "no_more"),
    [
        ("x.tanh()", torch.float32, 9.0, 9.1),
        ("x.tanh()", torch.float32, -9.0, -9.1),
        ("x.tanh()", torch.float64, 19.0, 19.1),
        ("x.tanh()", torch.float16, 4.5, 4.6),
        ("x.tanh()", torch.bfloat16, 3.4, 3.5),
        ("x.sigmoid()", torch.float32, 16.6, 17.0),
        ("x.sigmoid()", torch.float32, -87.0, -89.0),
        ("x.sigmoid()", torch.float16, 8.3, 8.4),
        ("x.sigmoid()", torch.bfloat16, 6.2, 6.3),
        ("x.exp()", torch.float32, -100.0, -104.5),
        ("torch.stack([x, 0 * x]).softmax(0)[1]", torch.float32, 100.0, 104.5),
        ("torch.stack([x, 0 * x]).softmax(0)[0]", torch.float32, -100.0, -104.5),
        ("x.clamp(0, 6)", torch.float32, 6.0, 6.1),
        ("F.hardtanh(x)", torch.float32, 0.9, 1.0),
        ("F.relu6(x)", torch.float32, 5.9, 6.0),
        ("F.hardsigmoid(x)", torch.float32, 2.9, 3.0),
    ],
)
def test_where_a_gradient_becomes_exactly_zero(expression, dtype, still, no_more):
    assert passes(expression, still, dtype=dtype)
    assert not passes(expression, no_more, dtype=dtype)


def test_losses_that_take_logits_correct_what_a_saturated_sigmoid_cannot():
    one = "torch.ones(1)"
    assert not passes(f"F.binary_cross_entropy(x.sigmoid(), {one})", -100.0)
    assert gradient(f"F.binary_cross_entropy_with_logits(x, {one})", -100.0) == [-1.0]
    assert gradient("F.cross_entropy(x, torch.tensor(0))", 0.0, 100.0) == [-1.0, 1.0]


def test_a_clamp_keeps_what_is_out_of_range_there_and_a_smooth_bound_does_not():
    assert gradient("x.clamp(0, 1)", -0.5, 0.0, 0.5, 1.0, 1.5) == [0.0, 1.0, 1.0, 1.0, 0.0]
    assert all(gradient("2 + (3 - 2) * torch.sigmoid(x)", -5.0, 5.0))


# --- relu and zeros ---------------------------------------------------------------------------


def test_relu_and_clamp_are_flat_below_zero_where_others_are_not():
    assert gradient("x.relu()", -3.0, 0.0, 3.0) == [0.0, 0.0, 1.0]
    assert gradient("x.clamp(min=0)", -3.0, 3.0) == [0.0, 1.0]
    for name in ("leaky_relu", "elu", "gelu", "softplus"):
        assert passes(f"F.{name}(x)", -3.0)
    assert passes("F.leaky_relu(x)", -1e6)
    assert not passes("F.gelu(x)", -20.0)
    assert torch.allclose(F.softplus(torch.tensor(20.0)), torch.tensor(20.0))


def test_one_step_that_is_too_large_can_kill_a_relu_for_good():
    torch.manual_seed(0)
    layer = nn.Linear(4, 1)
    nn.init.constant_(layer.bias, 1.0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=100.0)
    largest = []
    for _ in range(4):
        optimizer.zero_grad()
        layer(torch.rand(64, 4)).relu().square().mean().backward()
        largest.append(layer.weight.grad.abs().max().item())
        optimizer.step()
    assert largest[0] > 0 and largest[1:] == [0.0, 0.0, 0.0]


def test_a_hinge_that_is_satisfied_has_zero_gradients():
    assert gradient("torch.relu(1 - x).mean()", 2.0, 3.0) == [0.0, 0.0]


def trained(model: nn.Module, steps: int = 2) -> list[dict[str, bool]]:
    """For each step, which parameters had a gradient that was not all zero."""
    torch.manual_seed(0)
    x, target = torch.randn(16, 4), torch.randn(16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(x), target).backward()
        seen.append({name: bool(p.grad.any()) for name, p in model.named_parameters()})
        optimizer.step()
    return seen


class Product(nn.Module):
    """`x` times one matrix and then another, as in a low-rank adapter."""

    def __init__(self, down: torch.Tensor, up: torch.Tensor):
        super().__init__()
        self.down, self.up = nn.Parameter(down), nn.Parameter(up)

    def forward(self, x):
        return x + x @ self.down @ self.up


class Gated(nn.Module):
    def __init__(self, last_layer_is_zero: bool):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
        self.branch = nn.Linear(4, 4)
        if last_layer_is_zero:
            zeroed(self.branch)

    def forward(self, x):
        return x + self.gate * self.branch(x)


def zeroed(*layers: nn.Linear) -> None:
    for layer in layers:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)


def test_two_factors_of_zeros_keep_each_other_there_and_one_does_not():
    zeros = torch.zeros(4, 2), torch.zeros(2, 4)
    assert trained(Product(*zeros), 3) == [{"down": False, "up": False}] * 3
    assert trained(Product(torch.ones(4, 2), zeros[1])) == [
        {"down": False, "up": True},
        {"down": True, "up": True},
    ]
    assert not any(any(step.values()) for step in trained(Gated(True), 3))
    first, second = trained(Gated(False))
    assert first["gate"] and not first["branch.weight"]
    assert second["gate"] and second["branch.weight"]


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU(), nn.Identity()])
def test_of_two_layers_of_zeros_only_the_last_bias_learns(activation):
    model = nn.Sequential(nn.Linear(4, 8), activation, nn.Linear(8, 4))
    zeroed(model[0], model[2])
    names = ("0.weight", "0.bias", "2.weight", "2.bias")
    assert trained(model, 3) == [dict(zip(names, (False, False, False, True), strict=True))] * 3


def test_a_layer_of_zeros_learns_before_tanh_but_not_before_relu():
    for activation, learns in ((nn.Tanh(), True), (nn.ReLU(), False)):
        model = nn.Sequential(nn.Linear(4, 8), activation, nn.Linear(8, 4))
        zeroed(model[0])
        assert [step["0.weight"] for step in trained(model, 3)] == [learns] * 3


def test_units_that_start_equal_stay_equal():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    for layer in (model[0], model[2]):
        nn.init.constant_(layer.weight, 0.1)
        nn.init.zeros_(layer.bias)
    assert all(all(step.values()) for step in trained(model, 3))
    assert torch.allclose(model[0].weight, model[0].weight[:1].expand(8, 4))


# --- infinite and undefined -------------------------------------------------------------------

MASKED = "(x + torch.tensor([-math.inf, -math.inf])).softmax(0)"


@pytest.mark.parametrize(
    ("poisoned", "values", "instead"),
    [
        ("(x ** 2).sum().sqrt()", (0.0, 0.0), "torch.linalg.vector_norm(x)"),
        ("torch.hypot(x[0], x[1])", (0.0, 0.0), "x.norm()"),
        ("x.square().sqrt()", (0.0, 1.0), "torch.cdist(x[:, None], x[:, None])"),
        ("x.var().sqrt()", (1.0, 1.0), "x.std()"),
        ("x.var().sqrt()", (1.0, 1.0), "(x.var() + 1e-6).sqrt()"),
        ("x.abs() ** 0.5", (0.0, 1.0), "(x.abs() + 1e-6) ** 0.5"),
        ("x ** 1.5", (-1.0, 1.0), "(x.abs() + 1e-6) ** 0.5"),
        ("x / x.norm()", (0.0, 0.0), "F.normalize(x, dim=0)"),
        (
            "x @ torch.ones(2) / (x.norm() * 2)",
            (0.0, 0.0),
            "F.cosine_similarity(x, torch.ones(2), dim=0)",
        ),
        ("x.softmax(0).log()[1]", (0.0, 110.0), "x.log_softmax(0)[1]"),
        ("x.sigmoid().log()", (-110.0, 0.0), "F.logsigmoid(x)"),
        ("x * x.log()", (0.0, 1.0), "x * (x + 1e-6).log()"),
        ("torch.xlogy(x, x)", (0.0, 1.0), "x * (x + 1e-6).log()"),
        *(
            (f"x.square().{name}() * 0", (1.0, -1.0), f"x.clamp(-0.999, 0.999).{name}()")
            for name in ("acos", "asin", "atanh")
        ),
        ("x.std()", (1.0,), "x.std(correction=0)"),
        (MASKED, (0.0, 1.0), MASKED.replace("-math.inf", "0", 1)),
        ("x.exp().sum().log()", (89.0, 1.0), "x.logsumexp(0)"),
        ("(1 + x.exp()).log()", (89.0, 1.0), "F.softplus(x)"),
        ("x.exp() / x.exp().sum()", (89.0, 1.0), "(x - x.max()).exp()"),
    ],
)
@pytest.mark.filterwarnings("ignore:std")
def test_what_poisons_the_gradient_and_what_stands_in_for_it(poisoned, values, instead):
    assert poisons(poisoned, *values)
    assert all(map(math.isfinite, gradient(instead, *values)))


def test_norm_cdist_and_std_have_gradient_zero_at_zero():
    for expression in ("x.norm()", "torch.linalg.vector_norm(x)", "x.std()"):
        assert gradient(expression, 0.0, 0.0) == [0.0, 0.0]
    assert gradient("torch.cdist(x[:, None], x[:, None])[0, 0]", 1.0, 2.0) == [0.0, 0.0]


@pytest.mark.parametrize(
    "expression",
    [
        "torch.where(x > 0, x.log(), 0.0)",
        "torch.where(x > 0, x.sqrt(), 0.0)",
        "x.sqrt() * torch.tensor([0.0, 1.0])",
        "x.log().nan_to_num()",
        "x.square().sqrt() + 1e-6",
    ],
)
def test_what_does_not_help(expression):
    assert poisons(expression, 0.0, 4.0)


@pytest.mark.parametrize(
    "expression",
    [
        "torch.where(x > 0, torch.where(x > 0, x, 1.0).log(), 0.0)",
        "(x.square() + 1e-6).sqrt()",
    ],
)
def test_what_does_help(expression):
    assert not poisons(expression, 0.0, 4.0)


def test_one_nan_among_the_gradients_and_clipping_makes_all_of_them_nan():
    layer = nn.Linear(2, 2)
    layer.weight.grad, layer.bias.grad = torch.ones(2, 2), torch.tensor([math.nan, 1.0])
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    assert all(p.grad.isnan().all() for p in layer.parameters())


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in")
def test_anomaly_mode_names_the_operation_after_the_one_to_blame():
    with (
        torch.autograd.detect_anomaly(),
        pytest.raises(RuntimeError, match="'PowBackward0' returned nan values"),
    ):
        gradient("x.square().sum().sqrt()", 0.0, 0.0)


def test_a_gradient_scaler_skips_the_step_and_lowers_the_scale():
    weight = nn.Parameter(torch.zeros(2))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu")
    scale = scaler.get_scale()
    scaler.scale(weight.square().sum().sqrt()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.0, 0.0] and scaler.get_scale() < scale


# --- without bound ----------------------------------------------------------------------------


def test_a_random_matrix_stretches_by_about_the_root_of_its_size():
    torch.manual_seed(0)
    for size in (12, 100, 400):
        stretch = torch.linalg.eigvals(torch.randn(size, size)).abs().max()
        assert 0.7 < stretch / size**0.5 < 1.4
    assert 1e11 < (12**0.5) ** 24 < 1e14


def test_steps_that_overshoot_grow_until_they_overflow():
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.2)
    losses = []
    while math.isfinite(loss := weight.square().sum().item()):
        losses.append(loss)
        optimizer.zero_grad()
        weight.square().sum().backward()
        optimizer.step()
    assert losses == sorted(losses) and losses[1] / losses[0] < 2 and len(losses) > 50


def test_adam_hides_growth_and_stops_after_an_overflow_of_its_own():
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    for power in range(15):
        weight.grad = torch.tensor([10.0**power])
        before = weight.item()
        optimizer.step()
        assert 0.01 < before - weight.item() < 1
    weight.grad = torch.tensor([1e25])
    optimizer.step()
    stopped = weight.item()
    for _ in range(5):
        weight.grad = torch.ones(1)
        optimizer.step()
    assert weight.item() == stopped


def test_clipping_helps_with_large_gradients_and_comes_too_late_for_infinite_ones():
    layer = nn.Linear(1, 1)
    layer.weight.grad, layer.bias.grad = torch.tensor([[1e10]]), torch.tensor([1.0])
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    assert layer.weight.grad.item() == pytest.approx(1.0)
    layer.weight.grad = torch.tensor([[math.inf]])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0, error_if_nonfinite=True)
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    assert layer.weight.grad.isnan().all() and not layer.bias.grad.any()
