"""Every page's failing program is diagnosed as its page says, and its fixed one is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from program_runs import ForkServer, Run
from whygrad import explain

PAGES = [explain.page(code) for code in explain.codes()]


@pytest.fixture
def run(programs: ForkServer, tmp_path: Path):
    def run_text(text: str) -> Run:
        file = tmp_path / "example.py"
        file.write_text(text, encoding="utf-8")
        return programs.run(file, watched=True)

    return run_text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_the_failing_example_is_diagnosed(page: explain.Page, run) -> None:
    outcome = run(page.failing)
    found = outcome.told(page.code)
    assert found, outcome.stderr
    first = found[0]
    lines = page.failing.splitlines()
    assert first["code"] == page.code
    assert Path(first["location"]["file"]).name == "example.py"
    assert 1 <= first["location"]["line"] <= len(lines)
    assert first["location"]["text"] == lines[first["location"]["line"] - 1].strip()
    assert outcome.report["notes"] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_nothing_is_found_in_the_fixed_example(page: explain.Page, run) -> None:
    outcome = run(page.fixed)
    assert outcome.judged == []
    assert outcome.report["notes"] == []
    assert outcome.exit_code == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_the_examples_differ_where_the_finding_points(page: explain.Page, run) -> None:
    """The named line is one that the fixed program does not have."""
    named = run(page.failing).told(page.code)[0]["location"]
    span = page.failing.splitlines()[named["line"] - 1 : named["end_line"]]
    fixed = page.fixed.splitlines()
    assert any(line not in fixed for line in span)
