"""Operations that are said to stop gradients, and do not where it counts."""

from __future__ import annotations

import torch
from healthy_helpers import Moved, all_have_gradients, regression
from torch import nn
from torch.utils.checkpoint import checkpoint


def clamp_passes_gradient() -> None:
    """Inside the bounds, and at the border too, the gradient of clamp is one."""
    x = torch.tensor([-2.0, -1.0, 0.5, 1.0, 3.0], requires_grad=True)
    x.clamp(-1, 1).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]


def multiply_by_a_tensor_without_gradient() -> None:
    weight = nn.Parameter(torch.randn(6))
    mask = torch.tensor([1.0, 0, 1, 0, 1, 1])
    (weight * mask).square().sum().backward()
    assert (weight.grad != 0).tolist() == mask.bool().tolist()


def a_new_tensor_is_not_a_detached_one() -> None:
    t = torch.randn(4, requires_grad=True)
    out = t * 2.0
    copy = out.clone()
    copy.contiguous().view(2, 2).sum().backward()
    assert t.grad.tolist() == [2.0] * 4


def constructors_of_one_tensor_keep_the_graph() -> None:
    """Only lists of tensors are taken apart; a tensor as such is handed on."""
    t = torch.randn(3, requires_grad=True)
    (torch.Tensor(t * 2).sum() + torch.as_tensor(t * 3).sum()).backward()
    assert t.grad.tolist() == [5.0] * 3


def rounding_in_a_straight_through_estimator() -> None:
    scale, encoder = nn.Parameter(torch.tensor(3.0)), nn.Linear(6, 4)
    x = torch.randn(8, 6)
    latent = encoder(x) * scale
    quantised = latent + (latent.round() - latent).detach()
    (quantised / scale).square().mean().backward()
    assert all_have_gradients(scale, *encoder.parameters())


def sign_and_unique_beside_the_loss() -> None:
    model = nn.Linear(6, 3)
    out = model(torch.randn(8, 6))
    agreement = (out.sign() == 1).float().mean()
    distinct = torch.unique(out.round())
    out.square().mean().backward()
    assert 0 <= agreement <= 1 and distinct.numel() > 0
    assert all_have_gradients(*model.parameters())


def argmax_for_the_accuracy() -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    moved, correct = Moved(model), 0
    for _ in range(4):
        x, label = torch.randn(16, 6), torch.randint(0, 3, (16,))
        logits = model(x)
        correct += int((logits.argmax(dim=1) == label).sum())
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, label).backward()
        optimizer.step()
    assert moved.all() and 0 <= correct <= 64


def gumbel_softmax_with_hard_samples() -> None:
    chooser, values = nn.Linear(6, 4), nn.Parameter(torch.randn(4, 2))
    choice = nn.functional.gumbel_softmax(chooser(torch.randn(8, 6)), hard=True)
    (choice @ values).square().mean().backward()
    assert all_have_gradients(*chooser.parameters())


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 2) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, chosen = self.gate(x).softmax(-1).topk(2)
        out = x.new_zeros(len(x), 2)
        for number, expert in enumerate(self.experts):
            row, place = (chosen == number).nonzero(as_tuple=True)
            if len(row):
                out.index_add_(0, row, weight[row, place, None] * expert(x[row]))
        return out


def experts_that_no_token_was_routed_to() -> None:
    model = Experts()
    with torch.no_grad():
        model.gate.bias.copy_(torch.tensor([9.0, 9.0, -9.0, -9.0]))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    moved = Moved([*model.gate.parameters(), *model.experts[:2].parameters()])
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(16, 6)).square().mean().backward()
        optimizer.step()
    assert moved.all()
    assert model.experts[3].weight.grad is None


def positions_and_masks_from_integers() -> None:
    words, place = nn.Embedding(20, 6), nn.Embedding(8, 6)
    tokens = torch.randint(1, 20, (4, 8))
    mask = (tokens != 0).float().unsqueeze(-1)
    hidden = words(tokens) + place(torch.arange(8))
    ((hidden * mask).sum(1) / mask.sum(1)).square().mean().backward()
    assert all_have_gradients(words.weight, place.weight)


def sorting_and_selecting_by_index() -> None:
    scorer = nn.Linear(6, 1)
    x, target = regression()
    score = scorer(x).squeeze(1)
    best = score.sort(descending=True)
    worst = score[target.squeeze(1).argsort()[:4]]
    (worst.sum() - best.values[:4].sum()).backward()
    assert all_have_gradients(scorer.weight)


def a_block_under_checkpointing() -> None:
    block, head = nn.Sequential(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 1)
    optimizer = torch.optim.SGD([*block.parameters(), *head.parameters()], lr=0.1)
    moved = Moved([*block.parameters(), *head.parameters()])
    x, target = regression()
    for _ in range(3):
        optimizer.zero_grad()
        out = head(checkpoint(block, x, use_reentrant=False))
        nn.functional.mse_loss(out, target).backward()
        optimizer.step()
    assert moved.all()


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


def a_function_of_ones_own() -> None:
    """forward() of a custom Function runs with gradients off, and that is no cut."""
    model = nn.Linear(6, 2)
    Cube.apply(model(torch.randn(4, 6))).sum().backward()
    assert all_have_gradients(*model.parameters())
