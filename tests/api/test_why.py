"""`whygrad.why`: for a tensor, a parameter or a module, with and without a record."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import whygrad


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            right = self.right(x)
        return self.left(x) + right


def test_a_cut_tensor_is_explained_from_the_record() -> None:
    with whygrad.watch(quiet=True):
        model = nn.Linear(3, 1)
        output = model(torch.ones(2, 3))
        features = output.data
        answer = whygrad.why(features)
    assert answer.finding is not None
    assert answer.finding.code == "detach-call"
    assert answer.finding.location.text == "features = output.data"
    assert answer.finding.title == "`.data` cuts `features` off from every parameter (2 of 2)"
    assert str(answer).startswith("warning[detach-call]")
    assert repr(answer) == str(answer)


def test_a_live_tensor_says_what_it_reaches() -> None:
    with whygrad.watch(quiet=True):
        model = nn.Linear(3, 1)
        loss = model(torch.ones(2, 3)).sum()
        answer = whygrad.why(loss)
    assert answer.finding is None
    assert "`loss` carries gradient" in str(answer)
    assert "2 leaf tensors" in str(answer)
    assert "`weight`" in str(answer)


def test_a_parameter_without_gradient_is_explained() -> None:
    with whygrad.watch(quiet=True):
        model = Branches()
        model(torch.ones(2, 3)).sum().backward()
        missing, present = whygrad.why(model.right.weight), whygrad.why(model.left.weight)
    assert missing.finding is not None
    assert missing.finding.code == "no-grad-block"
    assert missing.finding.parameters == ["right.weight"]
    assert present.finding is None
    assert "has a gradient" in str(present)


def test_a_module_is_a_table_with_the_reason() -> None:
    with whygrad.watch(quiet=True):
        model = Branches()
        model(torch.ones(2, 3)).sum().backward()
        answer = whygrad.why(model)
    assert "2 of 4 parameters of `model` have a gradient" in str(answer)
    assert answer.parameters["right.bias"] == "no gradient"
    assert answer.parameters["left.bias"].startswith("gradient, norm")
    assert answer.finding is not None
    assert answer.finding.parameters == ["right.weight", "right.bias"]


def test_outside_a_watch_it_says_what_autograd_knows_and_how_to_learn_more() -> None:
    model = nn.Linear(3, 1)
    live = model(torch.ones(2, 3))
    assert "reaches 2 leaf tensors" in str(whygrad.why(live))
    cut = live.detach()
    assert "whygrad.watch()" in str(whygrad.why(cut))
    assert whygrad.why(cut).finding is None
    assert "has none" in str(whygrad.why(model.weight))
    assert "0 of 2 parameters" in str(whygrad.why(model))


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="a tensor, a parameter or a module"):
        whygrad.why(3)


def test_asking_changes_nothing() -> None:
    with whygrad.watch(quiet=True) as w:
        model = Branches()
        output = model(torch.ones(2, 3))
        before = torch.get_rng_state()
        whygrad.why(output)
        whygrad.why(output.detach())
        assert torch.equal(before, torch.get_rng_state())
        assert model.left.weight.grad is None
    assert w.findings == []
