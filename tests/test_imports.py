"""Torch takes seconds to import: only what needs it may do so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whygrad.session import Session

LOADED = "; sys.stdout.flush(); sys.exit(100 if 'torch' in sys.modules else 99)"


def loads_torch(program: str, *arguments: str) -> bool:
    """Whether torch is there after the program; it is seen to have come to its end."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}{LOADED}", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (99, 100), done.stderr
    return done.returncode == 100


def command(*arguments: str) -> bool:
    """Whether a command line loads torch."""
    program = (
        "import contextlib\n"
        "from whygrad.__main__ import main\n"
        "with contextlib.suppress(SystemExit): main(sys.argv[1:])\n"
        "pass"
    )
    return loads_torch(program, *arguments)


def test_importing_whygrad_does_not_import_torch() -> None:
    assert not loads_torch("import whygrad; assert whygrad.__version__")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["run", "--help"], ["explain"], ["explain", "detach-call"]],
    ids=" ".join,
)
def test_commands_that_only_say_something_do_not_import_torch(arguments: list[str]) -> None:
    assert not command(*arguments)


def test_drawing_a_saved_session_does_not_import_torch(tmp_path: Path) -> None:
    Session(whygrad="0", torch="0").save(tmp_path / "session.json")
    assert not command("report", str(tmp_path / "session.json"))


def test_running_a_program_without_torch_does_not_import_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('no gradient in sight')\n")
    assert not command("run", str(program))


def test_watching_needs_torch() -> None:
    assert loads_torch("import whygrad; whygrad.watch")
