"""Objects that note where they are used, and spans found by their text."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

from whygrad.source.files import load
from whygrad.source.spans import Span, span_of


class Probe:
    """Answers every operation with itself and notes the frame that asked for it."""

    def __init__(self, seen: list[tuple[str, Any, int]]) -> None:
        object.__setattr__(self, "seen", seen)

    def _note(self, operation: str) -> Probe:
        frame = sys._getframe(2)
        self.seen.append((operation, frame.f_code, frame.f_lasti))
        return self

    def __getattr__(self, name: str) -> Probe:
        return self._note(f"get {name}")

    def __setattr__(self, name: str, value: object) -> None:
        self._note(f"set {name}")

    def __call__(self, *args: object, **kwargs: object) -> Probe:
        return self._note("call")

    def __add__(self, other: object) -> Probe:
        return self._note("add")

    def __iadd__(self, other: object) -> Probe:
        return self._note("iadd")

    def __getitem__(self, key: object) -> Probe:
        return self._note("getitem")

    def __setitem__(self, key: object, value: object) -> None:
        self._note("setitem")

    def __enter__(self) -> Probe:
        return self._note("enter")

    def __exit__(self, *error: object) -> None:
        self._note("exit")

    def __bool__(self) -> bool:
        self._note("bool")
        return False

    def __iter__(self) -> Any:
        self._note("iter")
        return iter([Probe(self.seen)])


def write(folder: Path, text: str, name: str = "program.py") -> str:
    """Write a source and give its file name; each test has a folder of its own."""
    path = folder / name
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return str(path)


def execute(file: str, **names: object) -> dict[str, Any]:
    namespace: dict[str, Any] = dict(names)
    exec(compile(Path(file).read_bytes(), file, "exec"), namespace)
    return namespace


def watch(folder: Path, text: str) -> list[tuple[str, Span | None]]:
    """Run a source in which `t` and `u` are probes; each operation with its span."""
    seen: list[tuple[str, Any, int]] = []
    execute(write(folder, text), t=Probe(seen), u=Probe(seen))
    return [(operation, span_of(code, lasti)) for operation, code, lasti in seen]


def spans_of(folder: Path, text: str, operation: str) -> list[Span]:
    return [s for found, s in watch(folder, text) if found == operation and s is not None]


def text_at(span: Span) -> str:
    return load(span.file).text(span.extent)


def find(file: str, text: str, occurrence: int = 0) -> Span:
    """The span of a piece of text in a file."""
    whole = Path(file).read_text(encoding="utf-8")
    start = -1
    for _ in range(occurrence + 1):
        start = whole.index(text, start + 1)
    before, through = whole[:start], whole[: start + len(text)]
    line, end_line = before.count("\n") + 1, through.count("\n") + 1
    column, end_column = start - before.rfind("\n"), start + len(text) - through.rfind("\n")
    return Span(file, line, column, end_line, end_column)
