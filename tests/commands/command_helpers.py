"""Python processes to compare with, and a watch that needs no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from whygrad.session import ExceptionInfo, Finding, Location, Program, Session


def run_python(
    *arguments: str, merged: bool = False, env: dict[str, str] | None = None, **options: Any
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a python process; `merged`: all that it says in order."""
    clean = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    done = subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        env=clean | (env or {}),
        **options,
    )
    return done.returncode, done.stdout, done.stderr or ""


def finding(code: str = "detach-call", line: int = 1, **values: Any) -> Finding:
    values = {"severity": "error", "symptom": "silent", "title": f"{code} was found"} | values
    return Finding(code=code, message="a message", location=Location("model.py", line), **values)


class FakeWatch:
    """Finds `findings` whatever the program does, and keeps a list of the calls it got."""

    findings: list[Finding]
    early: list[list[Finding]]  # what becomes sure at the same time, before the program begins
    calls: list[str]
    broken: str  # the beginning of the call that fails
    settings: Any

    def __init__(self, settings: Any, on_finding: Callable[[Session, Finding], None]) -> None:
        type(self).settings = settings
        self.on_finding = on_finding

    def start(self) -> None:
        self._called("start")
        known: list[Finding] = []
        for step, found in enumerate(self.early, start=3):
            known += found
            for one in found:
                self.on_finding(Session("0", "0", findings=list(known), steps=step), one)

    def stop(self) -> None:
        self._called("stop")

    def saw_uncaught(self, error: BaseException) -> None:
        self._called(f"saw {type(error).__name__}")

    def session(
        self, *, argv: list[str], exit_code: int | None, exception: ExceptionInfo | None
    ) -> Session:
        self._called("session")
        program = Program(argv, exit_code, exception)
        return Session(whygrad="0", torch="0", program=program, findings=list(self.findings))

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if self.broken and call.startswith(self.broken):
            raise RuntimeError("the watch is broken")
