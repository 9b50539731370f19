"""In-place writes that autograd takes in its stride."""

from __future__ import annotations

import torch
from healthy_helpers import Moved, all_have_gradients, regression
from torch import nn


def add_in_place_after_scaling() -> None:
    """x * 3 does not save its output: writing to it is fine."""
    x = torch.randn(5, requires_grad=True)
    y = x * 3
    y.add_(1)
    (y**2).sum().backward()
    assert torch.allclose(x.grad, 6 * (3 * x.detach() + 1))


def scale_in_place_after_a_linear_layer() -> None:
    first, second = nn.Linear(6, 4), nn.Linear(4, 1)
    x, target = regression()
    intermediate = first(x)
    intermediate *= 2.0
    nn.functional.mse_loss(second(intermediate), target).backward()
    assert all_have_gradients(*first.parameters(), *second.parameters())


def relu_in_place_after_a_convolution() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4 * 36, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved = Moved(model)
    for _ in range(3):
        optimizer.zero_grad()
        logits = model(torch.randn(8, 1, 8, 8))
        nn.functional.cross_entropy(logits, torch.randint(0, 2, (8,))).backward()
        optimizer.step()
    assert moved.all()


def write_a_parameter_into_a_buffer() -> None:
    """z[:, 0] = parameter keeps the parameter's gradient."""
    start, rest = nn.Parameter(torch.randn(4)), torch.randn(4, 3)
    z = torch.zeros(4, 4)
    z[:, 0] = start
    z[:, 1:] = rest
    z.square().sum().backward()
    assert torch.allclose(start.grad, 2 * start.detach())


def mask_attention_scores_in_place() -> None:
    query, key = nn.Linear(6, 6), nn.Linear(6, 6)
    x = torch.randn(2, 5, 6)
    scores = query(x) @ key(x).transpose(1, 2)
    scores.masked_fill_(torch.ones(5, 5).triu(1).bool(), float("-inf"))
    (scores.softmax(-1) @ x).square().mean().backward()
    assert all_have_gradients(query.weight, key.weight)


def residual_stream_added_to_in_place() -> None:
    blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
    stream = torch.randn(4, 6)
    stream = stream + blocks[0](stream)
    for block in blocks[1:]:
        stream += torch.tanh(block(stream.clone()))
    stream.square().mean().backward()
    assert all_have_gradients(*blocks.parameters())


def gradient_descent_by_hand_under_no_grad() -> None:
    weight = torch.randn(6, 1, requires_grad=True)
    moved = Moved([weight])
    x, target = regression()
    for _ in range(4):
        loss = nn.functional.mse_loss(x @ weight, target)
        loss.backward()
        with torch.no_grad():
            weight -= 0.05 * weight.grad
            weight.grad.zero_()
    assert moved.all()
    assert nn.functional.mse_loss(x @ weight, target) < loss


def critic_weights_clipped_after_each_step() -> None:
    critic = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=0.01)
    moved = Moved([critic[0].weight, critic[2].weight])
    for _ in range(3):
        optimizer.zero_grad()
        (critic(torch.randn(8, 6) + 1).mean() - critic(torch.randn(8, 6)).mean()).backward()
        optimizer.step()
        for parameter in critic.parameters():
            parameter.data.clamp_(-0.05, 0.05)
    assert moved.all()
    assert max(p.abs().max() for p in critic.parameters()) <= 0.05


def initialise_in_place_before_training() -> None:
    model = nn.Linear(6, 1)
    nn.init.kaiming_normal_(model.weight)
    with torch.no_grad():
        model.bias.fill_(0.5)
    model.weight.data.mul_(0.1)
    x, target = regression()
    nn.functional.mse_loss(model(x), target).backward()
    assert all_have_gradients(*model.parameters())
