"""What the pages about scalers, optimizers, schedulers and layouts say, checked against torch."""

import warnings

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR, StepLR

LISTED_TWICE = "optimizer contains a parameter group with duplicate parameters"


def scaled(scale=1024.0, enabled=True):
    """A parameter with a scaled gradient of one, its optimizer and the scaler."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=enabled)
    scaler.scale(weight.sum()).backward()
    return weight, optimizer, scaler


# --- scaler-misuse ------------------------------------------------------------------------------


def test_the_scale_is_65536_by_default():
    assert torch.amp.GradScaler("cpu").get_scale() == 65536.0


def test_a_direct_step_uses_the_scaled_gradient():
    weight, optimizer, _ = scaled()
    optimizer.step()
    assert weight.item() == -1024.0


def test_a_step_through_the_scaler_uses_the_unscaled_one():
    weight, optimizer, scaler = scaled()
    scaler.step(optimizer)
    assert weight.item() == -1.0


def test_unscaling_first_makes_a_direct_step_right():
    weight, optimizer, scaler = scaled()
    scaler.unscale_(optimizer)
    optimizer.step()
    assert weight.item() == -1.0


def test_clipping_scaled_gradients_leaves_nearly_nothing_of_them():
    weight, optimizer, scaler = scaled()
    nn.utils.clip_grad_norm_([weight], 1.0)
    scaler.step(optimizer)
    assert abs(weight.item()) < 0.001


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (["step", "step"], "step() has already been called since the last update()."),
        (["unscale_", "unscale_"], "unscale_() has already been called on this optimizer"),
        (["step", "unscale_"], "unscale_() is being called after step()."),
        (["update"], "No inf checks were recorded prior to update."),
    ],
)
def test_the_scaler_notices_what_is_doubled_or_missing(calls, message):
    _, optimizer, scaler = scaled()
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        for call in calls:
            getattr(scaler, call)(*([] if call == "update" else [optimizer]))
    assert str(caught.value).startswith(message)


def test_without_scale_there_is_no_step():
    weight = nn.Parameter(torch.zeros(1))
    weight.sum().backward()
    with pytest.raises(AssertionError, match="Attempted step but _scale is None"):
        torch.amp.GradScaler("cpu").step(torch.optim.SGD([weight], lr=1.0))


def test_half_precision_parameters_are_refused():
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float16))
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(weight.float().sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(torch.optim.SGD([weight], lr=1.0))


def test_a_step_with_an_overflow_is_left_out_and_the_scale_becomes_smaller():
    weight, optimizer, scaler = scaled()
    weight.grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    assert weight.item() == 0.0 and scaler.get_scale() == 512.0


def test_a_disabled_scaler_does_nothing():
    weight, optimizer, scaler = scaled(enabled=False)
    scaler.update()
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)
    assert weight.grad.item() == 1.0 and scaler.state_dict() == {}


# --- sparse-gradient ----------------------------------------------------------------------------


def table(sparse=True):
    emb = nn.Embedding(5, 2, sparse=sparse)
    emb(torch.tensor([1, 1, 3])).sum().backward()
    return emb


def test_a_sparse_gradient_holds_the_used_rows():
    gradient = table().weight.grad.coalesce()
    assert gradient.layout is torch.sparse_coo
    assert gradient.indices().tolist() == [[1, 3]]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam])
def test_these_take_sparse_gradients(kind):
    emb = table()
    before = emb.weight.detach().clone()
    kind(emb.parameters(), lr=0.1).step()
    assert not torch.equal(before[1], emb.weight[1]) and torch.equal(before[0], emb.weight[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: torch.optim.Adam(p), "Adam does not support sparse gradients"),
        (lambda p: torch.optim.AdamW(p), "Adam does not support sparse gradients"),
        (lambda p: torch.optim.SGD(p, weight_decay=0.1), "add(sparse, dense) is not supported"),
        (lambda p: torch.optim.Adagrad(p, weight_decay=0.1), "weight_decay option is not compat"),
        (lambda p: torch.optim.SGD(p, fused=True), "`_fused_sgd` does not support sparse"),
    ],
)
def test_these_do_not(make, message):
    with pytest.raises(RuntimeError) as caught:
        make(table().parameters()).step()
    assert str(caught.value).startswith(message)


def test_sparse_adam_takes_nothing_else():
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        torch.optim.SparseAdam(table(sparse=False).parameters()).step()


def test_a_sparse_gradient_has_no_norm_to_clip_by():
    with pytest.raises(NotImplementedError, match=r"linalg_vector_norm.*Sparse"):
        nn.utils.clip_grad_norm_(table().parameters(), 1.0)


# --- optimizer-arguments ------------------------------------------------------------------------


def test_a_parameter_listed_twice_is_updated_twice():
    weight = nn.Parameter(torch.zeros(1))
    with pytest.warns(UserWarning, match=LISTED_TWICE):
        optimizer = torch.optim.SGD([weight, weight], lr=1.0, foreach=False)
    weight.sum().backward()
    optimizer.step()
    assert weight.item() == -2.0


def test_two_groups_with_one_parameter_are_refused():
    net = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="appear in more than one parameter group"):
        torch.optim.SGD([{"params": net.parameters()}, {"params": [net.bias]}], lr=0.1)


def test_muon_takes_matrices_only():
    net = nn.Linear(2, 2)
    torch.optim.Muon([net.weight])
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        torch.optim.Muon([net.bias])


def test_lbfgs_needs_a_closure():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'closure'"):
        torch.optim.LBFGS([nn.Parameter(torch.zeros(1))]).step()


# --- scheduler-misuse ---------------------------------------------------------------------------


def optimizer_at(rate):
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=rate)


def test_a_one_cycle_schedule_has_no_rate_after_its_end():
    optimizer = optimizer_at(0.1)
    scheduler = OneCycleLR(optimizer, 0.1, total_steps=3)
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    with pytest.raises(ValueError, match="Tried to step 4 times"):
        scheduler.step()


def test_get_lr_is_not_the_rate_in_use():
    optimizer = optimizer_at(1.0)
    scheduler = StepLR(optimizer, 2, gamma=0.5)
    for _ in range(2):
        optimizer.step()
        scheduler.step()
    with pytest.warns(UserWarning, match="please use `get_last_lr"):
        computed = scheduler.get_lr()
    assert computed != scheduler.get_last_lr() == [optimizer.param_groups[0]["lr"]]


# --- anomaly-mode-on ----------------------------------------------------------------------------


def test_detect_anomaly_warns_and_set_detect_anomaly_does_not():
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
        torch.autograd.detect_anomaly()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autograd.set_detect_anomaly(True):
            assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_enabled()


@pytest.mark.filterwarnings("ignore:.*(Anomaly|Error detected)")
@pytest.mark.parametrize("check", [True, False])
def test_anomaly_mode_raises_for_nan_unless_told_otherwise(check):
    x = torch.zeros(1, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True, check_nan=check):
        y = (x / x).sum()
        if check:
            with pytest.raises(RuntimeError, match="returned nan values"):
                y.backward()
        else:
            y.backward()
            assert x.grad.isnan().all()


# --- gradient-layout ----------------------------------------------------------------------------


def test_autograd_gives_a_gradient_the_strides_of_its_parameter():
    weight = nn.Parameter(torch.randn(2, 3).t())
    (torch.randn(4, 3) @ weight).sum().backward()
    assert weight.grad.stride() == weight.stride() == (1, 3)


@pytest.mark.filterwarnings("ignore:.*gradient layout contract")
def test_a_gradient_that_was_assigned_keeps_its_own():
    weight = nn.Parameter(torch.randn(2, 3).t())
    weight.grad = torch.zeros(3, 2)
    (torch.randn(4, 3) @ weight).sum().backward()
    assert weight.grad.stride() == (2, 1)
