"""The programs that make torch say each message, and the line that is to blame in each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "triggers"


@dataclass(frozen=True)
class Trigger:
    """A program that makes torch say a message."""

    id: str
    group: str
    program: str
    codes: tuple[str, ...]  # that are right, of the finding that comes first
    lines: tuple[int, ...]  # that are right to point at
    heavy: bool = False  # it uses slow parts of torch
    named: tuple[str, ...] = ()  # what the report must mention
    unwatched: bool = False  # torch says it on a stream that a program's own warnings do not use


@dataclass(frozen=True)
class Simulated:
    """A message that no program can cause on a machine without other devices."""

    id: str
    exception: str
    text: str
    codes: tuple[str, ...]


def triggers() -> list[Trigger]:
    return [Trigger(group=group, **_lists(row)) for group, row in _rows("trigger")]


def simulated() -> list[Simulated]:
    return [Simulated(**_lists(row)) for _, row in _rows("simulated")]


def _rows(kind: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (file.stem, row)
        for file in sorted(FOLDER.glob("*.toml"))
        for row in tomllib.loads(file.read_text(encoding="utf-8")).get(kind, [])
    ]


def _lists(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
