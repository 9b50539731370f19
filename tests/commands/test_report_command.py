from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_helpers import finding, run_python

from whygrad.__main__ import main
from whygrad.session import Session


@pytest.fixture
def saved(tmp_path: Path) -> str:
    session = Session(whygrad="0.1.0", torch="2.13.0", findings=[finding(), finding("frozen", 7)])
    path = tmp_path / "saved.whygrad"
    session.save(path)
    return str(path)


def test_a_saved_session_is_drawn_on_stdout(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--format", "concise", saved]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "model.py:1:1: error[detach-call] detach-call was found",
        "model.py:7:1: error[frozen] frozen was found",
    ]
    assert err == ""
    assert main(["report", saved]) == 0
    assert "error[frozen]: frozen was found" in capsys.readouterr().out


def test_verbose_leaves_nothing_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Session(whygrad="0", torch="0", notes=["a note"]).save(tmp_path / "s")
    assert main(["report", str(tmp_path / "s")]) == 0
    assert "a note" not in capsys.readouterr().out
    assert main(["report", "-v", str(tmp_path / "s")]) == 0
    assert "a note" in capsys.readouterr().out


def test_the_name_of_the_output_decides_its_format(saved: str, tmp_path: Path) -> None:
    text, data = tmp_path / "out.txt", tmp_path / "out.json"
    assert main(["report", saved, "-o", str(text)]) == 0
    assert main(["report", saved, "-o", str(data)]) == 0
    assert "error[detach-call]: detach-call was found" in text.read_text()
    codes = [item["code"] for item in json.loads(data.read_text())["findings"]]
    assert codes == ["detach-call", "frozen"]


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["report", *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("whygrad: ")
    return err


def test_what_is_no_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "binary").write_bytes(b"\x80\x81")
    (tmp_path / "newer").write_text('{"schema": 99, "findings": []}')
    assert "cannot read gone" in refused(["gone"], capsys)
    assert "cannot read" in refused([str(tmp_path)], capsys)
    for name in ("list.json", "binary"):
        assert "not a whygrad session" in refused([str(tmp_path / name)], capsys)
    assert "schema 99" in refused([str(tmp_path / "newer")], capsys)


def test_what_cannot_be_written(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "use .json or .txt" in refused([saved, "-o", str(tmp_path / "out.pdf")], capsys)
    assert not (tmp_path / "out.pdf").exists()
    assert "there is no directory" in refused([saved, "-o", str(tmp_path / "a" / "b.txt")], capsys)


def test_no_torch_is_needed(saved: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from whygrad.__main__ import main;"
        "sys.exit(main(sys.argv[1:]))"
    )
    exit_code, out, err = run_python("-c", code, "report", saved)
    assert (exit_code, err) == (0, "")
    assert "error[detach-call]" in out
