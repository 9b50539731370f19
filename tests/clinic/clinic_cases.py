"""The clinic's cases and what counts as solving one."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from program_runs import Run

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """A program with a bug, its healthy twin, and the ground truth."""

    name: str  # family/stem
    program: Path
    twin: Path
    truth: dict[str, Any] = field(repr=False)

    def shortcoming(self, run: Run) -> str:
        """Why the first judged finding of a run does not solve the case; empty if it does."""
        if not run.judged:
            return "nothing was found"
        first = run.judged[0]
        place = first["location"]
        if first["code"] not in {self.truth["cause"], *self.truth["also"]}:
            return f"wrong cause {first['code']}, wanted {self.truth['cause']}"
        if Path(place["file"]).name != self.program.name:
            return f"wrong file {place['file']}"
        if place["line"] not in self.truth["lines"]:
            return f"wrong line {place['line']}, wanted one of {self.truth['lines']}"
        unnamed = [name for name in self.truth["names"] if name not in json.dumps(first)]
        return f"does not mention {unnamed}" if unnamed else ""


def load_cases() -> list[Case]:
    return [
        Case(
            name=f"{file.parent.name}/{file.stem}",
            program=file.with_suffix(".py"),
            twin=file.with_suffix(".fixed.py"),
            truth=tomllib.loads(file.read_text(encoding="utf-8")),
        )
        for file in sorted(HERE.glob("cases/*/*.toml"))
    ]


def not_yet_covered() -> list[str]:
    lines = (HERE / "not_yet_covered.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
