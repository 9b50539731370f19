from __future__ import annotations

from pathlib import Path

import pytest
from source_helpers import find, write

from whygrad.session import Edit
from whygrad.source import registering
from whygrad.source.tree import statement_at


def changed(found: list[Edit]) -> str | None:
    """The new text of the line that an edit changes; None if there is no edit."""
    return "\n".join(line.strip() for edit in found for line in edit.after) if found else None


@pytest.mark.parametrize(
    ("before", "container", "after"),
    [
        ("self.a = []", "ModuleList", "self.a = nn.ModuleList()"),
        ("self.a = {}", "ModuleDict", "self.a = nn.ModuleDict()"),
        (
            "self.a = [nn.Linear(1, 2) for _ in range(3)]",
            "ModuleList",
            "self.a = nn.ModuleList([nn.Linear(1, 2) for _ in range(3)])",
        ),
        ("self.a = (Block(), Block())", "ModuleList", "self.a = nn.ModuleList((Block(), Block()))"),
        (
            'self.a = {"x": nn.Parameter(t)}',
            "ParameterDict",
            'self.a = nn.ParameterDict({"x": nn.Parameter(t)})',
        ),
        ("self.a = [nn.Linear(1, 2), torch.relu]", "ModuleList", None),
        ("self.a = [build(i) for i in range(3)]", "ModuleList", None),
        ("self.a = {1: nn.Linear(1, 2)}", "ModuleDict", None),
        ("self.a, self.b = [], []", "ModuleList", None),
        ("self.a.append(nn.Linear(1, 2))", "ModuleList", None),
    ],
)
def test_containers(tmp_path: Path, before: str, container: str, after: str | None) -> None:
    file = write(tmp_path, f"import torch\nfrom torch import nn\n{before}\n")
    statement = statement_at(find(file, before))
    assert changed(registering.in_container(file, statement, container)) == after


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("from torch import nn", "nn"),
        ("import torch.nn as tnn", "tnn"),
        ("import torch", "torch.nn"),
        ("import math", ""),
    ],
)
def test_what_a_file_calls_it(tmp_path: Path, imports: str, name: str) -> None:
    assert registering.nn_in(write(tmp_path, f"{imports}\n")) == name


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("self.a = nn.Parameter(t).to(d)", "self.a = nn.Parameter(t.to(d))"),
        ("self.a = nn.Parameter(t + 1).half()", "self.a = nn.Parameter((t + 1).half())"),
        ("self.a = 0.1 * nn.Parameter(f(t))", "self.a = nn.Parameter(0.1 * f(t))"),
        ("self.a = nn.Parameter(t)[None]", "self.a = nn.Parameter(t[None])"),
        ("self.a = nn.Parameter(t)", None),
        ("self.a = nn.Parameter(t) * nn.Parameter(u)", None),
        ("self.a = nn.Parameter(t, requires_grad=True).to(d)", None),
    ],
)
def test_conversion_before_wrapping(tmp_path: Path, before: str, after: str | None) -> None:
    file = write(tmp_path, f"from torch import nn\n{before}\n")
    assert changed(registering.converted_first(file, statement_at(find(file, before)))) == after


def test_a_tensor_becomes_a_parameter(tmp_path: Path) -> None:
    file = write(tmp_path, "import torch\nself.a = torch.ones(3, requires_grad=True)\n")
    found = registering.as_parameter(file, statement_at(find(file, "self.a")))
    assert changed(found) == "self.a = torch.nn.Parameter(torch.ones(3, requires_grad=True))"
    assert registering.as_parameter(file, None) == []


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("Adam(a.parameters(), lr=1)", "Adam([*a.parameters(), *b.parameters()], lr=1)"),
        ("Adam([*a.parameters()], lr=1)", "Adam([*a.parameters(), *b.parameters()], lr=1)"),
        ("Adam([{'params': a.parameters()}])", None),
        ("Adam(parameters)", None),
        ("Adam(params=a.parameters())", None),
    ],
)
def test_more_for_the_optimizer(tmp_path: Path, call: str, after: str | None) -> None:
    file = write(tmp_path, f"a, b = f(), g()\noptimizer = {call}\n")
    expected = None if after is None else f"optimizer = {after}"
    assert changed(registering.in_optimizer(find(file, call), "b")) == expected


def test_only_what_the_place_can_name_is_given(tmp_path: Path) -> None:
    call = "Adam(a.parameters())"
    file = write(tmp_path, f"def make(a):\n    return {call}\n\ndef other():\n    b = 1\n")
    assert registering.in_optimizer(find(file, call), "b") == []
