"""A message of torch's that somebody pasted, perhaps with its traceback: what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass

from whygrad import catalogue
from whygrad.catalogue import Message

# "RuntimeError: text", as the last line of a traceback, or "train.py:3: UserWarning: text".
_HEAD = re.compile(
    r"^(?:\[rank\d+\]:\s*)?(?:\S.*?:\d+:\s*)?(?:[A-Za-z_]\w*\.)*"
    r"(?P<kind>[A-Za-z_]\w*(?:Error|Warning|Exception)|Unsupported)\s*:\s?(?P<text>.*)$"
)
_PLACE = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
_INSTALLED = ("/site-packages/", "/dist-packages/", "\\site-packages\\", "/lib/python", "<")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[a-z_]{3,}")
_TOKEN = re.compile(r"\{[^}]*\}|[A-Za-z_]+|\d+")
_MIN_WORDS = 3  # of a shortened message
_MAX_VARIED = 8  # words of what varies in it
_SIMILAR = 0.45  # share of a message's words that a text must have to be worth mentioning
_MAX_SIMILAR = 3


@dataclass(frozen=True)
class Pasted:
    """What could be made of a pasted text."""

    kind: str  # class of the exception or warning, "" if it was not pasted
    text: str
    message: Message | None
    place: str  # the innermost line of the user's own that a traceback names
    similar: tuple[Message, ...] = ()  # that it may be as well, or come close if it is none


def is_message(text: str) -> bool:
    """Whether an argument is a message of torch's rather than a code."""
    return bool(re.search(r"\s", text.strip())) or text.strip().endswith(":")


def read(text: str) -> Pasted:
    """Find the message in a text, or by its id; the last one counts, as in a traceback."""
    named = catalogue.by_id(text)
    if named is not None:
        return Pasted("", named.template, named, "")
    said = _said(text)
    for kind, words in reversed(said):
        message = _find(words, kind)
        if message is not None:
            return Pasted(kind, words, message, _own_place(text))
    message = _find(text, "")
    if message is not None:
        return Pasted("", _matched(text, message), message, _own_place(text))
    kind, words = said[-1] if said else ("", text.strip())
    parts = _partly(words)
    if parts:
        return Pasted(kind, words, parts[0], _own_place(text), tuple(parts[1:_MAX_SIMILAR]))
    return Pasted(kind, words, None, _own_place(text), _similar(words))


def _said(text: str) -> list[tuple[str, str]]:
    """Class and text of every exception and warning in it, in order."""
    found: list[tuple[str, list[str]]] = []
    for line in text.strip().splitlines():
        head = _HEAD.match(line.strip())
        if head is not None:
            found.append((head["kind"], [head["text"]]))
        elif found and not _PLACE.match(line) and "Traceback (most recent call" not in line:
            found[-1][1].append(line)
    return [(kind, "\n".join(lines).strip()) for kind, lines in found]


def _find(text: str, kind: str) -> Message | None:
    """As it stands, as one line (terminals and chats break long ones), or with any class."""
    whole = _SPACE.sub(" ", text)
    return (
        catalogue.find(text, kind)
        or catalogue.find(whole, kind)
        or (catalogue.find(whole) if kind else None)
    )


def _matched(text: str, message: Message) -> str:
    found = message.pattern.search(text) or message.pattern.search(_SPACE.sub(" ", text))
    return found.group() if found is not None else text.strip()


def _own_place(text: str) -> str:
    place = ""
    for line in text.splitlines():
        found = _PLACE.match(line)
        if found and not any(part in found["file"] for part in _INSTALLED):
            place = f"{found['file']}:{found['line']}"
    return place


def _partly(text: str) -> list[Message]:
    """The messages of which a text is a part, the most common first: people shorten them."""
    part = _tokens(text.strip().rstrip(".\u2026").strip())
    if len(part) < _MIN_WORDS:
        return []
    found = [m for m in catalogue.messages() if _contains(_tokens(m.template), part)]
    return sorted(found, key=lambda message: message.rank or len(catalogue.messages()))


def _tokens(text: str) -> list[str]:
    found = _TOKEN.findall(text)
    return ["{}" if token.startswith("{") else token.lower() for token in found]


def _contains(whole: list[str], part: list[str]) -> bool:
    """Whether a text is a part of a message, most of it in the message's own words."""
    enough = max(_MIN_WORDS, len(part) // 2)
    return any(_own_words(whole[start:], part) >= enough for start in range(len(whole)))


def _own_words(template: list[str], part: list[str]) -> int:
    """How many words of a template a text begins with; what varies may be several words long.

    A negative number if it is not how the template begins.
    """
    if not part:
        return 0
    if not template:
        return -len(part)
    if template[0] == "{}":
        counts = range(1, min(len(part), _MAX_VARIED) + 1)
        return max(_own_words(template[1:], part[count:]) for count in counts)
    if template[0] != part[0]:
        return -len(part)
    return 1 + _own_words(template[1:], part[1:])


def _similar(text: str) -> tuple[Message, ...]:
    given = set(_WORD.findall(text.lower()))
    rated = []
    for message in catalogue.messages():
        words = set(_WORD.findall(message.template.lower()))
        share = len(words & given) / len(words) if words else 0.0
        if share >= _SIMILAR and len(words & given) > 2:
            rated.append((share, message))
    rated.sort(key=lambda row: -row[0])
    return tuple(message for _, message in rated[:_MAX_SIMILAR])


def answer(pasted: Pasted, summaries: dict[str, str]) -> str:
    """What a pasted message means, in Markdown; `summaries` are the pages' headlines by code."""
    message = pasted.message
    if message is None:
        raise ValueError("nothing is known about this text")
    shown = _SPACE.sub(" ", pasted.text)
    shown = shown if len(shown) <= 200 else f"{shown[:200].rstrip()} ..."
    head = f"# {pasted.kind or message.exception}: {shown}"
    lines = [head, "", message.meaning, ""]
    if pasted.similar:
        others = " or ".join(f"`{other.template}`" for other in pasted.similar)
        lines += [f"The text is short: it could be {others} as well.", ""]
    if pasted.place:
        lines += [f"The traceback's last line of your own: `{pasted.place}`.", ""]
    if message.torch:
        lines += [f"Said by torch {message.torch}.", ""]
    lines += ["## Likely causes, most frequent first", ""]
    lines += [f"{number}. {cause}" for number, cause in enumerate(message.causes, 1)]
    lines.append("")
    if message.fix:
        lines += ["## What to do", "", f"{_sentence(message.fix)}", ""]
    known = [code for code in message.codes if code in summaries]
    if known:
        lines += ["## Read more", ""]
        lines += [f"- `whygrad explain {code}`: {summaries[code]}" for code in known]
        lines.append("")
    lines += [
        "## Find the line",
        "",
        "`whygrad run your_program.py` runs it as it is and names the line that caused this.",
        "",
    ]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    plain = re.sub(r"\{(\w+)\}", r"\1", text)
    return plain[:1].upper() + plain[1:] + ("" if plain.endswith(".") else ".")
