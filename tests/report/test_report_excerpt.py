"""Excerpts: where the carets stand, which lines are shown, and where those lines come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_builders import Sources, session_of
from rich.cells import cell_len

from whygrad.report import render
from whygrad.report.text import clean
from whygrad.session import Finding, Location, Related, Session


def finding_at(location: Location, label: str = "here", **values: object) -> Finding:
    finding = Finding("detach-call", "error", "raises", "title", "message", location, label)
    for name, value in values.items():
        setattr(finding, name, value)
    return finding


def excerpt(session: Session, **options: object) -> list[str]:
    """The rows between the `-->` line and the blank line that ends the excerpt."""
    lines = render(session, **options).splitlines()
    start = next(i for i, line in enumerate(lines) if line.lstrip().startswith("-->"))
    return lines[start + 1 : lines.index("", start)]


@pytest.mark.parametrize(
    ("line", "span"),
    [
        ("value = x.detach()", "x.detach()"),
        ("\tvalue = x.detach()", "x.detach()"),
        ("if a:\tvalue = x.detach()", "x.detach()"),
        ("値 = '重み'; y = 予測.detach()", "予測.detach()"),
        ("s = '😀😀'; x.detach()", "x.detach()"),
        ("e\u0301 = x.detach()", "x.detach()"),
        ("s = '\x1b[0m\u202e'; x.detach()", "x.detach()"),
        ("s = '👩\u200d👩\u200d👧'; x.detach()", "x.detach()"),
    ],
)
@pytest.mark.parametrize("unicode", [True, False])
def test_carets_stand_under_the_span(line: str, span: str, unicode: bool) -> None:
    sources = Sources()
    sources.lines[sources.path("a")] = {1: line}
    rows = excerpt(session_of(sources, finding_at(sources.at("a", 1, span))), unicode=unicode)
    source, carets = rows[1], rows[2]
    shown = clean(span, unicode=unicode)
    before = source[: source.rindex(shown)]
    assert carets.index("^") == cell_len(before)
    assert carets.count("^") == cell_len(shown)


def test_places_near_each_other_share_an_excerpt() -> None:
    sources = Sources(a="\n".join(f"line_{n}()" for n in range(1, 40)))
    related = [
        Related("surfaced", sources.at("a", 16), "near"),
        Related("written", sources.at("a", 39), "far"),
    ]
    rows = excerpt(session_of(sources, finding_at(sources.at("a", 8), related=related)))
    assert rows == [
        "   |",
        " 6 | line_6()",
        " 7 | line_7()",
        " 8 | line_8()",
        "   | ^^^^^^^^ here",
        " 9 | line_9()",
        "...",
        "16 | line_16()",
        "   | --------- near",
        "   |",
        "  ::: a.py:39:1 where it was written",
        "   |",
        "39 | line_39()",
        "   | --------- far",
    ]


def test_equal_spans_share_one_underline() -> None:
    sources = Sources(a="loss.backward()")
    related = [Related("surfaced", sources.at("a", 1), "RuntimeError: no grad_fn")]
    rows = excerpt(session_of(sources, finding_at(sources.at("a", 1), related=related)))
    assert rows[2:] == [
        "  | ^^^^^^^^^^^^^^^ here",
        "  |                 RuntimeError: no grad_fn",
    ]


def test_a_place_without_a_label_shows_its_role() -> None:
    sources = Sources(a="x = make()\ny = x.detach()")
    related = [Related("created", sources.at("a", 1, "make()"))]
    rows = excerpt(session_of(sources, finding_at(sources.at("a", 2), related=related)))
    assert "  |     ------ where it was created" in rows


def test_blank_lines_at_the_edges_are_left_out() -> None:
    sources = Sources(a="import torch\n\ny = x.detach()\n\nz = 1")
    rows = excerpt(session_of(sources, finding_at(sources.at("a", 3))))
    assert [row[0] for row in rows if row[0].isdigit()] == ["1", "2", "3"]
    sources = Sources(a="import torch\n\n\ny = x.detach()\n\nz = 1")
    rows = excerpt(session_of(sources, finding_at(sources.at("a", 4))))
    assert [row[0] for row in rows if row[0].isdigit()] == ["4"]


def test_unknown_columns_underline_the_whole_line() -> None:
    sources = Sources(a="if True:\n    y = x.detach()")
    rows = excerpt(session_of(sources, finding_at(Location(sources.path("a"), 2))))
    assert rows[-1] == "  |     ^^^^^^^^^^^^^^ here"


def test_columns_beyond_the_line_do_no_harm() -> None:
    sources = Sources(a="y = x")
    at = Location(sources.path("a"), 1, 50, 1, 60)
    assert excerpt(session_of(sources, finding_at(at)))[-1] == "  |      ^ here"


def test_a_long_label_is_shortened_unless_verbose() -> None:
    sources = Sources(a="loss.backward()")
    label = " ".join(f"word{n}" for n in range(200))
    session = session_of(sources, finding_at(sources.at("a", 1), label))
    short, whole = excerpt(session), excerpt(session, verbose=True)
    assert len(short) == 8
    assert short[-1].endswith(" …")
    assert whole[-1].endswith("word199")


def test_many_excerpts_are_counted_unless_verbose() -> None:
    related = [Related("cut", Location(f"/data/part_{n}.py", 3, text="x.item()")) for n in range(9)]
    sources = Sources(a="loss.backward()")
    session = session_of(sources, finding_at(sources.at("a", 1), related=related))
    assert "… and 4 more places (-v)" in excerpt(session)[-1]
    assert sum(":::" in row for row in excerpt(session)) == 5
    assert sum(":::" in row for row in excerpt(session, verbose=True)) == 9


def test_lines_the_session_lacks_come_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def f(x):\n    return x.detach()\n", encoding="utf-8")
    at = Location(str(file), 2, 12, 2, 22, "f", "return x.detach()")
    session = session_of(Sources(), finding_at(at))
    assert excerpt(session)[-1] == "  |            ^^^^^^^^^^ here"
    session.sources = {str(file): {2: "    return x.detach()"}}
    assert "1 | def f(x):" in excerpt(session)


def test_a_file_that_changed_since_is_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("# new first line\ndef g(x):\n    return x\n", encoding="utf-8")
    at = Location(str(file), 2, 12, 2, 22, "f", "return x.detach()")
    session = session_of(Sources(), finding_at(at))
    statement_alone = ["  |", "2 | return x.detach()", "  | ^^^^^^^^^^^^^^^^^ here"]
    assert excerpt(session) == statement_alone
    session.sources = {str(file): {2: "    return x.detach()"}}
    assert excerpt(session) == [
        "  |",
        "2 |     return x.detach()",
        "  |            ^^^^^^^^^^ here",
    ]


def test_with_no_source_at_all_the_label_remains() -> None:
    session = session_of(Sources(), finding_at(Location("/nowhere/at/all.py", 12, 3)))
    assert render(session).splitlines()[1:3] == [" --> /nowhere/at/all.py:12:3", "  = here"]


def test_devices_and_folders_are_never_read(tmp_path: Path) -> None:
    for path in ("/dev/zero", str(tmp_path), "with\0nul.py"):
        session = session_of(Sources(), finding_at(Location(path, 1)))
        assert excerpt(session) == ["  = here"]
