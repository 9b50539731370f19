from __future__ import annotations

import sys
import types

import pytest

import whygrad
from whygrad.__main__ import main
from whygrad.commands import doctor


@pytest.fixture
def torch_api(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Stand-ins for torch and for the module that knows what it can do."""
    torch = types.ModuleType("torch")
    torch.__version__ = "2.7.1+cu126"  # type: ignore[attr-defined]
    api = types.ModuleType("whygrad.record.torch_api")
    api.capabilities = lambda: [  # type: ignore[attr-defined]
        ("torch calls", True, "nothing can be recorded"),
        ("optimizer steps", False, "silent failures are not found"),
    ]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "whygrad.record.torch_api", api)
    return api


def test_versions_and_abilities(
    torch_api: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows = {line.split()[0]: line.split()[1] for line in out.splitlines()[:6]}
    assert rows["whygrad"] == whygrad.__version__
    assert rows["python"] == sys.version.split()[0]
    assert set(rows) == {"whygrad", "python", "platform", "numpy", "rich", "torch"}
    assert "2.7.1+cu126 (whygrad is made for 2.6 to 2.13)" in out
    assert "  yes  torch calls\n" in out
    assert "  no   optimizer steps: silent failures are not found\n" in out
    assert "bug report" in out


@pytest.mark.parametrize(
    ("version", "standing"),
    [
        ("2.5.1", "older than what whygrad is made for, 2.6 to 2.13"),
        ("2.6.0", "whygrad is made for 2.6 to 2.13"),
        ("2.13.0a0+git12ab", "whygrad is made for 2.6 to 2.13"),
        ("2.14.0.dev20270101", "newer than what whygrad is made for, 2.6 to 2.13"),
        ("3.0", "newer than what whygrad is made for, 2.6 to 2.13"),
    ],
)
def test_where_a_version_stands(version: str, standing: str) -> None:
    assert doctor._standing(version) == standing


def test_without_torch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "torch     not installed" in out
    assert "bug report" in out


def test_when_the_abilities_cannot_be_told(
    torch_api: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    torch_api.capabilities = lambda: 1 / 0  # type: ignore[attr-defined]
    assert main(["doctor"]) == 1
    assert "cannot tell: ZeroDivisionError" in capsys.readouterr().out
