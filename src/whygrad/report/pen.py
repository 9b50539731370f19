"""How to draw: the width, the symbols and the colours that a stream can take."""

from __future__ import annotations

from dataclasses import dataclass

from whygrad.report import text

DEFAULT_WIDTH = 80
NARROWEST = 40
WIDEST_PROSE = 88

_SYMBOLS = {
    "live": ("●", "*"),
    "cut": ("✂", "X"),
    "values": ("┊", ":"),
    "off": ("○", "o"),
    "line": ("─", "-"),
    "corner": ("┐", "+"),
    "branch": ("┤", "+"),
    "join": ("┘", "+"),
    "arrow": ("◀", "<"),
    "top": ("┌", "+"),
    "side": ("├", "+"),
    "through": ("│", "|"),
    "ellipsis": ("…", "..."),
    "dot": ("·", "-"),
}

_COLOURS = {
    "error": "1;31",
    "warning": "1;33",
    "info": "1;36",
    "strong": "1",
    "dim": "2",
    "live": "32",
    "cut": "1;31",
    "values": "2",
    "off": "2",
    "second": "1;34",
    "added": "32",
    "removed": "31",
}


@dataclass(frozen=True)
class Pen:
    width: int = DEFAULT_WIDTH
    color: bool = False
    unicode: bool = True
    verbose: bool = False

    def symbol(self, name: str) -> str:
        return _SYMBOLS.get(name, ("?", "?"))[0 if self.unicode else 1]

    @property
    def ellipsis(self) -> str:
        return self.symbol("ellipsis")

    @property
    def text_width(self) -> int:
        """Prose stays clear of the edge, where some terminals wrap early, and readably short."""
        return min(self.width - 2, WIDEST_PROSE)

    def paint(self, style: str, content: str) -> str:
        if not self.color or not content.strip() or style not in _COLOURS:
            return content
        return f"\x1b[{_COLOURS[style]}m{content}\x1b[0m"

    def clean(self, content: str) -> str:
        return text.one_line(content, unicode=self.unicode)

    def wrap(self, content: str, width: int, *, first: int = 0) -> list[str]:
        return text.wrap(content, width, first=first, unicode=self.unicode)

    def paragraph(self, keyword: str, content: str, *, indent: int, start: int = 0) -> list[str]:
        """Wrapped text after a bold keyword, further lines indented."""
        width = self.text_width
        lines = self.wrap(f"{keyword} {content}", width - indent, first=width - start) or [keyword]
        head = self.paint("strong", keyword) + lines[0].removeprefix(keyword)
        return [" " * start + head, *(" " * indent + line for line in lines[1:])]


def all_symbols() -> str:
    return "".join(fancy for fancy, _ in _SYMBOLS.values())
