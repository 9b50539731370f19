"""When `whygrad run` speaks: a line as soon as something is sure, and the report at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_helpers import FakeWatch, finding

from whygrad.__main__ import main

Write = Callable[..., str]
Watch = type[FakeWatch]
Captured = pytest.CaptureFixture[str]


def test_the_report_goes_to_stderr_after_the_program(
    program: Write, watch: Watch, capsys: Captured
) -> None:
    watch.findings = [finding()]
    script = program("import sys; print('out'); print('err', file=sys.stderr)")
    assert main(["run", "--format", "concise", script]) == 0
    out, err = capsys.readouterr()
    assert out == "out\n"
    assert err == "err\nmodel.py:1:1: error[detach-call] detach-call was found\n"


def test_the_traceback_comes_before_the_report(
    program: Write, watch: Watch, capsys: Captured
) -> None:
    watch.findings = [finding()]
    assert main(["run", program("raise ValueError('last words')")]) == 1
    err = capsys.readouterr().err
    assert err.index("ValueError: last words") < err.index("error[detach-call]")
    assert "whygrad/commands" not in err


def test_a_program_that_redirects_stderr_does_not_take_the_report_along(
    program: Write, watch: Watch, capsys: Captured, tmp_path: Path
) -> None:
    watch.findings = [finding()]
    real = sys.stderr
    try:
        main(["run", program("import sys; sys.stderr = open('log', 'w'); raise ValueError")])
        sys.stderr.close()
    finally:
        sys.stderr = real
    assert "error[detach-call]" in capsys.readouterr().err
    assert (tmp_path / "log").read_text().endswith("ValueError\n")


def test_a_line_as_soon_as_it_is_sure_and_the_report_at_the_end(
    program: Write, watch: Watch, capsys: Captured
) -> None:
    watch.early = [[finding("frozen", 3), finding("frozen", 3)]]
    watch.findings = [finding("detach-call", 1), finding("frozen", 3, count=5)]
    main(["run", "--format", "concise", program("import sys; print('err', file=sys.stderr)")])
    assert capsys.readouterr().err.splitlines() == [
        "",
        "whygrad: step 3: frozen was found: frozen at model.py:3; full report at the end",
        "err",
        "model.py:1:1: error[detach-call] detach-call was found",
        "model.py:3:1: error[frozen] frozen was found",
    ]


def early_lines(capsys: Captured) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return [line for line in lines if line.endswith("; full report at the end")]


def test_what_is_found_together_is_said_in_one_line(
    program: Write, watch: Watch, capsys: Captured
) -> None:
    watch.early = [[finding("frozen", 3), finding("item-call", 4)]]
    watch.findings = watch.early[0]
    main(["run", program()])
    assert early_lines(capsys) == [
        "whygrad: step 3: 2 findings: frozen at model.py:3, item-call at model.py:4;"
        " full report at the end"
    ]


def test_two_lines_are_enough(program: Write, watch: Watch, capsys: Captured) -> None:
    watch.early = [[finding("frozen", line)] for line in (3, 4, 5)]
    watch.findings = [finding("frozen", line) for line in (3, 4, 5)]
    main(["run", program()])
    early = early_lines(capsys)
    assert [line.partition(":3")[1] for line in early] == [":3", ""]
    assert [line.partition(":4")[1] for line in early] == ["", ":4"]


@pytest.mark.parametrize("values", [{"symptom": "raises"}, {"severity": "info"}, {"at_end": True}])
def test_what_waits_for_the_end(
    values: dict[str, object], program: Write, watch: Watch, capsys: Captured
) -> None:
    watch.early = [[finding("frozen", 3, **values)]]
    watch.findings = watch.early[0]
    main(["run", "-v", program()])
    err = capsys.readouterr().err
    assert "full report at the end" not in err
    assert "[frozen]: frozen was found" in err


def test_an_early_finding_that_did_not_last_is_taken_back(
    program: Write, watch: Watch, capsys: Captured
) -> None:
    watch.early = [[finding("frozen", 3), finding("frozen", 4)]]
    watch.findings = [finding("frozen", 3)]
    main(["run", "--format", "concise", program()])
    assert capsys.readouterr().err.splitlines()[2:] == [
        "model.py:3:1: error[frozen] frozen was found",
        "whygrad: said while the program ran, no longer counts: frozen at model.py:4",
    ]
