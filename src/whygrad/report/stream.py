"""What a stream can show: its width, colours and characters."""

from __future__ import annotations

import os
from typing import Any, TextIO, TypedDict

from whygrad.report.pen import DEFAULT_WIDTH, all_symbols

WIDEST = 100


class StreamOptions(TypedDict):
    width: int
    color: bool
    unicode: bool


def stream_options(stream: TextIO) -> StreamOptions:
    """Options for `draw` that suit the stream and the reader's environment."""
    terminal = _is_terminal(stream)
    return {
        "width": min(_width(stream, terminal), WIDEST),
        "color": _takes_color(terminal),
        "unicode": _takes_unicode(stream),
    }


def _is_terminal(stream: TextIO) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # a stand-in object, or a closed stream
        return False


def _takes_color(terminal: bool) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"


def _takes_unicode(stream: TextIO) -> bool:
    encoding: Any = getattr(stream, "encoding", None)
    if encoding is None:  # text kept in memory
        return True
    try:
        # The last one stands for what sources may contain: legacy tables stop short of it.
        f"{all_symbols()}\N{GRINNING FACE}".encode(encoding)
    except (LookupError, TypeError, UnicodeEncodeError):
        return False
    return True


def _width(stream: TextIO, terminal: bool) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    if not terminal:
        return DEFAULT_WIDTH
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):
        return DEFAULT_WIDTH
