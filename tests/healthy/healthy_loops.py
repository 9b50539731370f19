"""Training loops of unusual shape."""

from __future__ import annotations

import torch
from healthy_helpers import Moved, regression
from torch import nn


def gradients_accumulated_over_four_batches() -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    moved = Moved(model)
    for step in range(8):
        x, target = regression()
        (nn.functional.mse_loss(model(x), target) / 4).backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert moved.all()


def two_losses_through_one_graph_that_is_retained() -> None:
    trunk, left, right = nn.Linear(6, 4), nn.Linear(4, 1), nn.Linear(4, 1)
    parameters = [*trunk.parameters(), *left.parameters(), *right.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    moved = Moved(parameters)
    x, target = regression()
    for _ in range(3):
        hidden = trunk(x).tanh()
        optimizer.zero_grad()
        nn.functional.mse_loss(left(hidden), target).backward(retain_graph=True)
        nn.functional.smooth_l1_loss(right(hidden), target).backward()
        optimizer.step()
    assert moved.all()


def lbfgs_with_a_closure() -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    moved = Moved(model)
    x, target = regression()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(3)]
    assert moved.all() and losses[-1] < losses[0]


def penalty_on_the_gradient_of_a_critic() -> None:
    critic = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)
    # The last bias moves neither the difference of two means nor the slope of the critic.
    moved = Moved([critic[0].weight, critic[0].bias, critic[2].weight])
    for _ in range(3):
        real, fake = torch.randn(8, 6) + 1, torch.randn(8, 6)
        between = real.lerp(fake, torch.rand(8, 1)).requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert moved.all()


def validation_under_no_grad_in_every_epoch() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    moved, best = Moved(model), float("inf")
    for _ in range(3):
        model.train()
        x, target = regression()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            best = min(best, nn.functional.mse_loss(model(x), target).item())
    assert moved.all() and best < float("inf")


@torch.inference_mode()
def evaluate(model: nn.Module) -> float:
    x, target = regression()
    return nn.functional.l1_loss(model(x), target).item()


def evaluation_before_training_begins() -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved, scores = Moved(model), [evaluate(model)]
    for _ in range(3):
        x, target = regression()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
        scores.append(evaluate(model))
    assert moved.all() and len(scores) == 4


def stop_early_once_the_loss_is_small() -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved, patience, best = Moved(model), 3, float("inf")
    x, target = regression()
    for _ in range(50):
        loss = nn.functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        patience = 3 if float(loss) < best else patience - 1
        best = min(best, float(loss))
        if best < 0.5 or not patience:
            break
    assert moved.all() and best < 0.5


def clipping_scheduling_and_mixed_precision() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    moved = Moved(model)
    for _ in range(3):
        x, target = regression()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            prediction = model(x)
        nn.functional.mse_loss(prediction.float(), target).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    assert moved.all()


def meta_learning_with_an_inner_step() -> None:
    weight = nn.Parameter(torch.randn(6, 1))
    rate = nn.Parameter(torch.tensor(0.05))
    optimizer = torch.optim.Adam([weight, rate], lr=0.01)
    moved = Moved([weight, rate])
    for _ in range(3):
        x, target = regression()
        inner = nn.functional.mse_loss(x @ weight, target)
        (gradient,) = torch.autograd.grad(inner, weight, create_graph=True)
        adapted = weight - rate * gradient
        optimizer.zero_grad()
        nn.functional.mse_loss(x @ adapted, target).backward()
        optimizer.step()
    assert moved.all()


def an_input_shaped_by_the_gradient() -> None:
    """Dreaming: the network stands still, its input is what learns."""
    network = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).requires_grad_(False)
    picture = torch.randn(1, 6, requires_grad=True)
    optimizer = torch.optim.Adam([picture], lr=0.1)
    moved, kept = Moved([picture]), Moved(network)
    for _ in range(4):
        optimizer.zero_grad()
        (-network(picture)[0, 1]).backward()
        optimizer.step()
        with torch.no_grad():
            picture.clamp_(-2, 2)
    assert moved.all() and kept.none()


def adversarial_examples_of_an_attacked_model() -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved = Moved(model)
    for _ in range(3):
        x, label = torch.randn(8, 6), torch.randint(0, 3, (8,))
        probe = x.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(nn.functional.cross_entropy(model(probe), label), probe)
        attacked = (x + 0.1 * slope.sign()).detach()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(attacked), label).backward()
        optimizer.step()
    assert moved.all()


def batches_without_anything_to_learn_from() -> None:
    """A batch without positives gives a constant loss, and the loop passes over it."""
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved, passed_over = Moved(model), 0
    for positives in (0, 3, 0, 5):
        x, loss = torch.randn(8, 6), torch.zeros(())
        for row in x[:positives]:
            loss = loss + nn.functional.softplus(-model(row)).sum()
        optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
            optimizer.step()
        else:
            passed_over += 1
    assert moved.all() and passed_over == 2
