"""Runs programs in forked children of one process with the libraries in it, or as they are typed.

Importing the libraries takes longer than five steps of a tiny model.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whygrad.__main__ import main as whygrad

PROGRAMS = Path(__file__).with_name("programs")
WATCHED = ["run", "--json", "report.json"]

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["torch._dynamo", "transformers", "transformers.trainer", "lightning", "accelerate"]
)


@dataclass
class Run:
    """What a program said and how it ended; `report` is the JSON report of a watched one."""

    exit_code: int | None
    stdout: str
    stderr: str
    report: dict[str, Any]

    @property
    def judged(self) -> list[str]:
        """What a reader must act on, each in one line."""
        return [
            f"{finding['code']} in {_place(finding['location'])}: {finding['title']}"
            for finding in self.report["findings"]
            if finding["severity"] != "info"
        ]


def run(command: Sequence[str], scratch: Path, *, watched: bool) -> Run:
    """`python program arguments` or `whygrad run program arguments`, in the new folder `scratch`.

    Its output goes to files there.
    """
    scratch.mkdir()
    child = FORKS.Process(target=_run_in_child, args=(command, scratch, watched))
    child.start()
    child.join()
    stdout, stderr = ((scratch / name).read_text() for name in ("stdout", "stderr"))
    return Run(child.exitcode, stdout, stderr, _report(scratch))


def run_as_typed(command: Sequence[str], scratch: Path, *, watched: bool) -> Run:
    """The same in a process of its own."""
    scratch.mkdir()
    program, *arguments = command
    done = subprocess.run(
        [
            sys.executable,
            *(["-m", "whygrad", *WATCHED] if watched else []),
            str(PROGRAMS / program),
            *arguments,
        ],
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr, _report(scratch))


def _run_in_child(command: Sequence[str], scratch: Path, watched: bool) -> None:
    os.chdir(scratch)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
    program, arguments = str(PROGRAMS / command[0]), command[1:]
    if watched:
        sys.exit(whygrad([*WATCHED, program, *arguments]))
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(PROGRAMS))
    runpy.run_path(program, run_name="__main__")


def _place(location: dict[str, Any]) -> str:
    return f"{Path(location['file']).name}:{location['line']}"


def _report(scratch: Path) -> dict[str, Any]:
    report = scratch / "report.json"
    return json.loads(report.read_text()) if report.exists() else {}
