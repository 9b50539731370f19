"""Text from anywhere, made safe to print and measured as a terminal draws it."""

from __future__ import annotations

import re
import unicodedata

TAB = 4
# Quoted code up to this length is kept on one line when prose is wrapped.
QUOTE = 40
# A clipped name begins at a dot, if that costs at most this many characters more.
WORD_LOST = 12
_WORD = re.compile(rf"(?:`[^`]{{0,{QUOTE}}}`|\S)+")

# What our own messages may contain; anything else that is not ASCII is shown as its escape.
_PLAIN = {
    "…": "...", "·": "-", "–": "-", "—": "-", "→": "->", "×": "x", "≤": "<=", "≥": ">=",
    "‘": "'", "’": "'", "“": '"', "”": '"',
}  # fmt: skip


def shown(character: str, *, unicode: bool = True) -> str:
    """One character as it may be printed: control and invisible ones become escapes.

    Format characters count as invisible: bidirectional overrides reorder a line, and
    joiners make its width depend on the terminal, which would shift the carets.
    """
    if " " <= character <= "~":
        return character
    if not unicode and character in _PLAIN:
        return _PLAIN[character]
    category = unicodedata.category(character)
    if not unicode or category[0] == "C" or category in ("Zl", "Zp"):
        return character.encode("unicode_escape").decode("ascii")
    return character


def clean(text: str, *, unicode: bool = True) -> str:
    return "".join(shown(character, unicode=unicode) for character in text)


def one_line(text: str, *, unicode: bool = True) -> str:
    """Safe text with every run of white space as one blank."""
    return clean(" ".join(text.split()), unicode=unicode)


def pieces(line: str, *, unicode: bool = True) -> list[str]:
    """A source line as one printable string per character, tabs expanded to their stops."""
    result: list[str] = []
    position = 0
    for character in line:
        piece = (
            " " * (TAB - position % TAB) if character == "\t" else shown(character, unicode=unicode)
        )
        result.append(piece)
        position += cells(piece)
    return result


def cells(text: str) -> int:
    """How many terminal cells the text takes."""
    if text.isascii():
        return len(text)
    return sum(_character_cells(character) for character in text)


def _character_cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pad(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def clip(text: str, width: int, ellipsis: str) -> str:
    """The beginning of the text, with an ellipsis if it does not fit."""
    if cells(text) <= width:
        return text
    if width < cells(ellipsis):
        return ""
    return _prefix(text, width - cells(ellipsis)).rstrip() + ellipsis


def clip_start(text: str, width: int, ellipsis: str) -> str:
    """The end of the text, for dotted names, whose last parts say most."""
    if cells(text) <= width:
        return text
    kept = _prefix(text[::-1], width - cells(ellipsis))[::-1]
    dot = kept.find(".")
    return ellipsis + (kept[dot:] if 0 <= dot <= WORD_LOST else kept)


def _prefix(text: str, width: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += cells(character)
        if used > width:
            return text[:index]
    return text


def wrap(text: str, width: int, *, first: int = 0, unicode: bool = True) -> list[str]:
    """Safe lines of at most `width` cells (`first` for the first); short quotes stay whole."""
    lines: list[str] = []
    current = ""
    for word in _words(text, width, unicode):
        joined = f"{current} {word}" if current else word
        limit = width if lines else first or width
        if current and cells(joined) > limit:
            lines.append(current)
            current = word
        else:
            current = joined
    return [*lines, current] if current else lines


def _words(text: str, width: int, unicode: bool) -> list[str]:
    result: list[str] = []
    for match in _WORD.finditer(" ".join(text.split())):
        word = clean(match.group(), unicode=unicode)
        if cells(word) <= width:
            result.append(word)
            continue
        for part in word.split(" "):
            result += _broken(part, width)
    return result


def _broken(word: str, width: int) -> list[str]:
    """A word that is longer than a line, in pieces that fill one each."""
    result = [""]
    used = 0
    for character in word:
        used += cells(character)
        if used > width and result[-1]:
            result.append("")
            used = cells(character)
        result[-1] += character
    return result
