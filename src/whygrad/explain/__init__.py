"""One page per cause code: what happens, why, and a failing and a fixed program.

Adding `pages/CODE.md` is all it takes to add a page.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from importlib.resources import files

SECTIONS = (
    "What happens",
    "Failing example",
    "Why",
    "Fixed example",
    "When it is deliberate",
    "See also",
)

_PAGES = files(__name__) / "pages"
_TITLE = re.compile(r"# (?P<code>\S+): (?P<summary>.+)")
_MAX_MATCHES = 3


@dataclass(frozen=True)
class Page:
    code: str
    summary: str
    text: str  # the whole page, in Markdown
    failing: str  # a complete program that shows the bug
    fixed: str  # the same program, repaired


class UnknownCode(LookupError):
    """There is no page for `code`; `matches` are the codes that come close, best first."""

    def __init__(self, code: str, matches: list[str]) -> None:
        super().__init__(f"no page for {code!r}")
        self.code = code
        self.matches = matches


def codes() -> list[str]:
    names = (entry.name for entry in _PAGES.iterdir())
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


def page(code: str) -> Page:
    """The page for `code`; raises UnknownCode if there is none."""
    known = codes()
    if code not in known:
        raise UnknownCode(code, _close_matches(code, known))
    return parse((_PAGES / f"{code}.md").read_text(encoding="utf-8"))


def parse(text: str) -> Page:
    """Read a page; raises ValueError if its title or one of its programs is missing."""
    title = _TITLE.match(text)
    if title is None:
        raise ValueError("a page starts with '# code: summary'")
    return Page(
        code=title["code"],
        summary=title["summary"],
        text=text,
        failing=_program(text, "Failing example"),
        fixed=_program(text, "Fixed example"),
    )


def section(text: str, heading: str) -> str:
    """What stands under `## heading`; empty if the page has no such section."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found[1].strip() if found else ""


def _program(text: str, heading: str) -> str:
    found = re.search(r"^```python\n(.*?)^```$", section(text, heading), re.M | re.S)
    if found is None:
        raise ValueError(f"no python program under '## {heading}'")
    return found[1]


def _close_matches(code: str, known: list[str]) -> list[str]:
    wanted = code.lower().replace("_", "-")
    # A part of a code ("frozen") is a likely request, and difflib rates it low.
    parts = [name for name in known if len(wanted) > 2 and wanted in name]
    similar = difflib.get_close_matches(wanted, known, n=_MAX_MATCHES)
    return list(dict.fromkeys(parts + similar))[:_MAX_MATCHES]
