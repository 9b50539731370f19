"""What would fail next is said in the same report, after what has failed."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from program_runs import ForkServer

CHAINS = {
    "cut, then not reduced": (
        """
        import torch
        net = torch.nn.Linear(3, 2)
        hidden = net(torch.randn(4, 3)).detach()
        errors = (hidden - 1.0).square()
        errors.backward()
        """,
        [("detach-call", 3, "error"), ("non-scalar-loss", 4, "warning")],
    ),
    "not reduced, then not marked": (
        """
        import torch
        net = torch.nn.Linear(3, 2)
        x = torch.randn(4, 3)
        outputs = net(x)
        torch.autograd.grad(outputs, x)
        """,
        [("non-scalar-loss", 5, "error"), ("input-without-grad", 3, "warning")],
    ),
    "not reduced, then not used": (
        """
        import torch
        net = torch.nn.Linear(3, 2)
        x = torch.randn(4, 3, requires_grad=True)
        outputs = net(x)
        torch.autograd.grad(outputs, x[:2])
        """,
        [("non-scalar-loss", 5, "error"), ("unused-input", 5, "warning")],
    ),
    "cut, and nothing after it": (
        """
        import torch
        net = torch.nn.Linear(3, 2)
        loss = net(torch.randn(4, 3)).detach().square().mean()
        loss.backward()
        """,
        [("detach-call", 3, "error")],
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_what_comes_next_follows(name: str, programs: ForkServer, tmp_path: Path) -> None:
    text, expected = CHAINS[name]
    program = tmp_path / "program.py"
    program.write_text(dedent(text).lstrip(), encoding="utf-8")
    run = programs.run(program, watched=True)
    found = [(f["code"], f["location"]["line"], f["severity"]) for f in run.report["findings"]]
    assert found == expected
    assert all("next, " in f["title"] for f in run.report["findings"][1:])
