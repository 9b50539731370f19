"""What each rule says, word by word: read a snapshot's diff as the user would read the report."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest

from program_runs import ForkServer
from snapshots import assert_matches_snapshot
from whygrad import explain
from whygrad.report import load_schema


@pytest.mark.parametrize("code", explain.codes())
def test_the_report_of_each_cause(code: str, programs: ForkServer, tmp_path: Path) -> None:
    """The failing example of the cause's explain page, under whygrad."""
    program = tmp_path / "example.py"
    program.write_text(explain.page(code).failing)
    run = programs.run(program, watched=True)
    report = re.search(r"^(?:error|warning)\[.*", run.stderr, re.S | re.M)
    if not run.judged:  # a note, which only those see who ask for all
        run = programs.run(program, watched=True, verbose=True)
        report = re.search(r"^info\[.*?(?=^all parameters:|\Z)", run.stderr, re.S | re.M)
    assert report is not None, run.stderr
    jsonschema.validate(run.report, load_schema())
    assert_matches_snapshot(Path(__file__).parent / "snapshots" / f"{code}.txt", report.group())
