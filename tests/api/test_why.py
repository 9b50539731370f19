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
    assert str(answer).splitlines()[:7] == [
        "2 of 4 parameters of `model` have a gradient",
        "",
        "  parameter     shape   max |grad|  why",
        "  left.weight   [1, 3]  2",
        "  left.bias     [1]     2",
        "  right.weight  [1, 3]  none        no-grad-block",
        "  right.bias    [1]     none        no-grad-block",
    ]
    assert str(answer).splitlines()[8].startswith("warning[no-grad-block]")
    assert answer.parameters["right.bias"].gradient == "none"
    assert answer.parameters["left.bias"].norm == 2.0
    assert answer.finding is not None
    assert answer.finding.parameters == ["right.weight", "right.bias"]


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()


def test_a_table_knows_optimizers_and_what_moved() -> None:
    with whygrad.watch(quiet=True):
        model = Branches()
        optimizer = torch.optim.SGD([model.left.weight, *model.right.parameters()], lr=0.5)
        trained(model, optimizer)
        model.zero_grad()
        rows = whygrad.why(model).parameters
    assert [(row.gradient, row.optimizer, row.moved) for row in rows.values()] == [
        ("flows", "SGD", True),
        ("flows", "", rows["left.bias"].moved),
        ("none", "SGD", False),
        ("none", "SGD", False),
    ]
    assert rows["left.bias"].moved is not True
    assert rows["left.bias"].reason != ""


def test_a_part_of_a_model_is_asked_about_by_its_own_names() -> None:
    with whygrad.watch(quiet=True):
        model = nn.Sequential(Branches(), nn.Linear(1, 1))
        trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
        answer = whygrad.why(model[0].right)
        healthy = whygrad.why(model[1])
    assert list(answer.parameters) == ["weight", "bias"]
    assert [row.name for row in answer.parameters.values()] == ["weight", "bias"]
    assert {row.reason for row in answer.parameters.values()} == {"no-grad-block"}
    assert answer.finding is not None
    assert answer.finding.code == "no-grad-block"
    assert healthy.finding is None
    assert str(healthy).splitlines()[0] == "2 of 2 parameters of `model[1]` have a gradient"


def test_a_parameter_that_was_never_used_says_so() -> None:
    with whygrad.watch(quiet=True):
        model = nn.ModuleDict({"used": nn.Linear(3, 1), "spare": nn.Linear(3, 1)})
        model["used"](torch.ones(2, 3)).sum().backward()
        rows = whygrad.why(model).parameters
    assert rows["spare.weight"].reason == "not used yet"
    assert rows["used.weight"].reason == ""


def test_a_long_table_can_be_had_in_full() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(30)))
    model(torch.ones(1, 2)).sum().backward()
    answer = whygrad.why(model)
    assert "… and 50 more with gradient" in str(answer)
    assert "29.bias" not in str(answer)
    assert "29.bias" in answer.draw(verbose=True)
    assert len(answer.parameters) == 60


def test_gradients_of_every_kind_are_told_from_the_tensors_alone() -> None:
    model = nn.ModuleDict({name: nn.Linear(2, 1, bias=False) for name in "abcde"})
    values = {"a": 0.25, "b": 0.0, "c": float("nan"), "d": float("inf")}
    for name, value in values.items():
        model[name].weight.grad = torch.full((1, 2), value)
    model["e"].requires_grad_(False)
    assert [line.split()[3:] for line in str(whygrad.why(model)).splitlines()[3:]] == [
        ["0.25"],
        ["all", "zero"],
        ["NaN"],
        ["inf"],
        ["frozen"],
    ]


def test_sparse_and_lazy_parameters_are_rows_too() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 1])).sum().backward()
    assert whygrad.why(table).parameters["weight"].gradient == "flows"
    lazy = whygrad.why(nn.LazyLinear(3)).parameters["weight"]
    assert (lazy.shape, lazy.gradient) == ([], "none")


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
