"""GitHub workflow commands: findings as annotations on the lines of a pull request."""

from __future__ import annotations

import os
from pathlib import PurePath

from whygrad.report.places import current_directory, relative_to, span_end
from whygrad.report.text import clean
from whygrad.session import Finding, Location, Session

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render_github(session: Session) -> str:
    return "".join(_command(finding) + "\n" for finding in session.findings)


def _command(finding: Finding) -> str:
    properties = _position(finding.location) | {"title": f"whygrad {finding.code}"}
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    message = finding.message or finding.title
    if finding.fix is not None:
        message += f"\nfix: {finding.fix.title}"
    return f"::{_COMMANDS.get(finding.severity, 'error')} {listed}::{_data(message)}"


def _position(at: Location) -> dict[str, str]:
    if not at.file:
        return {}
    position = {"file": _repository_path(at.file)}
    if at.line < 1:
        return position
    end_line, end_column = span_end(at)
    position |= {"line": str(at.line), "endLine": str(end_line)}
    # GitHub accepts columns only for spans within one line.
    if end_line == at.line:
        position |= {"col": str(at.column), "endColumn": str(end_column)}
    return position


def _repository_path(file: str) -> str:
    """Annotations appear on files named as in the checkout."""
    for base in (os.environ.get("GITHUB_WORKSPACE", ""), current_directory()):
        inside = relative_to(file, base)
        if inside is not None:
            return PurePath(inside).as_posix()
    return PurePath(file).as_posix()


def _data(text: str) -> str:
    safe = "\n".join(clean(line) for line in text.splitlines())
    return safe.replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return clean(text).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
