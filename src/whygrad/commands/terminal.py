"""The report on the terminal: a short line as soon as something is sure, all of it at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TextIO

from whygrad.session import Finding, Session
from whygrad.settings import Settings

_MOST_LINES = 2  # while the program runs, to which the terminal belongs

_Place = tuple[str, str, int, int]


class TerminalReport:
    """Draws each finding once on `stream`, which the program shares."""

    def __init__(self, settings: Settings, stream: TextIO) -> None:
        self._settings = settings
        self._stream = stream
        self._said: dict[_Place, Finding] = {}
        self._lines = 0
        self._lock = threading.Lock()
        self._process = os.getpid()

    def show_early(self, session: Session, finding: Finding) -> None:
        """Say in a line what is sure by now; must not raise, for the program would see it.

        What else the session is sure of is said along with it, so that findings which come
        together share the line.
        """
        if self._settings.quiet or os.getpid() != self._process:
            return
        with contextlib.suppress(Exception), self._lock:
            sure = {_place(f): f for f in (*session.findings, finding) if _is_early(f)}
            new = [found for at, found in sure.items() if at not in self._said]
            if not new or self._lines >= _MOST_LINES:
                return
            # A progress bar may have left the cursor in the middle of a line.
            self._write("\n" + self._early(new, session.steps))
            self._lines += 1
            self._said |= {_place(found): found for found in new}

    def show_rest(self, session: Session) -> None:
        """Draw the whole report, after all that the program has said."""
        if self._settings.quiet:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        text = self._drawn(session)
        is_long = text and self._settings.format == "full"
        self._write("\n" + text if is_long else text)
        self._take_back(session.findings)

    def _take_back(self, findings: list[Finding]) -> None:
        """A missing gradient can arrive later than it was missed."""
        lasting = {_place(finding) for finding in findings}
        withdrawn = [found for at, found in self._said.items() if at not in lasting]
        if withdrawn:
            from whygrad import report

            self._write(report.render_withdrawn(withdrawn, **self._looks()))

    def say(self, line: str) -> None:
        """One line that does not belong to the report, and is not kept back by `quiet`."""
        self._write(f"whygrad: {line}\n")

    def _early(self, findings: list[Finding], step: int) -> str:
        from whygrad import report

        return report.render_early(findings, step, **self._looks())

    def _looks(self) -> dict[str, bool]:
        """What a single line needs to know of the stream."""
        from whygrad import report

        options = report.stream_options(self._stream)
        return {"color": options["color"], "unicode": options["unicode"]}

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


def _is_early(finding: Finding) -> bool:
    """What raises speaks for itself, and what is sure only at the end is said there."""
    return finding.symptom != "raises" and finding.severity != "info" and not finding.at_end


def _place(finding: Finding) -> _Place:
    location = finding.location
    return finding.code, location.file, location.line, location.column
