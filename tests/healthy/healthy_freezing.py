"""Parts that stand still for a while, or for good, as they were told to."""

from __future__ import annotations

import torch
from healthy_helpers import Moved, regression
from torch import nn


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = 4) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        logits = model(torch.randn(16, 6))
        nn.functional.cross_entropy(logits, torch.randint(0, 3, (16,))).backward()
        optimizer.step()


def frozen_backbone_left_out_of_the_optimizer() -> None:
    model = Classifier()
    for parameter in model.backbone.parameters():
        parameter.requires_grad = False
    moved, kept = Moved(model.head), Moved(model.backbone)
    steps(model, torch.optim.Adam(model.head.parameters(), lr=0.01))
    assert moved.all() and kept.none()


def frozen_backbone_given_to_the_optimizer_as_well() -> None:
    """The optimizer passes over what is frozen: no harm is done."""
    model = Classifier()
    model.backbone.requires_grad_(False)
    moved, kept = Moved(model.head), Moved(model.backbone)
    steps(model, torch.optim.Adam(model.parameters(), lr=0.01))
    assert moved.all() and kept.none()


def features_from_a_backbone_under_no_grad() -> None:
    model = Classifier()
    optimizer = torch.optim.Adam(model.head.parameters(), lr=0.01)
    moved, kept = Moved(model.head), Moved(model.backbone)
    for _ in range(4):
        with torch.no_grad():
            features = model.backbone(torch.randn(16, 6))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model.head(features), torch.randint(0, 3, (16,)))
        loss.backward()
        optimizer.step()
    assert moved.all() and kept.none()


class LowRank(nn.Module):
    def __init__(self, inner: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inner.in_features) * 0.1)
        self.up = nn.Parameter(torch.randn(inner.out_features, rank) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + x @ self.down.T @ self.up.T


def low_rank_adapters_on_frozen_layers() -> None:
    model = nn.Sequential(LowRank(nn.Linear(6, 8)), nn.Tanh(), LowRank(nn.Linear(8, 3)))
    trainable = [p for p in model.parameters() if p.requires_grad]
    moved = Moved(trainable)
    kept = Moved([p for p in model.parameters() if not p.requires_grad])
    steps(model, torch.optim.AdamW(trainable, lr=0.01))
    assert len(trainable) == 4
    assert moved.all() and kept.none()


def warm_up_of_the_head_before_the_backbone_joins() -> None:
    model = Classifier()
    model.backbone.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved = Moved(model)
    steps(model, optimizer, 4)
    model.backbone.requires_grad_(True)
    steps(model, optimizer, 4)
    assert moved.all()


def warm_up_with_detached_features() -> None:
    """The backbone gets its first gradient late, in the fifth step: late is not never."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved = Moved(model)
    for step in range(8):
        features = model.backbone(torch.randn(16, 6))
        if step < 4:
            features = features.detach()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model.head(features), torch.randint(0, 3, (16,)))
        loss.backward()
        optimizer.step()
    assert moved.all()


def layers_thawed_one_after_the_other() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    model.requires_grad_(False)
    moved = Moved(model)
    for layer in reversed([model[0], model[2], model[4]]):
        layer.requires_grad_(True)
        steps(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))
    assert moved.all()


def discriminator_frozen_in_the_generators_step() -> None:
    generator, discriminator = nn.Linear(4, 6), nn.Linear(6, 1)
    make = torch.optim.SGD(generator.parameters(), lr=0.1)
    judge = torch.optim.SGD(discriminator.parameters(), lr=0.1)
    moved = Moved([*generator.parameters(), *discriminator.parameters()])
    for _ in range(4):
        discriminator.requires_grad_(True)
        judge.zero_grad()
        real, fake = torch.randn(8, 6) + 1, generator(torch.randn(8, 4)).detach()
        (discriminator(fake).sigmoid().mean() - discriminator(real).sigmoid().mean()).backward()
        judge.step()
        discriminator.requires_grad_(False)
        make.zero_grad()
        (-discriminator(generator(torch.randn(8, 4))).sigmoid().mean()).backward()
        make.step()
    assert moved.all()


def optimizers_that_take_turns() -> None:
    odd, even = nn.Linear(6, 4), nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (odd, even)]
    moved = Moved([*odd.parameters(), *even.parameters()])
    x, target = regression()
    for step in range(6):
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.mse_loss(even(odd(x).tanh()), target).backward()
        optimizers[step % 2].step()
    assert moved.all()


def policy_updated_less_often_than_its_critic() -> None:
    actor, critic = nn.Linear(6, 2), nn.Linear(8, 1)
    for_actor = torch.optim.Adam(actor.parameters(), lr=0.01)
    for_critic = torch.optim.Adam(critic.parameters(), lr=0.01)
    moved = Moved([*actor.parameters(), *critic.parameters()])
    for step in range(8):
        state, reward = torch.randn(16, 6), torch.randn(16, 1)
        with torch.no_grad():
            action = actor(state).tanh() + 0.1 * torch.randn(16, 2)
        value = critic(torch.cat([state, action], dim=1))
        for_critic.zero_grad()
        nn.functional.mse_loss(value, reward).backward()
        for_critic.step()
        if step % 4 == 3:
            for_actor.zero_grad()
            (-critic(torch.cat([state, actor(state).tanh()], dim=1)).mean()).backward()
            for_actor.step()
    assert moved.all()


def pretrained_embedding_kept_as_it_is() -> None:
    words = nn.Embedding.from_pretrained(torch.randn(20, 6))
    topic = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(topic.parameters(), lr=0.1)
    moved, kept = Moved(topic), Moved(words)
    for _ in range(3):
        logits = topic(words(torch.randint(0, 20, (8, 5))).mean(dim=1))
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, torch.randint(0, 3, (8,))).backward()
        optimizer.step()
    assert moved.all() and kept.none()
