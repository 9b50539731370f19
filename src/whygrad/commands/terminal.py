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
            text = self._drawn(dataclasses.replace(session, findings=rest))
            is_long = text and self._settings.format == "full"
            self._write("\n" + text if is_long else text)
        if self._shown:
            self.say(self._recap(session.findings))

    def _recap(self, findings: list[Finding]) -> str:
        lasting = self._shown & {_place(finding) for finding in findings}
        recap = f"{_counted(len(findings))} in all, {len(lasting)} shown while the program ran"
        # A missing gradient can arrive later than it was missed.
        withdrawn = len(self._shown - lasting)
        return f"{recap}; {withdrawn} more shown then no longer count" if withdrawn else recap

    def say(self, line: str) -> None:
        """One line that does not belong to the report, and is not kept back by `quiet`."""
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


def _counted(findings: int) -> str:
    return "1 finding" if findings == 1 else f"{findings} findings"
