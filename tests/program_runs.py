"""Runs whole programs for tests: in a forked child, or as the command a person types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# One thread each: the tests themselves run in parallel, and sums come out the same every time.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass
class Run:
    """What a program said and how it ended; `report` is the JSON report of a watched one."""

    exit_code: int
    stdout: str
    stderr: str
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def judged(self) -> list[dict[str, Any]]:
        """The findings that a reader must act on, most important first."""
        return [f for f in self.report["findings"] if f["severity"] != "info"]

    def told(self, code: str) -> list[dict[str, Any]]:
        """The same, or the notes of a code that gives nothing else."""
        return self.judged or [f for f in self.report["findings"] if f["code"] == code]


def run_as_typed(program: Path, *, watched: bool) -> Run:
    """`python program` or `python -m whygrad run program`, in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        tool = ["-m", "whygrad", "run", "--json", str(report)] if watched else []
        done = subprocess.run(
            [sys.executable, *tool, program.name],
            cwd=program.parent,
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr, _read(report))


class ForkServer:
    """One process with torch in it, which forks a child for each program."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: Path, *, watched: bool, verbose: bool = False) -> Run:
        with tempfile.TemporaryDirectory() as scratch:
            stdout, stderr, report = (Path(scratch, name) for name in ("out", "err", "json"))
            request = {
                "program": program.name,
                "directory": str(program.parent),
                "stdout": str(stdout),
                "stderr": str(stderr),
                "watched": watched,
                "options": ["--json", str(report), *(["--verbose"] if verbose else [])],
            }
            exit_code = self._ask(json.dumps(request))
            return Run(exit_code, stdout.read_text(), stderr.read_text(), _read(report))

    def _ask(self, request: str) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def _read(report: Path) -> dict[str, Any]:
    return json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
