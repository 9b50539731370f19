"""Advice on custom Functions and stored results must not end the training of anything."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

from program_runs import ForkServer

FUNCTION = """
import torch
from torch import nn

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad, (grad * x).sum()

x = torch.ones(3, requires_grad=True)
"""
IDENTITY = """
import torch

class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

x = torch.ones(3, requires_grad=True)
y = Reverse.apply(x * 2)
y.sum().backward()
"""
MODULE = """
import copy
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = nn.Parameter(torch.ones(3))
        {ahead}

    def forward(self, x):
        {during}
        return x

model = Model()
model(torch.ones(3))
copy.deepcopy(model)
"""


def _finding(programs: ForkServer, folder: Path, text: str) -> dict[str, Any]:
    program = folder / "program.py"
    program.write_text(dedent(text).lstrip())
    finding: dict[str, Any] = programs.run(program, watched=True).report["findings"][0]
    return finding


def _line_of(finding: dict[str, Any], label: str) -> int:
    lines = [r["line"] for r in finding["related"] if label in r["label"]]
    assert len(lines) == 1
    return int(lines[0])


def test_a_number_in_every_call_gets_none(programs: ForkServer, tmp_path: Path) -> None:
    found = _finding(programs, tmp_path, FUNCTION + "Scale.apply(x, 2.0).sum().backward()\n")
    (edit,) = found["fix"]["edits"]
    assert [line.strip() for line in edit["after"]] == ["return grad, None"]


def test_what_another_call_learns_keeps_its_gradient(programs: ForkServer, tmp_path: Path) -> None:
    calls = "factor = nn.Parameter(torch.tensor(2.0))\ny = Scale.apply(x, 3.0)\n"
    calls += "Scale.apply(y, factor).sum().backward()\n"
    found = _finding(programs, tmp_path, FUNCTION + calls)
    assert not found["fix"]["edits"]
    assert "if ctx.needs_input_grad[1] else None" in found["fix"]["title"]
    assert _line_of(found, "is applied here") == _line_of(found, "wants a gradient") - 1


def test_the_call_is_not_where_backward_was(programs: ForkServer, tmp_path: Path) -> None:
    found = _finding(programs, tmp_path, IDENTITY)
    assert _line_of(found, "`Reverse` is applied here") == 9


def test_computed_ahead_of_forward(programs: ForkServer, tmp_path: Path) -> None:
    text = MODULE.format(ahead="self.kernel = self.width.exp()", during="x = x * self.kernel")
    found = _finding(programs, tmp_path, text)
    assert "compute it from `width` in `forward`" in found["fix"]["title"]


def test_computed_in_forward(programs: ForkServer, tmp_path: Path) -> None:
    text = MODULE.format(ahead="self.kernel = None", during="self.kernel = self.width.exp()")
    found = _finding(programs, tmp_path, text)
    assert ".detach()" in found["fix"]["title"]
