"""What the page about derivatives that raise says about torch, checked against torch."""

import pytest
import torch
from torch import nn


def test_a_view_costs_nothing_and_its_gradient_does():
    scale = nn.Parameter(torch.ones(1))
    table = scale.expand(1000, 1000)
    assert table.untyped_storage().nbytes() == scale.untyped_storage().nbytes()
    table.retain_grad()
    table[3, :5].sum().backward()
    assert table.grad.untyped_storage().nbytes() == 4 * 1000 * 1000


def test_autograd_lets_go_of_what_an_operation_kept_when_it_is_done():
    seen = []
    x = torch.ones(2, requires_grad=True)
    first = x.exp()
    last = first.sin()

    def look(gradient):
        for value in (last, first):
            try:
                seen.append(
                    value.grad_fn._saved_self if value is last else first.grad_fn._saved_result
                )
            except RuntimeError:
                seen.append(None)

    first.register_hook(look)
    last.sum().backward()
    assert seen[0] is None
    assert seen[1] is not None


def test_sizes_that_do_not_fit_come_from_a_change_behind_its_back():
    layer = nn.Linear(2, 2)
    loss = layer(torch.ones(3, 2, requires_grad=True)).sum()
    layer.weight.data = torch.ones(5, 7)
    with pytest.raises(RuntimeError, match=r"shapes|size"):
        loss.backward()
