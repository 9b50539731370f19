"""Small programs in Markdown, each with its cause and the line it must be found at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from program_runs import ForkServer

PROGRAM = re.compile(
    r"^## (?P<name>[^:\n]+): (?P<codes>[^\n]+)\n+```python\n(?P<text>.*?)^```", re.M | re.S
)
MARK = "# <-- cut"


@dataclass
class Program:
    name: str
    codes: list[str]  # empty: healthy
    text: str

    @property
    def marked_lines(self) -> list[int]:
        return [n for n, line in enumerate(self.text.splitlines(), 1) if MARK in line]


def all_programs() -> list[Program]:
    return [
        Program(
            f"{page.stem}-{found['name']}",
            [] if found["codes"] == "healthy" else found["codes"].split(" or "),
            found["text"],
        )
        for page in sorted(Path(__file__).parent.glob("*.md"))
        for found in PROGRAM.finditer(page.read_text())
    ]


@pytest.mark.parametrize("program", all_programs(), ids=lambda program: program.name)
def test_the_cut_is_found_where_it_is(
    program: Program, programs: ForkServer, tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text(program.text)
    run = programs.run(file, watched=True)
    found = [(f["code"], f["location"]["line"]) for f in run.judged]
    if not program.codes:
        assert found == []
        return
    assert found, run.stderr
    code, line = found[0]
    assert code in program.codes
    assert line in program.marked_lines
    assert not [note for note in run.report["notes"] if "fault" in note]
