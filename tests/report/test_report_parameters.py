"""The table of parameters, and the line that counts them."""

from __future__ import annotations

import pytest
from report_odd_sessions import EVIL
from report_parameter_sessions import (
    blocks,
    cleared_before_the_step,
    dead_unit_and_left_out_head,
    every_kind,
    state,
)

from whygrad.report import render, render_parameters
from whygrad.report.parameters import counts
from whygrad.report.text import cells
from whygrad.session import ParameterState


def table(states: list[ParameterState], **options: object) -> list[str]:
    return render_parameters(states, **options).splitlines()  # type: ignore[arg-type]


def test_one_row_for_each() -> None:
    assert table(every_kind()) == [
        "  parameter         shape     max |grad|  optimizer  moved  why",
        "  embed.weight      [64, 64]  frozen      AdamW",
        "  encoder.0.weight  [64, 64]  0.0413      AdamW      yes",
        "  encoder.0.bias    [64]      3.2e-07     AdamW      yes",
        "  gate.scale        []        all zero    AdamW      no     dead-relu",
        "  norm.weight       [64]      NaN         AdamW      yes    nan-gradient",
        "  norm.bias         [64]      inf         AdamW      yes    nan-gradient",
        "  experts.3.weight  [64, 64]  none        AdamW      no     not used yet",
        "  head.weight       [64, 64]  12.5                   no     in no optimizer",
    ]


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    alone = [
        state("weight", norm=0.5, optimizer="", moved=None),
        state("bias", "none", optimizer="", moved=None),
    ]
    assert table(alone) == [
        "  parameter  shape     max |grad|",
        "  weight     [64, 64]  0.5",
        "  bias       [64, 64]  none",
    ]
    assert table([]) == []


def test_forty_rows_are_all_shown() -> None:
    assert len(table(blocks(40))) == 41


def test_in_a_long_table_what_is_wrong_comes_first() -> None:
    lines = table([*blocks(120), *every_kind()])
    assert [line.split()[0] for line in lines[1:-2]] == [
        *("gate.scale", "norm.weight", "norm.bias", "experts.3.weight", "head.weight"),
    ]
    assert lines[-2:] == ["  … and 122 more with gradient", "  … and 1 frozen"]


def test_verbose_keeps_every_row_in_its_place() -> None:
    lines = table([*blocks(120), *every_kind()], verbose=True, width=110)
    assert len(lines) == 129
    assert lines[1].split()[:2] == ["transformer.blocks.0.attention.qkv.weight", "[64,"]
    assert lines[-1].startswith("  head.weight ")


def test_rows_that_are_alike_share_a_count() -> None:
    starving = blocks(200, gradient="none", moved=False, reason="no-grad-block")
    unmoved = [state(f"probe.{n}", norm=1e-30, moved=False) for n in range(21)]
    lines = table([*starving, *unmoved])
    assert len(lines) == 1 + 20 + 1 + 21
    assert lines[21] == "  … and 180 more: no gradient, no-grad-block"
    lines = table([*starving, *unmoved, state("probe.21", norm=1e-30, moved=False)])
    assert lines[-1] == "  … and 2 more: with gradient, not moved"


def test_of_a_healthy_model_a_few_are_examples() -> None:
    lines = table(blocks(100, norm=0.1))
    assert len(lines) == 12
    assert lines[-1] == "  … and 90 more with gradient"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_table_fits_and_keeps_names_and_reasons(width: int) -> None:
    rows = blocks(4, gradient="none", moved=False, reason="optimizer-holds-old-parameters")
    lines = table(rows, width=width)
    assert [line for line in lines if cells(line) > width] == []
    assert all("qkv.weight" in line or "qkv.bias" in line for line in lines[1:])
    assert lines[1].split()[-1].startswith("optimizer-holds" if width > 40 else "o")


def test_names_that_a_narrow_table_would_confuse_get_more_room() -> None:
    layers = [f"{owner}.backbone.stage.conv.weight" for owner in ("student", "teacher")]
    rows = [state(name, "none", moved=False, reason="no-grad-block") for name in layers]
    lines = table(rows)
    assert [line.split()[0] for line in lines] == ["parameter", *layers]
    assert "shape" not in lines[0]
    one = table(rows[:1])
    assert one[1].split()[0].startswith("….")
    assert "shape" in one[0]


def test_colour_follows_the_gradient() -> None:
    lines = table(every_kind(), color=True)
    assert "\x1b[2mfrozen\x1b[0m" in lines[1]
    assert "\x1b[32m0.0413\x1b[0m" in lines[2]
    assert "\x1b[1;33mall zero\x1b[0m" in lines[4]
    assert "\x1b[1;31mNaN\x1b[0m" in lines[5]


def test_hostile_names_are_escaped() -> None:
    text = render_parameters([state(EVIL, reason=EVIL, optimizer=EVIL)] * 50, unicode=False)
    assert text.isascii()
    assert all(character == "\n" or character.isprintable() for character in text)


def test_counts() -> None:
    assert counts(every_kind()) == (
        "3 get a gradient, 1 gets none, 1 gets only zeros, 2 get NaN or inf, 1 is frozen; "
        "1 is in no optimizer"
    )
    assert counts([state("a", norm=1.0, moved=False)]) == "1 gets a gradient; 1 does not move"
    assert counts([state("a", "none", optimizer="")]) == "0 get a gradient, 1 gets none"


def line_of(text: str) -> str:
    """The last paragraph of a report, in one line."""
    return " ".join(text.split("\n\n")[-1].split())


def test_the_report_counts_them_where_something_is_wrong() -> None:
    session = cleared_before_the_step()
    assert line_of(render(session)) == (
        "all parameters: 25 get a gradient; 1 is in no optimizer; 24 do not move"
        " (see -v, or `whygrad.why(model)`)"
    )


def test_the_report_is_silent_about_parameters_that_train() -> None:
    session = dead_unit_and_left_out_head()
    session.findings = session.findings[:1]
    for row in session.parameters:
        row.gradient, row.optimizer, row.moved = "flows", "AdamW", True
    assert "all parameters:" not in render(session)


def test_what_raises_says_enough_by_itself() -> None:
    session = dead_unit_and_left_out_head()
    for finding in session.findings:
        finding.symptom = "raises"
    assert "all parameters:" not in render(session)
    assert "\n  parameter " in render(session, verbose=True)
