"""Fills in the generated parts of the documentation: `python docs/generate.py [--check]`.

A generated part stands between two comments, `<!-- generated: NAME -->` and `<!-- end -->`.
With `--check` nothing is written, and the exit code tells whether all of it is fresh.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from whygrad import explain
from whygrad.__main__ import COMMANDS

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "causes.md", ROOT / "docs" / "cli.md"]
PART = re.compile(r"(<!-- generated: (?P<name>[\w .-]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.S)


def run(*arguments: str, directory: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A Python process whose output does not depend on the terminal that it is started from."""
    plain = {"COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=os.environ | plain,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def fenced(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.strip()}\n```\n"


def demo() -> str:
    """What `make demo` shows: the last line of torch's traceback, then the report."""
    said = run("-m", "whygrad", "run", "train.py", directory=ROOT / "examples" / "river").stderr
    traceback, mark, report = said.partition("error[")
    last = traceback.strip().splitlines()[-1]
    return fenced(f"$ python train.py\n{last}\n\n$ whygrad run train.py\n{mark}{report}")


def example(name: str) -> str:
    return fenced((ROOT / "examples" / name).read_text(encoding="utf-8"), "python")


def output(name: str) -> str:
    """What an example prints; of a report in it, only how it begins."""
    said = run(name, directory=ROOT / "examples").stdout
    return fenced(re.sub(r"(^  --> .*?\n)(?:.*\n)*?(?=\[)", r"\1   ...\n\n", said, flags=re.M))


def codes() -> str:
    rows = ["| code | what happened |", "|---|---|"]
    for code in explain.codes():
        page = explain.page(code)
        rows.append(f"| [`{code}`](../src/whygrad/explain/pages/{code}.md) | {page.summary} |")
    return "\n".join(rows) + "\n"


def usage(*command: str) -> str:
    return fenced(run("-m", "whygrad", *command, "--help").stdout)


GENERATORS: dict[str, Callable[[], str]] = {
    "demo": demo,
    "codes": codes,
    "ask.py": lambda: example("ask.py"),
    "ask.py output": lambda: output("ask.py"),
    "whygrad": usage,
} | {f"whygrad {name}": (lambda name=name: usage(name)) for name in COMMANDS}


def fill_in(text: str) -> str:
    """A document with its generated parts made anew."""
    return PART.sub(
        lambda found: f"{found[1]}{GENERATORS[found['name']]()}{found[4]}",
        text,
    )


def stale_parts(text: str) -> list[str]:
    """Names of the parts of a document that are no longer what would be generated."""
    return [
        found["name"]
        for found in PART.finditer(text)
        if not _same(found["name"], found["text"], GENERATORS[found["name"]]())
    ]


def _same(name: str, one: str, other: str) -> bool:
    return same_words(one, other) if name.startswith("whygrad") else one == other


def same_words(one: str, other: str) -> bool:
    """Equal up to line breaks, and up to how different Pythons show `-o OUT, --output OUT`."""
    return _words(one) == _words(other)


def _words(text: str) -> str:
    return " ".join(re.sub(r"(-\w) ([A-Z]+), (--\w+ \2)", r"\1, \3", text).split())


def main(arguments: list[str]) -> int | str:
    if arguments == ["--check"]:
        stale = [name for file in DOCUMENTS for name in stale_parts(file.read_text("utf-8"))]
        return f"out of date, run `make docs`: {', '.join(stale)}" if stale else 0
    for file in DOCUMENTS:
        file.write_text(fill_in(file.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
