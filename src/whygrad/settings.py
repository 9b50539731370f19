"""What a run of whygrad can be told, and where `pyproject.toml` says it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

Format = Literal["full", "concise", "github"]
FORMATS: tuple[str, ...] = get_args(Format)


class SettingsError(ValueError):
    """A setting that cannot be used; the message is one line for the user."""


@dataclass
class Settings:
    select: list[str] = field(default_factory=list)  # empty: all codes
    ignore: list[str] = field(default_factory=list)
    format: Format = "full"
    strict: bool = False
    quiet: bool = False
    verbose: bool = False
    json: str | None = None
    save: str | None = None
    max_operations: int = 100_000  # the bound of the record
    eager: bool = False  # run compiled functions eagerly, to see inside them
    watch_step: list[int] = field(default_factory=list)  # steps to follow closely


def _is_codes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(code, str) for code in value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_steps(value: Any) -> bool:
    return isinstance(value, list) and all(_is_count(step) for step in value)


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "select": (_is_codes, "a list of codes"),
    "ignore": (_is_codes, "a list of codes"),
    "format": (lambda value: value in FORMATS, "one of " + ", ".join(FORMATS)),
    "strict": (_is_flag, "true or false"),
    "quiet": (_is_flag, "true or false"),
    "verbose": (_is_flag, "true or false"),
    "eager": (_is_flag, "true or false"),
    "max-operations": (_is_count, "a positive whole number"),
    "watch-step": (_is_steps, "a list of positive whole numbers"),
}


def load_settings(start: Path) -> Settings:
    """The settings of the nearest `pyproject.toml` at or above `start` that has a table for us."""
    start = start.absolute()
    for directory in (start, *start.parents):
        file = directory / "pyproject.toml"
        table = _read_table(file)
        if table is not None:
            return Settings(**_checked(file, table))
    return Settings()


def _read_table(file: Path) -> dict[str, Any] | None:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError:
        return None
    except ValueError as error:  # not TOML, or not UTF-8
        raise SettingsError(f"{file}: not valid TOML: {error}") from None
    tools = data.get("tool")
    table = tools.get("whygrad") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise SettingsError(f"{file}: tool.whygrad must be a table")
    return table


def _checked(file: Path, table: dict[str, Any]) -> dict[str, Any]:
    for key, value in table.items():
        if key not in _CHECKS:
            known = ", ".join(_CHECKS)
            raise SettingsError(f"{file}: unknown key tool.whygrad.{key} (known: {known})")
        accepts, wanted = _CHECKS[key]
        if not accepts(value):
            raise SettingsError(f"{file}: tool.whygrad.{key} must be {wanted}, not {value!r}")
    return {key.replace("-", "_"): value for key, value in table.items()}
