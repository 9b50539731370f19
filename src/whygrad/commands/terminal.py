"""The report on the terminal: what is known early at once, the rest when the program has ended."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
from typing import TextIO

from whygrad.session import Finding, Session
from whygrad.settings import Settings

_Place = tuple[str, str, int, int]


class TerminalReport:
    """Draws each finding once on `stream`, which the program shares."""

    def __init__(self, settings: Settings, stream: TextIO) -> None:
        self._settings = settings
        self._stream = stream
        self._shown: set[_Place] = set()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def show_early(self, session: Session, finding: Finding) -> None:
        """Draw a finding while the program runs; must not raise, for the program would see it."""
        if self._settings.quiet or os.getpid() != self._process:
            return
        with contextlib.suppress(Exception), self._lock:
            if _place(finding) in self._shown:
                return
            text = self._drawn(dataclasses.replace(session, findings=[finding], notes=[]))
            # A progress bar may have left the cursor in the middle of a line.
            self._write("\n" + text)
            self._shown.add(_place(finding))

    def show_rest(self, session: Session) -> None:
        """Draw what has not been shown yet, after all that the program has said."""
        if self._settings.quiet:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        rest = [finding for finding in session.findings if _place(finding) not in self._shown]
        if rest or not self._shown:
            self._write(self._drawn(dataclasses.replace(session, findings=rest)))
        if self._shown:
            self.say(_recap(len(session.findings), len(session.findings) - len(rest)))

    def say(self, line: str) -> None:
        if not self._settings.quiet:
            self._write(f"whygrad: {line}\n")

    def _drawn(self, session: Session) -> str:
        from whygrad import report

        options = report.stream_options(self._stream)
        verbose = self._settings.verbose
        return report.draw(session, self._settings.format, verbose=verbose, **options)

    def _write(self, text: str) -> None:
        if text and not text.endswith("\n"):
            text += "\n"
        # The program may have closed the stream, and nobody may be reading it any more.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def _place(finding: Finding) -> _Place:
    location = finding.location
    return finding.code, location.file, location.line, location.column


def _recap(total: int, early: int) -> str:
    findings = "1 finding" if total == 1 else f"{total} findings"
    return f"{findings} in all, {early} shown above while the program ran"
