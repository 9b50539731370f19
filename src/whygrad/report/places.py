"""Where things are: file names as people read them, and the source lines behind them."""

from __future__ import annotations

import linecache
import os
from pathlib import PurePath

from whygrad.session import Location, Session

_LIBRARIES = ("site-packages", "dist-packages")
_LARGEST_SOURCE = 4_000_000


def display_name(file: str) -> str:
    """Relative to the current directory or home; an installed package by its import path."""
    if not file or file.startswith("<"):
        return file
    parts = PurePath(file).parts
    for index in range(len(parts) - 1, 0, -1):
        if parts[index - 1] in _LIBRARIES:
            return str(PurePath(*parts[index:]))
    for base, prefix in ((current_directory(), ""), (os.path.expanduser("~"), "~/")):
        inside = relative_to(file, base)
        if inside is not None:
            return prefix + inside
    return file


def relative_to(file: str, base: str) -> str | None:
    """The path of `file` under `base`, or None if it is not inside."""
    # The root directory contains everything, so being inside it says nothing.
    if not base or not PurePath(base).parts[1:]:
        return None
    try:
        inside = PurePath(file).relative_to(base)
    except ValueError:
        return None
    return str(inside)


def current_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed while the program ran
        return ""


def is_library(file: str) -> bool:
    return any(part in _LIBRARIES for part in PurePath(file).parts)


def short_names(files: set[str]) -> dict[str, str]:
    """The shortest ends of these paths that still tell them apart."""
    result: dict[str, str] = {}
    for file in files:
        parts = PurePath(display_name(file)).parts
        for count in range(1, len(parts) + 1):
            end = parts[-count:]
            alike = [other for other in files if PurePath(other).parts[-count:] == end]
            if alike in ([], [file]) and end != ("__init__.py",):
                break
        result[file] = str(PurePath(*parts[-count:])) if parts else file
    return result


def place(location: Location, *, column: bool = True) -> str:
    """`file:line:column`, less what is unknown."""
    name = display_name(location.file) or "<unknown>"
    if location.line < 1:
        return name
    return f"{name}:{location.line}:{location.column}" if column else f"{name}:{location.line}"


def span_end(location: Location) -> tuple[int, int]:
    """End line and exclusive end column; where they are unknown the span is empty."""
    end_line = max(location.end_line, location.line)
    if end_line > location.line:
        return end_line, max(location.end_column, 1)
    return end_line, max(location.end_column, location.column)


class SourceBook:
    """Source lines by file and number: first what the session kept, then what is on disk."""

    def __init__(self, session: Session) -> None:
        self._kept = session.sources
        self._found: dict[str, list[str]] = {}

    def line(self, location: Location, number: int) -> str | None:
        kept = self._kept.get(location.file, {}).get(number)
        if kept is not None:
            return kept.rstrip("\r\n")
        if location.file not in self._found:
            self._found[location.file] = self._read(location)
        lines = self._found[location.file]
        return lines[number - 1].rstrip("\r\n") if 0 < number <= len(lines) else None

    def _read(self, location: Location) -> list[str]:
        """The file's lines, if it is still the text that the session saw."""
        if not _is_readable(location.file):
            return []
        lines = linecache.getlines(location.file)
        kept = self._kept.get(location.file, {})
        changed = any(
            not 0 < number <= len(lines) or lines[number - 1].rstrip() != text.rstrip()
            for number, text in kept.items()
        )
        if not kept and location.text:
            changed = all(line.strip() != location.text.strip() for line in lines)
        return [] if changed else lines


def _is_readable(file: str) -> bool:
    """Notebook cells live in linecache alone; a path from a saved session may be anything."""
    if file in linecache.cache:
        return True
    try:
        return os.path.isfile(file) and os.path.getsize(file) <= _LARGEST_SOURCE
    except (OSError, ValueError):
        return False
