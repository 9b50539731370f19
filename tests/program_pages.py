"""Small programs in Markdown, each with its cause and the line it must be found at.

    ## name: code            (or `code-a or code-b`, or `healthy`)

    perhaps a line about it, then the program

The lines that a right diagnosis may point to end in a mark: `# <-- cut` or `# <-- here`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from program_runs import ForkServer

PROGRAM = re.compile(
    r"^## (?P<name>[^:\n]+): (?P<codes>[^\n]+)\n+(?:[^`#\n][^\n]*\n+)*"
    r"```python\n(?P<text>.*?)^```",
    re.M | re.S,
)
MARK = re.compile(r"# <-- (?:cut|here)")


@dataclass
class Program:
    name: str
    codes: list[str]  # empty: healthy
    text: str

    @property
    def marked_lines(self) -> list[int]:
        return [n for n, line in enumerate(self.text.splitlines(), 1) if MARK.search(line)]


def programs_in(folder: Path) -> list[Program]:
    return [
        Program(
            f"{page.stem}-{found['name']}",
            [] if found["codes"] == "healthy" else found["codes"].split(" or "),
            found["text"],
        )
        for page in sorted(folder.glob("*.md"))
        for found in PROGRAM.finditer(page.read_text())
    ]


def check(program: Program, server: ForkServer, folder: Path) -> None:
    """The first finding has the right code and line; a healthy program has none."""
    file = folder / "program.py"
    file.write_text(program.text)
    run = server.run(file, watched=True)
    found = [(f["code"], f["location"]["line"]) for f in run.judged]
    assert not [note for note in run.report["notes"] if "fault" in note]
    if not program.codes:
        assert found == []
        return
    assert found, run.stderr
    code, line = found[0]
    assert code in program.codes
    assert line in program.marked_lines
