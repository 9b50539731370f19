"""The watch begins with the program's own `import torch`; a stand-in for torch is enough."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_helpers import FakeWatch, run_python

from whygrad.__main__ import main
from whygrad.session import Session

Write = Callable[..., str]


@pytest.fixture
def torch_file(
    program: Write, watch: type[FakeWatch], monkeypatch: pytest.MonkeyPatch
) -> type[FakeWatch]:
    """A `torch.py` beside the program, not imported yet."""
    program("value = 1\ndef no_grad(): ...\n", "torch.py")
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    return watch


def saved(*arguments: str) -> Session:
    assert main(["run", "--save", "saved", *arguments]) == 0
    return Session.load("saved")


def test_the_program_sets_things_up_before_torch_is_loaded(
    torch_file: type[FakeWatch], program: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = torch_file.calls
    script = program("""
        import sys
        print("torch" in sys.modules)
        import torch.nothing if False else torch
        """.replace("import torch.nothing if False else torch", "import torch")
    )
    assert saved(script).notes == []
    assert capsys.readouterr().out == "False\n"
    assert calls == ["start", "stop", "session"]
