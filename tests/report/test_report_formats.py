"""Concise lines, GitHub annotations, report files, and what suits a stream."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import report_sessions as sessions

from whygrad.report import draw, stream_options, write
from whygrad.report.places import display_name
from whygrad.session import Location


def test_concise_prints_one_line_per_finding() -> None:
    assert draw(sessions.two_findings_and_a_note(), "concise").splitlines() == [
        "loop.py:8:5: error[inplace-saved] `scores += 1` overwrites a value that `exp` needs"
        " for its gradient",
        "loop.py:13:16: warning[graph-kept] `history` keeps the graph of every step alive",
        "loop.py:1:1: info[frozen-parameters] 3 of 10 parameters are frozen by"
        " `requires_grad_(False)`",
    ]
    assert draw(sessions.healthy(), "concise") == ""


def test_concise_without_a_place() -> None:
    session = sessions.detach_call()
    session.findings[0].location = Location("", 0)
    assert draw(session, "concise").startswith("<unknown>: error[detach-call] ")


@pytest.mark.parametrize("fmt", ["concise", "github"])
def test_hostile_text_stays_on_its_line(fmt: str) -> None:
    text = draw(sessions.hostile_text(), fmt)  # type: ignore[arg-type]
    assert text.count("\n") == 1
    assert text[:-1].isprintable()


def test_github_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    lines = draw(sessions.two_findings_and_a_note(), "github").splitlines()
    assert lines[0] == (
        "::error file=loop.py,line=8,endLine=8,col=5,endColumn=16,title=whygrad inplace-saved::"
        "`scores += 1` changes the output of exp, which backward needs unchanged."
        "%0Afix: write to a new tensor"
    )
    assert lines[1].startswith("::warning file=loop.py,line=13,")
    assert lines[2].startswith("::notice file=loop.py,line=1,")


def test_github_escapes_what_would_end_a_property(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", "/data/checkout")
    session = sessions.detach_call()
    finding = session.findings[0]
    finding.location = Location("/data/checkout/a,b:50%.py", 3, 1, 5, 2)
    finding.message, finding.fix = "100% cut:\r\nall, really", None
    assert draw(session, "github") == (
        "::error file=a%2Cb%3A50%25.py,line=3,endLine=5,title=whygrad detach-call::"
        "100%25 cut:%0Aall, really\n"
    )


def test_unknown_format() -> None:
    with pytest.raises(ValueError, match="full, concise, github or json"):
        draw(sessions.healthy(), "xml")  # type: ignore[arg-type]


def test_written_format_follows_the_extension(tmp_path: Path) -> None:
    session = sessions.detach_call()
    write(session, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["findings"][0]["code"] == "detach-call"
    write(session, tmp_path / "out.TXT")
    assert (tmp_path / "out.TXT").read_text(encoding="utf-8") == draw(session)
    write(sessions.healthy(), tmp_path / "healthy.txt")
    assert (tmp_path / "healthy.txt").read_text().startswith("whygrad: no finding (3 steps")


@pytest.mark.parametrize("name", ["out.pdf", "out"])
def test_unknown_extension_names_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"\.json or \.txt"):
        write(sessions.healthy(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_stream_that_is_no_terminal(bare_environment: pytest.MonkeyPatch) -> None:
    plain = {"width": 80, "color": False, "unicode": True}
    assert stream_options(io.StringIO()) == plain
    closed = io.StringIO()
    closed.close()
    assert stream_options(closed) == plain


@pytest.mark.parametrize(
    ("environment", "color"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
)
def test_colour_on_a_terminal(
    bare_environment: pytest.MonkeyPatch, environment: dict[str, str], color: bool
) -> None:
    for name, value in environment.items():
        bare_environment.setenv(name, value)
    assert stream_options(Terminal())["color"] is color


def test_forced_colour_in_a_pipe(bare_environment: pytest.MonkeyPatch) -> None:
    bare_environment.setenv("FORCE_COLOR", "1")
    assert stream_options(io.StringIO())["color"]
    bare_environment.setenv("FORCE_COLOR", "0")
    assert not stream_options(io.StringIO())["color"]


@pytest.mark.parametrize(
    ("columns", "width"), [("64", 64), ("300", 100), ("0", 80), ("wide", 80), ("", 80)]
)
def test_width(bare_environment: pytest.MonkeyPatch, columns: str, width: int) -> None:
    bare_environment.setenv("COLUMNS", columns)
    assert stream_options(Terminal())["width"] == width


@pytest.mark.parametrize(
    ("encoding", "unicode"),
    [("utf-8", True), ("utf-16", True), ("ascii", False), ("latin-1", False), ("cp437", False)],
)
def test_unicode_follows_the_encoding(encoding: str, unicode: bool) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    options = stream_options(stream)
    assert options["unicode"] is unicode
    stream.write(draw(sessions.wide_characters(), **options))
    assert stream.tell() > 0


def test_file_names_as_people_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert display_name(str(tmp_path / "src" / "net.py")) == os.path.join("src", "net.py")
    assert display_name("/home/ada/work/net.py") == "~/work/net.py"
    assert display_name("/data/net.py") == "/data/net.py"
    assert display_name("<stdin>") == "<stdin>"
    installed = tmp_path / ".venv" / "lib" / "site-packages" / "timm" / "layers" / "drop.py"
    assert display_name(str(installed)) == os.path.join("timm", "layers", "drop.py")


def test_reports_need_no_torch() -> None:
    code = "import sys, whygrad.report; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
