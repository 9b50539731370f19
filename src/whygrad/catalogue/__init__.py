"""The messages by which torch says that gradients failed: how to know them, and what they mean.

One file of `messages/` per kind of call. Adding an entry there is all it takes to know a message.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

_MESSAGES = files(__name__) / "messages"
# An exception's own class may be a subclass of the one that the catalogue names.
_WARNING = re.compile(r"\w*Warning")


@dataclass(frozen=True)
class Message:
    """One message of torch's, in all its wordings."""

    id: str
    group: str
    kind: str  # error | warning
    exception: str  # the class that is raised, or the warning's
    template: str  # {} stands for what varies
    regex: str
    channel: str  # exception | warnings | stderr
    phase: str
    frequency: str
    codes: tuple[str, ...]  # the causes that it can have, most likely first
    meaning: str
    causes: tuple[str, ...]  # in words, most likely first
    rank: int = 0  # 1 is what people meet most; 0 is not among the commonest
    told_by: str = ""  # the code whose rule tells it; empty where the flow of values decides
    title: str = ""  # headline of its finding: lowercase, no full stop
    label: str = ""  # what is true at the line, in a few words
    fix: str = ""  # what to do, imperative, lowercase
    deliberate: str = ""  # what to do if it is wanted
    severity: str = ""  # of a warning: "warning" if results are wrong, "info" if it is a notice
    torch: str = ""  # versions that have it, where that is not all from 2.6 on
    wordings: tuple[tuple[str, str], ...] = ()  # versions that word it differently, and how

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        others = "".join(rf"|\A{re.escape(text)}" for _, text in self.wordings)
        return re.compile(self.regex + others)

    @property
    def is_warning(self) -> bool:
        return self.kind == "warning"


@cache
def messages() -> tuple[Message, ...]:
    """All messages that are known."""
    found: list[Message] = []
    for file in sorted(_MESSAGES.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".toml"):
            group = file.name.removesuffix(".toml")
            table = tomllib.loads(file.read_text(encoding="utf-8"))
            found += [_message(group, entry) for entry in table["message"]]
    return tuple(found)


def _message(group: str, entry: dict[str, Any]) -> Message:
    listed: dict[str, Any] = {name: tuple(entry.get(name, ())) for name in ("codes", "causes")}
    wordings = tuple((other["torch"], other["text"]) for other in entry.get("wordings", ()))
    return Message(group=group, **entry | listed | {"wordings": wordings})


@cache
def by_id(name: str) -> Message | None:
    return next((message for message in messages() if message.id == name), None)


@cache
def python_symptoms() -> tuple[Message, ...]:
    """Messages of Python's own, which tell of gradients only if a missing one is behind them."""
    return tuple(message for message in messages() if message.group == "python-symptom")


def find(text: str, exception: str = "") -> Message | None:
    """The message that a text is, best match first; `exception` is the name of its class."""
    found = candidates(text, exception)
    return found[0] if found else None


def candidates(text: str, exception: str = "") -> list[Message]:
    """All messages that match a text: those of the same class first, then the longest match."""
    matched = []
    for message in messages():
        found = message.pattern.search(text)
        if found is not None:
            same = not exception or exception.rsplit(".", 1)[-1] == message.exception
            matched.append((not same, found.start() - found.end(), message))
    if exception:  # an error is no warning, whatever it says
        warning = bool(_WARNING.fullmatch(exception.rsplit(".", 1)[-1]))
        matched = [row for row in matched if row[2].is_warning == warning]
    matched.sort(key=lambda row: row[:2])
    return [message for *_, message in matched]
