"""What the pages about the order of a training step say about torch, checked against torch."""

import warnings
from itertools import pairwise

import hand_checks
import pytest
import torch
from claim_helpers import ORDER_ERRORS, SCHEDULER_FIRST, error_of, evaluate, layers
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from whygrad import explain

X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.0, -0.5], [-1.5, 1.0, 0.5], [0.0, 2.0, 1.0]])


@pytest.mark.parametrize("expression", ORDER_ERRORS)
def test_these_raise(expression):
    assert error_of(expression).startswith(ORDER_ERRORS[expression])


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize(
    "code",
    [
        "gradients-not-zeroed",
        "gradients-zeroed-before-step",
        "step-missing",
        "backward-missing",
        "clip-misplaced",
        "scheduler-before-optimizer",
    ],
)
def test_the_check_by_hand_catches_the_failing_example_alone(code):
    assert hand_checks.outcomes(code) == ["caught", "passed"]


def loss_of(net, x=X):
    return (net(x) - x.sum(dim=1, keepdim=True)).square().mean()


def train(order: str, steps=30, kind=torch.optim.SGD, **options):
    """The losses and the last weights of a loop that does what `order` lists."""
    net, losses = layers(), []
    optimizer = kind(net.parameters(), **{"lr": 0.1} | options)
    for _ in range(steps):
        for word in order.split():
            if word == "zero":
                optimizer.zero_grad()
            elif word == "fill":
                optimizer.zero_grad(set_to_none=False)
            elif word == "forward":
                loss = loss_of(net)
                losses.append(loss.item())
            elif word == "backward":
                loss.backward()
            elif word == "clip":
                clip_grad_norm_(net.parameters(), 0.01)
            elif word == "step":
                optimizer.step()
            else:
                raise ValueError(word)
    return losses, torch.cat([p.detach().flatten() for p in net.parameters()])


START = torch.cat([p.detach().flatten() for p in layers().parameters()])


# --- gradients-not-zeroed ---------------------------------------------------------------------


def test_sgd_without_clearing_is_sgd_with_a_momentum_of_one():
    _, never_cleared = train("forward backward step")
    _, full_momentum = train("zero forward backward step", momentum=1.0)
    assert torch.allclose(never_cleared, full_momentum, atol=1e-4)
    _, healthy = train("zero forward backward step")
    assert not torch.allclose(never_cleared, healthy, atol=0.1)


def first_rise(order: str, **options) -> int | None:
    """The step before which the loss went up for the first time, of the first 100."""
    losses, _ = train(order, steps=100, **options)
    rises = (step for step, pair in enumerate(pairwise(losses)) if pair[1] > pair[0])
    return next(rises, None)


def test_the_loss_rises_again_and_a_small_learning_rate_or_adam_only_puts_it_off():
    rates = (0.1, 0.02, 0.004)
    rises = [first_rise("forward backward step", lr=rate) for rate in rates]
    assert 0 < rises[0] < rises[1] < rises[2]
    assert {first_rise("zero forward backward step", lr=rate) for rate in rates} == {None}
    assert first_rise("forward backward step", kind=torch.optim.Adam) > rises[0]


def test_where_the_clearing_stands_makes_no_difference():
    orders = ["zero forward backward step", "forward zero backward step"]
    orders += ["forward backward step zero"]
    first, *others = [train(order)[1] for order in orders]
    assert all(torch.equal(first, other) for other in others)
    assert not torch.equal(first, START)


def test_zero_grad_without_parentheses_clears_nothing_and_with_them_only_its_own():
    one, other = nn.Linear(3, 1), nn.Linear(3, 1)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    both = nn.ModuleList([one, other])
    (one(X) + other(X)).sum().backward()
    optimizer.zero_grad  # noqa: B018
    assert one.weight.grad is not None
    optimizer.zero_grad()
    assert one.weight.grad is None and other.weight.grad is not None
    both.zero_grad()
    assert other.weight.grad is None


@pytest.mark.parametrize("clears", [True, False])
def test_the_closure_of_lbfgs_must_clear(clears):
    weight = nn.Parameter(torch.ones(2))
    optimizer, calls = torch.optim.LBFGS([weight], max_iter=5), []

    def closure():
        calls.append(1)
        if clears:
            optimizer.zero_grad()
        loss = (weight - 3).square().sum()
        loss.backward()
        return loss

    optimizer.zero_grad()
    optimizer.step(closure)
    assert len(calls) > 1
    assert torch.allclose(weight, torch.tensor(3.0)) == clears


