"""In-place writes and the lifetime of graphs: which two lines do not go together?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import whygrad
from program_pages import Program, check, programs_in
from program_runs import ForkServer
from whygrad.record import autopsy


@pytest.mark.parametrize("program", programs_in(Path(__file__).parent), ids=lambda p: p.name)
def test_the_lines_are_named(program: Program, programs: ForkServer, tmp_path: Path) -> None:
    check(program, programs, tmp_path)


WRITER = """\
import torch


def raised(gates):
    gates.add_(1.5)
    return gates
"""
TRAINER = """\
import torch
from writer import raised

def train(loss):
    loss.backward()

weight = torch.ones(3, requires_grad=True)
train(raised(weight.sigmoid()).sum())
"""


def test_equal_columns_of_two_files_are_two_places(programs: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "writer.py").write_text(WRITER)
    program = tmp_path / "trainer.py"
    program.write_text(TRAINER)
    (finding,) = programs.run(program, watched=True).judged
    related = {r["role"]: (Path(r["file"]).name, r["line"]) for r in finding["related"]}
    assert (Path(finding["location"]["file"]).name, finding["location"]["line"]) == ("writer.py", 5)
    assert related["surfaced"] == ("trainer.py", 5)
    assert related["saved"] == ("trainer.py", 8)


def test_a_failure_that_comes_again_is_looked_into_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    examine = autopsy.examine

    def counting(*args: Any) -> Any:
        looked_at.append(args)
        return examine(*args)

    monkeypatch.setattr(autopsy, "examine", counting)
    with whygrad.watch(quiet=True) as watch:
        hidden = torch.ones(3, requires_grad=True).exp()
        hidden += 1
        for _ in range(5):
            with pytest.raises(RuntimeError, match="inplace"):
                hidden.sum().backward()
    assert [(finding.code, finding.count) for finding in watch.findings] == [
        ("inplace-on-saved", 5)
    ]
    assert len(looked_at) == 1
