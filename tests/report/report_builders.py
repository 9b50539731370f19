"""What sessions are made of when a test makes one by hand."""

from __future__ import annotations

import os
from textwrap import dedent

from whygrad.session import (
    Finding,
    Location,
    PathStep,
    Program,
    Session,
)


class Sources:
    """Source files by name, in a directory where reports show them by their short name."""

    def __init__(self, **files: str) -> None:
        self.lines = {
            self.path(name): dict(enumerate(dedent(text).lstrip("\n").splitlines(), start=1))
            for name, text in files.items()
        }

    @staticmethod
    def path(name: str) -> str:
        return os.path.join(os.getcwd(), f"{name}.py")

    def at(
        self, name: str, line: int, span: str = "", *, to: int = 0, function: str = ""
    ) -> Location:
        """The place of `span` in a line, or from there to the end of line `to`."""
        path = self.path(name)
        text = self.lines[path][line]
        column = text.index(span) + 1 if span else len(text) - len(text.lstrip()) + 1
        end = column + len(span or text.strip())
        if to:
            end = len(self.lines[path][to]) + 1
        return Location(path, line, column, to or line, end, function, text.strip())

    def op(
        self, name: str, state: str, shape: list[int], file: str, line: int, text: str
    ) -> PathStep:
        return PathStep("op", name, state, shape, self.path(file), line, text)  # type: ignore[arg-type]


def parameter(name: str, shape: list[int], state: str = "live") -> PathStep:
    return PathStep("parameter", name, state, shape)  # type: ignore[arg-type]


def session_of(files: Sources, /, *findings: Finding, **values: object) -> Session:
    session = Session(
        whygrad="0.1.0",
        torch="2.13.0",
        program=Program(argv=["train.py"], exit_code=1),
        findings=list(findings),
        steps=1,
        overhead={"seconds": 0.01},
        sources=files.lines,
    )
    for name, value in values.items():
        setattr(session, name, value)
    return session