def test_accumulation_gives_the_gradient_of_the_whole_batch():
    whole, parts = layers(), layers()
    loss_of(whole).backward()
    for part in X.split(2):
        (loss_of(parts, part) / 2).backward()
    assert torch.allclose(whole[0].weight.grad, parts[0].weight.grad)


def test_the_backward_of_a_generator_leaves_gradients_in_the_discriminator():
    generator, discriminator = nn.Linear(3, 2), nn.Linear(2, 1)
    discriminator(generator(X)).sum().backward()
    assert discriminator.weight.grad is not None
    discriminator.zero_grad()
    assert generator.weight.grad is not None


# --- gradients-zeroed-before-step -------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_a_step_without_gradients_does_nothing_and_says_nothing(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses, weights = train("forward backward zero step", kind=kind, weight_decay=0.1)
    assert len(set(losses)) == 1 and torch.equal(weights, START)


def test_with_zeros_weight_decay_and_momentum_go_on():
    _, decayed = train("forward backward fill step", weight_decay=0.1)
    assert torch.allclose(decayed, START * (1 - 0.1 * 0.1) ** 30)
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    assert weight.item() == pytest.approx(1 - 0.1 - 0.09)


def test_clearing_in_each_micro_batch_leaves_the_last_one():
    cleared, alone = layers(), layers()
    for part in X.split(1):
        cleared.zero_grad()
        loss_of(cleared, part).backward()
    loss_of(alone, X[-1:]).backward()
    assert torch.equal(cleared[0].weight.grad, alone[0].weight.grad)


# --- step-missing, backward-missing -----------------------------------------------------------


@pytest.mark.parametrize("order", ["zero forward backward", "zero forward step"])
def test_nothing_moves_without_a_step_or_without_backward(order):
    losses, weights = train(order)
    assert len(set(losses)) == 1 and torch.equal(weights, START)


def test_methods_without_parentheses_do_nothing():
    net = layers()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss = loss_of(net)
    loss.backward  # noqa: B018
    assert net[0].weight.grad is None
    loss.backward()
    optimizer.step  # noqa: B018
    assert torch.equal(torch.cat([p.flatten() for p in net.parameters()]), START)


def test_a_scheduler_changes_the_rate_and_not_the_weights():
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = StepLR(optimizer, 1, gamma=0.5)
    weight.sum().backward()
    with pytest.warns(UserWarning, match="Detected call of"):
        scheduler.step()
    assert weight.tolist() == [1.0, 1.0] and optimizer.param_groups[0]["lr"] == 0.5


def test_five_batches_never_get_to_eight():
    due = [i for _ in range(3) for i, _ in enumerate("abcde") if (i + 1) % 8 == 0]
    over_all_epochs = [i for i in range(3 * 5) if (i + 1) % 8 == 0]
    assert (due, over_all_epochs) == ([], [7])
    assert "(i + 1) % 8 == 0" in explain.page("step-missing").text


def test_update_alone_raises_what_the_page_quotes():
    (expression,) = (text for text in ORDER_ERRORS if text.endswith("scaler.update())"))
    assert f"`{error_of(expression)}`" in explain.page("step-missing").text


def test_gradients_that_do_not_go_where_the_optimizer_looks():
    one, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    (gradient,) = torch.autograd.grad((one * 3).sum(), one)
    assert gradient.tolist() == [3.0, 3.0] and one.grad is None
    (one * other).sum().backward(inputs=[other])
    assert one.grad is None and other.grad is not None
    one.grad = gradient
    torch.optim.SGD([one], lr=0.1).step()
    assert one.tolist() == pytest.approx([0.7, 0.7])


