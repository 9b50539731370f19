"""What a session says of each parameter: gradient, optimizer, whether it moved, and why."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import whygrad
from whygrad.diagnose import truth
from whygrad.diagnose.truth import parameter_states
from whygrad.record.events import ParameterInfo
from whygrad.session import Finding, Location, ParameterState


def info(name: str, **values: object) -> ParameterInfo:
    known: dict[str, object] = {
        "node": -1,
        "name": name,
        "root": 0,
        "owner": "model",
        "module": "",
        "module_types": ("Net",),
        "requires_grad": True,
        "has_grad": True,
        "in_optimizer": True,
        "shape": (2, 3),
        "gradient": "flows",
        "norm": 0.5,
        "moved": True,
        "optimizer": 0,
    }
    return ParameterInfo(**(known | values))  # type: ignore[arg-type]


def finding(code: str, names: list[str], severity: str = "warning") -> Finding:
    at = Location("model.py", 1)
    return Finding(code, severity, "silent", "t", "m", at, parameters=names)  # type: ignore[arg-type]


def one(of: ParameterInfo, *findings: Finding) -> ParameterState:
    (state,) = parameter_states([of], list(findings), {0: "SGD"})
    return state


def test_what_the_census_knows_is_passed_on() -> None:
    assert one(info("a.weight")) == ParameterState(
        "a.weight", [2, 3], True, "flows", 0.5, "SGD", True
    )
    assert one(info("a.weight")).is_plain


def test_the_reason_is_the_finding_that_names_it() -> None:
    codes = [finding("note", ["a"], "info"), finding("dead-relu", ["b", "a"])]
    assert one(info("a", gradient="zero", norm=0.0), *codes).reason == "dead-relu"
    assert one(info("a"), codes[0]).reason == "note"
    assert one(info("c"), *codes).reason == ""


def test_what_is_plain_without_a_finding() -> None:
    frozen = one(info("a", requires_grad=False, gradient="none", norm=None))
    assert (frozen.gradient, frozen.reason, frozen.is_plain) == ("frozen", "frozen", True)
    left_out = one(info("a", in_optimizer=False, optimizer=-1, moved=False))
    assert (left_out.optimizer, left_out.reason, left_out.is_plain) == (
        "",
        "in no optimizer",
        False,
    )
    starved = one(info("a", gradient="none", norm=None))
    assert (starved.reason, starved.is_plain) == ("", False)


def test_without_any_optimizer_nobody_is_left_out() -> None:
    (state,) = parameter_states([info("a", in_optimizer=False, optimizer=-1)], [], {})
    assert state.reason == ""


def test_what_does_not_move_is_not_plain() -> None:
    assert not one(info("a", moved=False)).is_plain
    assert one(info("a", moved=None)).is_plain


def test_too_many_rows_lose_the_plain_ones() -> None:
    infos = [info(f"p{n}", gradient="zero" if n > 6 else "flows") for n in range(10)]
    states = parameter_states(infos, [], {0: "SGD"}, limit=5)
    assert [state.name for state in states] == ["p0", "p1", "p7", "p8", "p9"]
    assert len(parameter_states(infos * 2001, [], {0: "SGD"})) == truth.MOST_ROWS == 20_000


# --- of a program -----------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(3, 2)
        self.spare = nn.Linear(3, 2)
        self.fixed = nn.Linear(3, 3).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(self.fixed(x))


def rows_of_a_training() -> dict[str, ParameterState]:
    torch.manual_seed(0)
    with whygrad.watch(quiet=True) as watch:
        model = Net()
        bare = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([*model.used.parameters(), *model.spare.parameters()], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            (model(torch.ones(4, 3)) * bare).square().sum().backward()
            optimizer.step()
    assert watch.session is not None
    return {state.name: state for state in watch.session.parameters}


def test_a_session_knows_every_parameter() -> None:
    rows = rows_of_a_training()
    weight = rows["used.weight"]
    assert (weight.shape, weight.gradient, weight.optimizer, weight.moved) == (
        [2, 3],
        "flows",
        "SGD",
        True,
    )
    assert weight.norm is not None
    assert weight.norm > 0
    assert rows["spare.weight"].gradient == "none"
    assert rows["spare.weight"].moved is not True
    assert (rows["fixed.bias"].gradient, rows["fixed.bias"].requires_grad) == ("frozen", False)
    assert rows["fixed.bias"].optimizer == ""


def test_a_session_knows_where_parameters_were_made() -> None:
    weight = rows_of_a_training()["used.weight"]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert weight.file == __file__
    assert lines[weight.line - 1].strip() == "self.used = nn.Linear(3, 2)"
