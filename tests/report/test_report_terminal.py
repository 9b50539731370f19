"""The full report as people read it: stored texts, and what must hold for every one of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import report_sessions as sessions
from report_odd_sessions import EVIL

from snapshots import assert_matches_snapshot
from whygrad.report import render, render_finding
from whygrad.report.text import cells
from whygrad.session import Location, Session

FOLDER = Path(__file__).parent / "snapshots"
Builder = Callable[[], Session]
every_session = pytest.mark.parametrize("build", sessions.ALL, ids=lambda build: build.__name__)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


SNAPSHOTS: dict[str, tuple[Builder, dict[str, object]]] = {
    "detach_call": (sessions.detach_call, {"report_link": "whygrad-report.html"}),
    "detach_call_ascii": (sessions.detach_call, {"unicode": False}),
    "detach_call_narrow": (sessions.detach_call, {"width": 50}),
    "detach_call_wide_terminal": (sessions.detach_call, {"width": 100}),
    "forty_silent_parameters": (sessions.forty_silent_parameters, {}),
    "forty_silent_parameters_verbose": (sessions.forty_silent_parameters, {"verbose": True}),
    "two_findings_and_a_note": (sessions.two_findings_and_a_note, {}),
    "two_findings_and_a_note_verbose": (sessions.two_findings_and_a_note, {"verbose": True}),
    "wide_characters": (sessions.wide_characters, {}),
    "wide_characters_ascii": (sessions.wide_characters, {"unicode": False}),
    "hostile_text": (sessions.hostile_text, {}),
    "spans_over_lines": (sessions.spans_over_lines, {}),
    "frozen_and_live": (sessions.frozen_and_live, {}),
    "long_source_lines": (sessions.long_source_lines, {}),
    "cleared_before_the_step": (sessions.cleared_before_the_step, {}),
    "cleared_before_the_step_verbose": (sessions.cleared_before_the_step, {"verbose": True}),
    "dead_unit_and_left_out_head": (sessions.dead_unit_and_left_out_head, {}),
    "dead_unit_and_left_out_head_verbose": (
        sessions.dead_unit_and_left_out_head,
        {"verbose": True, "width": 100},
    ),
    "healthy_verbose": (sessions.healthy, {"verbose": True}),
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_report_reads_as_stored(name: str) -> None:
    build, options = SNAPSHOTS[name]
    assert_matches_snapshot(FOLDER / f"{name}.txt", render(build(), **options))


def test_every_stored_text_is_of_a_test() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SNAPSHOTS)


def test_a_healthy_program_gets_silence() -> None:
    assert render(sessions.healthy()) == ""


@every_session
def test_colour_changes_nothing_but_colour(build: Builder) -> None:
    plain, coloured = render(build(), verbose=True), render(build(), verbose=True, color=True)
    assert "\x1b" not in plain
    assert COLOUR.sub("", coloured) == plain


@pytest.mark.parametrize("severity", ["error", "warning", "info"])
def test_colour_follows_the_severity(severity: str) -> None:
    session = sessions.detach_call()
    session.findings[0].severity = severity  # type: ignore[assignment]
    start = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "info": "\x1b[1;36m"}[severity]
    coloured = render(session, color=True, verbose=True)
    assert coloured.startswith(f"{start}{severity}[detach-call]")
    assert f"{start}^^^^^^^^^^\x1b[0m" in coloured


@every_session
def test_ascii_report_is_ascii(build: Builder) -> None:
    assert render(build(), unicode=False, verbose=True).isascii()


@every_session
@pytest.mark.parametrize("width", [50, 64, 80, 100])
def test_lines_fit_the_width(build: Builder, width: int) -> None:
    """All but file names, commands to copy and diff lines, which must stay whole."""
    whole = re.compile(r" *(-->|:::|more:|silence:|\d+ [-+])")
    lines = [line for line in render(build(), width=width).splitlines() if not whole.match(line)]
    assert [line for line in lines if cells(line) > width] == []
    assert [line for line in lines if line != line.rstrip()] == []


def test_hostile_text_is_shown_escaped_and_never_sent() -> None:
    session = sessions.hostile_text()
    session.findings[0].code = EVIL
    text = render(session, verbose=True)
    assert all(character == "\n" or character.isprintable() for character in text)
    assert "\\x1b[31mred" in text
    assert "\\u202e" in text
    assert "[bold]x[/bold]" in text


def test_half_a_surrogate_pair_can_be_written() -> None:
    session = sessions.detach_call()
    session.findings[0].title = "broken \ud83d title"
    assert "broken \\ud83d title" in render(session).encode("utf-8").decode()


def test_one_finding_is_drawn_as_in_the_whole_report() -> None:
    session = sessions.two_findings_and_a_note()
    text = render_finding(session, session.findings[1], report_link="out.html")
    assert text.startswith("warning[graph-kept]: ")
    assert "· out.html#2\n" in text
    assert text in render(session, report_link="out.html") + "\n"


def test_a_finding_with_no_place_still_says_why() -> None:
    session = sessions.detach_call()
    finding = session.findings[0]
    finding.location, finding.related, finding.path, finding.fix = Location("", 0), [], [], None
    lines = render(session).splitlines()
    assert lines[1] == ""
    assert lines[2].startswith("why: ")
    assert lines[-2:] == [
        "more: whygrad explain detach-call",
        "      silence: `whygrad run --ignore detach-call`",
    ]


def test_checked_alone_stands_at_the_margin() -> None:
    session = sessions.detach_call()
    session.findings[0].why = ""
    assert "\nchecked: it is the only cut. Restoring this one edge" in render(session)


def test_a_finding_of_a_later_step_says_which() -> None:
    session = sessions.detach_call()
    session.findings[0].first_step, session.findings[0].symptom = 57, "raises"
    assert "\n     seen: once, in step 57.\n" in render(session)


def test_a_silent_finding_is_not_said_to_have_come_once() -> None:
    session = sessions.detach_call()
    session.findings[0].first_step, session.findings[0].symptom = 57, "silent"
    assert "seen:" not in render(session)
