from __future__ import annotations

import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from command_helpers import FakeWatch


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write a program into the current directory, which is a new one."""
    monkeypatch.chdir(tmp_path)

    def write(source: str = "", name: str = "prog.py", encoding: str = "utf-8") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(textwrap.dedent(source).encode(encoding))
        return name

    return write


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> type[FakeWatch]:
    """The class that stands in for `whygrad.watching.Watch`, with torch as good as imported.

    Running a program in this process changes what pytest itself lives on; all is put back.
    """

    attributes = {"findings": [], "early": [], "calls": [], "broken": ""}
    stand_in: type[FakeWatch] = type("Watch", (FakeWatch,), attributes)
    module = types.ModuleType("whygrad.watching")
    module.Watch = stand_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "whygrad.watching", module)
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return stand_in
