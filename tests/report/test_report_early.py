"""Short lines while the program runs: one finding, several, and what was said too early."""

from __future__ import annotations

import report_sessions as sessions
from report_odd_sessions import EVIL

from whygrad.report import render_early, render_withdrawn
from whygrad.session import Finding, Location


def silent(code: str, line: int, title: str = "a title", **values: object) -> Finding:
    at = Location(sessions.Sources.path("model"), line)
    return Finding(code, "warning", "silent", title, "m", at, **values)  # type: ignore[arg-type]


def test_one_finding_says_what_who_and_where() -> None:
    finding = sessions.forty_silent_parameters().findings[0]
    assert render_early([finding], 3) == (
        "whygrad: step 3: 40 of 42 parameters get no gradient: their forward runs under"
        " `torch.no_grad()` (transformer.blocks.0.attention.qkv.weight, …): no-grad-block at"
        " finetune.py:9; full report at the end\n"
    )


def test_names_in_the_title_are_not_repeated() -> None:
    finding = silent("dead-relu", 7, "`gate.scale` gets only zeros", parameters=["gate.scale"])
    assert render_early([finding], 1) == (
        "whygrad: step 1: `gate.scale` gets only zeros: dead-relu at model.py:7;"
        " full report at the end\n"
    )


def test_without_steps_and_places() -> None:
    finding = silent("dead-relu", 7)
    finding.location = Location("", 0)
    assert render_early([finding], 0) == "whygrad: a title: dead-relu; full report at the end\n"


def test_several_share_the_line() -> None:
    found = [silent("dead-relu", line) for line in (1, 2, 3, 4)]
    assert render_early(found[:2], 3) == (
        "whygrad: step 3: 2 findings: dead-relu at model.py:1, dead-relu at model.py:2;"
        " full report at the end\n"
    )
    assert "model.py:3 and 1 more; full" in render_early(found, 3)


def test_what_is_taken_back_is_listed() -> None:
    found = [silent("dead-relu", 1), silent("dead-init", 2)]
    assert render_withdrawn(found[:1]) == (
        "whygrad: said while the program ran, no longer counts: dead-relu at model.py:1\n"
    )
    assert render_withdrawn(found).endswith(
        "no longer count: dead-relu at model.py:1, dead-init at model.py:2\n"
    )


def test_one_line_whatever_is_in_it() -> None:
    finding = silent("dead-relu", 1, f"{EVIL}\nsecond", parameters=[EVIL, "a\nb"])
    for text in (
        render_early([finding], 3, unicode=False),
        render_early([finding] * 5, 3, unicode=False),
        render_withdrawn([finding], unicode=False),
    ):
        assert text.isascii()
        assert text.count("\n") == 1
        assert text[:-1].isprintable()
