"""Files that a command writes: refused before the work begins, and never left half written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from whygrad.commands import UsageError


def check_writable(path: Path) -> None:
    """Raise UsageError if `path` cannot be written; an existing file is not touched."""
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"cannot write {path}: no permission")


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` fill a file beside `path`, then put it in its place; raises UsageError."""
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            write(path)  # a device or a pipe must not be replaced by a file
        elif os.access(path.parent, os.W_OK):
            _write_aside(path, write)
        else:
            write(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def _write_aside(path: Path, write: Callable[[Path], object]) -> None:
    # The suffix stays the same: it can decide the format.
    aside = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        write(aside)
        if path.exists():
            shutil.copymode(path, aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