def test_a_closure_without_backward_moves_nothing_and_says_nothing():
    weight = nn.Parameter(torch.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.optim.LBFGS([weight]).step(lambda: (weight - 3).square().sum())
    assert weight.tolist() == [1.0, 1.0]


# --- clip-misplaced ---------------------------------------------------------------------------


def test_clipping_works_in_one_place_only():
    _, unclipped = train("zero forward backward step")
    for order in ("zero clip forward backward step", "zero forward backward step clip"):
        assert torch.equal(train(order)[1], unclipped)
    _, clipped = train("zero forward backward clip step")
    assert (clipped - START).norm() < 30 * 0.1 * 0.011 < (unclipped - START).norm()


def test_clipping_the_rest_of_the_last_step_does_not_limit_the_next():
    weight = nn.Parameter(torch.ones(1))
    (weight * 10).sum().backward()
    clip_grad_norm_([weight], 1.0)
    assert weight.grad.item() == pytest.approx(1.0)
    (weight * 10).sum().backward()
    assert weight.grad.item() == pytest.approx(11.0)


def test_what_the_clipping_functions_return_and_say():
    weight = nn.Parameter(torch.ones(1))
    assert clip_grad_norm_([weight], 1.0) == 0 == clip_grad_norm_([], 1.0)
    (weight * 10).sum().backward()
    assert get_total_norm([weight.grad]) == 10 and weight.grad.item() == 10
    assert clip_grad_norm_([weight], 1.0) == 10
    clip_grad_value_([weight], 0.5)
    assert weight.grad.item() == 0.5
    parameters = nn.Linear(1, 1).parameters()
    assert len(list(parameters)) == 2
    with pytest.warns(UserWarning, match="empty generator"):
        assert clip_grad_norm_(parameters, 1.0) == 0


def test_scaled_gradients_must_be_unscaled_before_clipping():
    weight, scaler = nn.Parameter(torch.ones(1)), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.scale(weight.sum()).backward()
    assert weight.grad.item() > 1000
    scaler.unscale_(optimizer)
    assert weight.grad.item() == 1


# --- scheduler-before-optimizer ---------------------------------------------------------------


def scheduled(order: str, made_after_a_step=False, kind=StepLR, turns=3):
    """The learning rates that the steps used, and how often torch warned."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=8.0)
    if made_after_a_step:
        optimizer.step()
    scheduler = kind(optimizer, 1, gamma=0.5) if kind is StepLR else kind(optimizer)
    rates = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(turns):
            for word in order.split():
                if word == "step":
                    rates.append(optimizer.param_groups[0]["lr"])
                    optimizer.step()
                elif kind is StepLR:
                    scheduler.step()
                else:
                    scheduler.step(1.0)
    return rates, [str(warning.message)[:16] for warning in caught]


def test_the_first_rate_is_skipped_and_the_others_come_early():
    assert scheduled("step schedule") == ([8.0, 4.0, 2.0], [])
    assert scheduled("schedule step") == ([4.0, 2.0, 1.0], ["Detected call of"])


def test_when_the_warning_comes():
    detected = ["Detected call of"]
    assert scheduled("schedule")[1] == detected
    assert scheduled("schedule step", made_after_a_step=True)[1] == detected
    assert scheduled("step schedule", made_after_a_step=True)[1] == []
    assert scheduled("schedule step", kind=ReduceLROnPlateau)[1] == []
    assert evaluate(SCHEDULER_FIRST)[1][0].startswith(detected[0])


def test_the_warning_as_an_error_shows_the_line():
    program = explain.page("scheduler-before-optimizer").failing
    with warnings.catch_warnings(), pytest.raises(UserWarning) as caught:
        warnings.simplefilter("error", UserWarning)
        exec(program, {})
    (line,) = [entry.lineno for entry in caught.traceback if str(entry.path) == "<string>"]
    assert program.splitlines()[line].strip() == "scheduler.step()"


def test_a_loaded_scheduler_does_not_warn():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=8.0)
    earlier = StepLR(optimizer, 1)
    optimizer.step()
    earlier.step()
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=8.0)
    resumed = StepLR(optimizer, 1)
    resumed.load_state_dict(earlier.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed.step()
    assert resumed.last_epoch == 2


def test_a_scaler_that_skips_the_first_step_brings_the_warning_and_lowers_its_scale():
    weight, scaler = nn.Parameter(torch.ones(1)), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = StepLR(optimizer, 1)
    scaler.scale((weight * torch.inf).sum()).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    assert weight.item() == 1 and scaler.get_scale() == before / 2
    with pytest.warns(UserWarning, match="Detected call of"):
        scheduler.step()


def test_an_empty_step_sets_a_scheduler_going():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=8.0)
    scheduler = StepLR(optimizer, 1, gamma=0.5)
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 4.0
