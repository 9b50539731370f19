"""Small pieces of wording that several rules share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from whygrad.source.spans import Span


def listed(names: Iterable[str], limit: int = 3) -> str:
    """`a`, `b` and 3 more."""
    names = list(names)
    quoted = [f"`{name}`" for name in names[:limit]]
    rest = len(names) - limit
    if rest > 0:
        return f"{', '.join(quoted)} and {rest} more"
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def at(span: Span) -> str:
    return f"{os.path.basename(span.file)}:{span.line}"


def first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def first_sentence(text: str) -> str:
    """Torch's complaint itself, without the advice that follows it."""
    return re.split(r"\.\s+(?=[A-Z])", first_line(text), maxsplit=1)[0].removesuffix(".")


def continued(text: str) -> str:
    """A sentence as it goes on after a colon; names keep their capitals."""
    first = text.split(" ", 1)[0].rstrip(",.;:")
    plain = first.isalpha() and first[1:].islower()
    return text[:1].lower() + text[1:] if plain or first in ("A", "I") else text


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
