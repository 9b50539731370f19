"""Tracebacks as the program would have had them without whygrad."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

PACKAGE = str(Path(__file__).parent.parent)
_OVERRIDES = os.path.join("torch", "overrides.py")


def clean_exception(error: BaseException, package: str = PACKAGE) -> None:
    """Clean the traceback of `error` and of every exception chained to it or grouped in it."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = clean_traceback(current.__traceback__, package)
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions


def clean_traceback(tb: TracebackType | None, package: str = PACKAGE) -> TracebackType | None:
    """The traceback without the frames of `package` and without those that torch adds for it."""
    entries = list(_entries(tb))
    kept = _without_own(entries, package + os.sep)
    if len(kept) == len(entries):
        return tb
    cleaned: TracebackType | None = None
    for entry in reversed(kept):
        cleaned = TracebackType(cleaned, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return cleaned


def _entries(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _without_own(entries: list[TracebackType], own: str) -> list[TracebackType]:
    kept: list[TracebackType] = []
    reentered = False
    for entry in entries:
        if _file(entry).startswith(own):
            # torch's own Python functions enter the handler by way of overrides.py ...
            reentered = reentered or _drop_overrides(kept)
            continue
        # ... and are then called a second time: the first appearance goes.
        if reentered and kept and kept[-1].tb_frame.f_code is entry.tb_frame.f_code:
            kept.pop()
        reentered = False
        kept.append(entry)
    return kept


def _drop_overrides(kept: list[TracebackType]) -> bool:
    dropped = False
    while kept and _file(kept[-1]).endswith(_OVERRIDES):
        kept.pop()
        dropped = True
    return dropped


def _file(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename
