"""`whygrad.watch`: around a block, as a decorator, nested, quiet."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import whygrad
from whygrad.session import Session
from whygrad.watching import Watch


def cut_step(model: nn.Module) -> None:
    loss = model(torch.ones(2, 3)).detach().sum()
    loss.backward()


def healthy_step(model: nn.Module) -> torch.Tensor:
    loss = model(torch.ones(2, 3)).pow(2).mean()
    loss.backward()
    return loss.detach()


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def test_a_failing_block_raises_as_before_and_is_explained(capsys: Any) -> None:
    with pytest.raises(RuntimeError, match="does not require grad"), whygrad.watch() as w:
        cut_step(nn.Linear(3, 1))
    (finding,) = w.findings
    assert finding.code == "detach-call"
    assert finding.location.file == __file__
    assert finding.location.line == line_of(".detach().sum()")
    assert finding.parameters == ["weight", "bias"]
    shown = capsys.readouterr()
    assert "error[detach-call]" in shown.err
    assert shown.out == ""


def test_quiet_shows_nothing(capsys: Any) -> None:
    with pytest.raises(RuntimeError), whygrad.watch(quiet=True) as w:
        cut_step(nn.Linear(3, 1))
    assert [finding.code for finding in w.findings] == ["detach-call"]
    assert capsys.readouterr().err == ""


def test_a_healthy_block_is_met_with_silence(capsys: Any) -> None:
    with whygrad.watch() as w:
        healthy_step(nn.Linear(3, 1))
    assert w.findings == []
    assert capsys.readouterr().err == ""


def test_findings_are_there_while_the_block_runs() -> None:
    with whygrad.watch(quiet=True) as w:
        with pytest.raises(RuntimeError):
            cut_step(nn.Linear(3, 1))
        assert [finding.code for finding in w.findings] == ["detach-call"]


def test_as_a_decorator_it_watches_each_call() -> None:
    watched = whygrad.watch(quiet=True)

    @watched
    def step(model: nn.Module, cut: bool) -> torch.Tensor | None:
        """Step once."""
        return cut_step(model) if cut else healthy_step(model)

    model = nn.Linear(3, 1)
    assert torch.is_tensor(step(model, cut=False))
    assert step.__doc__ == "Step once."
    assert watched.findings == []
    with pytest.raises(RuntimeError):
        step(model, cut=True)
    assert [finding.code for finding in watched.findings] == ["detach-call"]


def test_a_nested_watch_reports_its_own_part_only() -> None:
    with whygrad.watch(quiet=True) as outer:
        with pytest.raises(RuntimeError):
            cut_step(nn.Linear(3, 1))
        with whygrad.watch(quiet=True) as inner:
            healthy_step(nn.Linear(3, 1))
        assert inner.findings == []
    assert [finding.code for finding in outer.findings] == ["detach-call"]


def test_codes_can_be_selected_and_ignored() -> None:
    for options in ({"ignore": ["detach-call"]}, {"select": ["no-grad-block"]}):
        with pytest.raises(RuntimeError), whygrad.watch(quiet=True, **options) as w:
            cut_step(nn.Linear(3, 1))
        assert w.findings == []


@pytest.mark.parametrize(
    ("comment", "found"), [("detach-call", []), ("left-torch", ["detach-call"])]
)
def test_a_comment_silences_its_line(comment: str, found: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "w = torch.ones(3, requires_grad=True)\n"
        f"loss = w.detach().sum()  # whygrad: ignore[{comment}]\n"
        "try:\n    loss.backward()\nexcept RuntimeError:\n    pass\n"
    )
    with whygrad.watch(quiet=True) as w:
        runpy.run_path(str(program))
    assert [finding.code for finding in w.findings] == found


def test_save_writes_a_session_that_loads_again(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), whygrad.watch(quiet=True) as w:
        cut_step(nn.Linear(3, 1))
    w.save(str(tmp_path / "run.session"))
    loaded = Session.load(tmp_path / "run.session")
    assert loaded == w.session
    assert loaded.graph
    json.dumps([finding.title for finding in loaded.findings])


def test_a_caught_failure_in_a_loop_is_one_finding_with_a_count() -> None:
    model = nn.Linear(3, 1)
    with whygrad.watch(quiet=True) as w:
        for _ in range(5):
            with pytest.raises(RuntimeError):
                cut_step(model)
    (finding,) = w.findings
    assert finding.count == 5


def test_a_parameter_that_was_only_late_is_no_finding() -> None:
    encoder, head = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    with whygrad.watch(quiet=True) as w:
        for step in range(6):
            features = encoder(torch.ones(2, 3))
            if step < 4:
                features = features.detach()
            optimizer.zero_grad()
            head(features).sum().backward()
            optimizer.step()
            if step == 3:
                assert [finding.code for finding in w.findings] == ["detach-call"]
    assert w.findings == []


def test_importing_the_package_leaves_torch_alone() -> None:
    assert "watch" in dir(whygrad) or hasattr(whygrad, "watch")
    assert "torch" in sys.modules  # this process has it; see test_imports for a fresh one
    with pytest.raises(AttributeError):
        _ = whygrad.nothing_of_the_kind


def test_a_fault_of_ours_at_the_end_does_not_reach_the_program(monkeypatch: Any) -> None:
    def broken(self: Watch, **kwargs: object) -> Session:
        raise OSError("no report today")

    monkeypatch.setattr(Watch, "session", broken)
    with whygrad.watch() as w:
        loss = healthy_step(nn.Linear(3, 1))
    assert loss.isfinite()
    assert w.session is None


def test_what_was_frozen_only_for_a_while_is_no_finding() -> None:
    generator, judge = nn.Linear(2, 3), nn.Linear(3, 1)
    first = torch.optim.SGD(generator.parameters(), lr=0.1)
    second = torch.optim.SGD(judge.parameters(), lr=0.1)
    with whygrad.watch(quiet=True) as w:
        for _ in range(3):
            judge.requires_grad_(False)
            first.zero_grad()
            judge(generator(torch.ones(4, 2))).mean().backward()
            first.step()
            judge.requires_grad_(True)
            second.zero_grad()
            judge(torch.ones(4, 3)).mean().backward()
            second.step()
    assert [finding.code for finding in w.findings if finding.severity != "info"] == []
