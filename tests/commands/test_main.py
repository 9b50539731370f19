from __future__ import annotations

import os
import subprocess
import sys

import pytest
from command_helpers import run_python

import whygrad
from whygrad.__main__ import COMMANDS, main


@pytest.mark.parametrize("argv", [[], ["--help"], ["run", "--help"], ["report", "-h"]])
def test_help_imports_no_torch(argv: list[str]) -> None:
    code = """
import sys
from whygrad.__main__ import main
try:
    exit_code = main(sys.argv[1:])
except SystemExit as error:
    exit_code = error.code
heavy = {"torch", "numpy", "rich"} & set(sys.modules)
print("heavy", sorted(heavy), "code", exit_code)
"""
    exit_code, out, err = run_python("-c", code, *argv)
    assert (exit_code, err) == (0, "")
    assert out.startswith("usage: whygrad")
    assert out.endswith("heavy [] code 0\n")


def test_help_shows_every_command_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"\n    {name} " in out
        assert command.HELP.split()[0] in out
    assert "whygrad run train.py" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_its_docstring(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main([name, "--help"])
    assert error.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert " ".join((COMMANDS[name].__doc__ or "nothing").split()) in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["--version"])
    assert error.value.code == 0
    assert capsys.readouterr().out == f"whygrad {whygrad.__version__}\n"


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["diagnose"])
    assert error.value.code == 2
    assert "diagnose" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "whygrad", "explain"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
