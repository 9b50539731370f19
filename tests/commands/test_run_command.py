"""`whygrad run` in this process, with a watch that finds what the test wants it to."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_helpers import FakeWatch, finding, run_python

from whygrad.__main__ import main
from whygrad.commands import run
from whygrad.session import Session

Write = Callable[..., str]
Watch = type[FakeWatch]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def known_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whygrad.explain.codes", lambda: ["detach-call", "item-call", "frozen"])


def test_everything_after_the_script_is_the_programs(
    program: Write, watch: Watch, capsys: Captured
) -> None:
    script = program("import sys; print(sys.argv)")
    arguments = ["--json", "x", "-h", "-q", "--", "-m", "--strict", "--s", "--version", "-v"]
    assert main(["run", "--no-strict", script, *arguments]) == 0
    assert capsys.readouterr().out == f"{[script, *arguments]}\n"


@pytest.mark.parametrize(
    ("argv", "own", "rest"),
    [
        (["a.py", "-q"], [], ["a.py", "-q"]),
        (["-q", "--json", "f", "a.py"], ["-q", "--json", "f"], ["a.py"]),
        (["--json=f", "-v", "-m", "pkg", "-v"], ["--json=f", "-v"], ["-m", "pkg", "-v"]),
        (["--", "-odd.py", "--"], [], ["-odd.py", "--"]),
        (["--select", "a,b", "--ignore", "c", "x"], ["--select", "a,b", "--ignore", "c"], ["x"]),
        (["-qv"], ["-qv"], []),
        (["--json"], ["--json"], []),
    ],
)
def test_where_the_program_begins(argv: list[str], own: list[str], rest: list[str]) -> None:
    assert run.split_program(argv) == (own, rest)


def test_the_options_that_take_a_value_are_listed() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    run.add_arguments(parser)
    valued = [
        option
        for action in parser._actions
        if action.nargs != 0
        for option in action.option_strings
    ]
    assert tuple(sorted(valued)) == tuple(sorted(run.VALUED))


def test_the_watch_sees_the_program_from_start_to_end(program: Write, watch: Watch) -> None:
    assert main(["run", program("raise ValueError('x')")]) == 1
    assert watch.calls == ["start", "saw ValueError", "stop", "session"]


def test_an_exit_is_no_uncaught_exception(program: Write, watch: Watch) -> None:
    assert main(["run", program("raise SystemExit(2**70)")]) == 255
    assert watch.calls == ["start", "stop", "session"]


def test_a_syntax_error_is_never_watched(program: Write, watch: Watch, capsys: Captured) -> None:
    assert main(["run", program("a b")]) == 1
    assert watch.calls == []
    assert "SyntaxError" in capsys.readouterr().err


def test_quiet_keeps_the_terminal_empty_and_writes_files(
    program: Write, watch: Watch, capsys: Captured
) -> None:
    watch.findings = [finding()]
    watch.early = [watch.findings]
    script = program("raise SystemExit(3)")
    assert main(["run", "-q", "--json", "r.json", "--save", "s.whygrad", script, "a"]) == 3
    assert capsys.readouterr() == ("", "")
    written = json.loads(Path("r.json").read_text())
    assert written["program"] == {"argv": [script, "a"], "exit_code": 3, "exception": None}
    assert [item["code"] for item in written["findings"]] == ["detach-call"]
    assert Session.load("s.whygrad").findings == watch.findings


def test_the_session_knows_the_exception(program: Write, watch: Watch) -> None:
    script = program("import decimal\nraise decimal.InvalidOperation('reason')")
    main(["run", "-q", "--save", "s", "--", script])
    saved = Session.load("s").program
    assert saved.exit_code == 1
    assert saved.exception is not None
    assert (saved.exception.type, saved.exception.message) == ("decimal.InvalidOperation", "reason")


@pytest.mark.parametrize(
    ("severity", "exits_with", "code"),
    [
        ("error", 0, 1),
        ("warning", 0, 1),
        ("info", 0, 0),
        ("error", 3, 3),
    ],
)
def test_strict(severity: str, exits_with: int, code: int, program: Write, watch: Watch) -> None:
    watch.findings = [finding(severity=severity)]
    script = program(f"raise SystemExit({exits_with})")
    assert main(["run", "--strict", script]) == code
    assert main(["run", script]) == exits_with


def test_the_command_line_overrides_the_file(program: Write, watch: Watch) -> None:
    program(
        """
        [tool.whygrad]
        strict = true
        quiet = true
        select = ["frozen"]
        ignore = ["frozen"]
        max-operations = 7
        """,
        "pyproject.toml",
    )
    script = program()
    main(["run", script])
    assert watch.settings.strict
    assert watch.settings.quiet
    assert watch.settings.max_operations == 7
    options = ["--no-strict", "--select", "detach-call, item-call", "--select=frozen"]
    main(["run", *options, "--max-operations", "9", script])
    assert not watch.settings.strict
    assert watch.settings.select == ["detach-call", "item-call", "frozen"]
    assert watch.settings.ignore == ["frozen"]
    assert watch.settings.max_operations == 9


@pytest.mark.parametrize("option", ["--format=html", "--max-operations=0", "--js=x", "--nope"])
def test_options_that_argparse_refuses(option: str, program: Write, watch: Watch) -> None:
    with pytest.raises(SystemExit) as error:
        main(["run", option, program()])
    assert error.value.code == 2
    assert watch.calls == []


def refused(argv: list[str], capsys: Captured) -> str:
    """The one line that `whygrad run` says instead of running anything."""
    assert main(["run", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("whygrad: ")
    assert err.count("\n") == 1
    return err


def test_no_program(capsys: Captured, program: Write) -> None:
    assert "which program?" in refused([], capsys)
    assert "which program?" in refused(["-q"], capsys)
    assert "which module?" in refused(["-m"], capsys)
    assert "stdin" in refused(["-"], capsys)


def test_what_is_no_python_program(
    capsys: Captured, program: Write, tmp_path: Path, watch: Watch
) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    (tmp_path / "cookie.py").write_bytes(b"# -*- coding: no-such-thing -*-\n")
    (tmp_path / "old.pyc").write_bytes(b"not the magic number")
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.ipynb").write_text("{}")
    assert "no such file: gone.py" in refused(["gone.py"], capsys)
    for name in ("image.png", "latin.py", "cookie.py", "old.pyc"):
        assert f"{name} is not a Python program" in refused([name], capsys)
    assert "no __main__ module in folder" in refused(["folder"], capsys)
    assert "notebook" in refused(["notes.ipynb"], capsys)
    assert watch.calls == []


def test_a_missing_module(capsys: Captured, program: Write, watch: Watch) -> None:
    program("", "pkg/__init__.py")
    assert "No module named no_such_module" in refused(["-m", "no_such_module"], capsys)
    assert "No module named pkg.gone" in refused(["-m", "pkg.gone"], capsys)
    assert "cannot be directly executed" in refused(["-m", "pkg"], capsys)
    assert watch.calls.count("start") == watch.calls.count("stop")


def test_an_unknown_code(capsys: Captured, program: Write) -> None:
    script = program("raise AssertionError('must not run')")
    assert "unknown code 'nope'" in refused(["--select", "frozen,nope", script], capsys)
    assert "unknown code 'nope'" in refused(["--ignore", "nope", script], capsys)
    program("[tool.whygrad]\nignore = ['nope']", "pyproject.toml")
    assert "unknown code 'nope'" in refused([script], capsys)


def test_a_mistake_in_the_settings(capsys: Captured, program: Write) -> None:
    program("[tool.whygrad]\nstrict = 3", "pyproject.toml")
    assert "tool.whygrad.strict must be true or false" in refused([program()], capsys)


@pytest.mark.parametrize("option", ["--json", "--save"])
def test_an_output_that_cannot_be_written_is_refused_first(
    option: str, capsys: Captured, program: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = program("raise AssertionError('must not run')")
    (tmp_path / "folder").mkdir()
    (tmp_path / "locked").write_text("kept")
    assert "it is a directory" in refused([option, "folder", script], capsys)
    assert "there is no directory" in refused([option, "gone/out.json", script], capsys)
    assert "stdout belongs to the program" in refused([option, "-", script], capsys)
    # Root may write everything, so permission is refused by hand.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "no permission" in refused([option, "locked", script], capsys)
    assert "no permission" in refused([option, "new", script], capsys)
    assert (tmp_path / "locked").read_text() == "kept"
    assert not (tmp_path / "new").exists()


def test_json_and_save_need_two_files(capsys: Captured, program: Write) -> None:
    assert "same file" in refused(["--json", "x", "--save", "./x", program()], capsys)


def test_outputs_stay_where_they_were_asked_for(
    program: Write, watch: Watch, tmp_path: Path
) -> None:
    script = program("import os; os.mkdir('sub'); os.chdir('sub')")
    main(["run", "--json", "out.json", script])
    assert (tmp_path / "out.json").is_file()


def test_an_output_that_fails_after_all(
    program: Write, watch: Watch, capsys: Captured, tmp_path: Path
) -> None:
    watch.findings = [finding()]
    (tmp_path / "sub").mkdir()
    script = program("import os; os.rmdir('sub')")
    assert main(["run", "--json", "sub/out.json", "--save", "kept", script]) == 2
    err = capsys.readouterr().err
    assert "error[detach-call]" in err
    assert err.splitlines()[-1].startswith("whygrad: cannot write ")
    assert Session.load("kept").findings == watch.findings
    (tmp_path / "sub").mkdir()
    assert main(["run", "-q", "--json", "sub/out.json", script]) == 2
    assert capsys.readouterr().err.startswith("whygrad: cannot write ")


@pytest.mark.parametrize("broken", ["start", "stop", "saw", "session"])
def test_a_fault_of_ours_is_told_and_changes_nothing(
    broken: str, program: Write, watch: Watch, capsys: Captured
) -> None:
    watch.broken = broken
    assert main(["run", "--json", "out.json", program("print('ran')\nraise ValueError")]) == 1
    out, err = capsys.readouterr()
    assert out == "ran\n"
    assert "ValueError\n" in err
    assert err.count("internal error") == 1
    assert "the watch is broken" in err
    notes = json.loads(Path("out.json").read_text())["notes"]
    assert any("the watch is broken" in note for note in notes)


def test_a_fault_while_drawing_leaves_the_files(
    program: Write, watch: Watch, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> dict[str, object]:
        raise RuntimeError("no pen")

    monkeypatch.setattr("whygrad.report.stream_options", broken)
    watch.findings = [finding()]
    watch.early = [watch.findings]
    assert main(["run", "--json", "out.json", program()]) == 0
    assert capsys.readouterr().err == (
        "whygrad: internal error while drawing: RuntimeError: no pen\n"
    )
    assert json.loads(Path("out.json").read_text())["findings"][0]["code"] == "detach-call"


def test_an_interrupt_leaves_a_report(
    program: Write, watch: Watch, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    watch.findings = [finding()]
    with pytest.raises(KeyboardInterrupt):
        main(["run", "--json", "out.json", program("raise KeyboardInterrupt")])
    err = capsys.readouterr().err
    assert err.index("KeyboardInterrupt") < err.index("error[detach-call]")
    assert json.loads(Path("out.json").read_text())["program"]["exit_code"] == 130


def test_ctrl_c_from_outside(program: Write, tmp_path: Path) -> None:
    script = program("""
        import atexit, time
        atexit.register(print, "at exit", flush=True)
        print("ready", flush=True)
        time.sleep(30)
    """)
    process = subprocess.Popen(
        [sys.executable, "-m", "whygrad", "run", "-v", "--json", "out.json", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert out == "at exit\n"
    assert err.count("Traceback") == err.count("KeyboardInterrupt") == 1
    assert err.index("KeyboardInterrupt") < err.index("whygrad: no finding")
    assert json.loads((tmp_path / "out.json").read_text())["program"]["exit_code"] == 130


def test_a_forked_child_that_comes_back_does_not_report(program: Write) -> None:
    script = program("""
        import os, sys
        if os.fork() == 0:
            sys.exit(5)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
    """)
    code, out, err = run_python("-m", "whygrad", "run", "-v", script)
    assert (code, out) == (0, "5\n")
    assert err.count("never imported torch") == 1
