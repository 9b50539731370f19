"""The path block: merged rows, shortened runs, brackets and what stands beside them."""

from __future__ import annotations

from report_builders import Sources, parameter, session_of

from whygrad.report import render
from whygrad.session import Finding, Location, PathStep

SOURCES = Sources(a="pass")


def op(name: str, state: str = "live", line: int = 1, text: str = "y = f(x)") -> PathStep:
    return SOURCES.op(name, state, [2], "a", line, text)


def path_block(path: list[PathStep], **options: object) -> list[str]:
    names = [step.name for step in path if step.kind == "parameter"]
    at = Location(SOURCES.path("a"), 1)
    finding = Finding("code", "error", "raises", "t", "m", at, parameters=names, path=path)
    lines = render(session_of(SOURCES, finding), **options).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("path: "))
    return [lines[start], *lines[start + 2 : lines.index("", start + 2)]]


def test_operations_of_one_line_and_state_share_a_row() -> None:
    rows = path_block([op("mul"), op("sum"), op("sum"), op("neg", line=2), op("exp", "values", 2)])
    assert [row[3:14].rstrip() for row in rows[1:]] == ["● mul, sum", "● neg", "┊ exp"]


def test_many_operations_of_one_line_are_abbreviated() -> None:
    rows = path_block([op(f"operation_{n}") for n in range(5)])
    assert rows[1].startswith("   ● operation_0, …")


def test_the_row_that_takes_the_parameters_keeps_its_expression() -> None:
    weight = parameter("weight", [2, 2])
    apart = path_block([weight, op("linear", text="layer(x)"), op("tanh", text="y = tanh(…)")])
    assert len(apart) == 4
    together = path_block([weight, op("mul"), op("sum")])
    assert together[2].startswith("   ● mul, sum  [2] ◀")


def test_a_long_path_keeps_its_ends_and_the_cut() -> None:
    steps = [op(f"op{n}", "live" if n < 20 else "values", line=n) for n in range(1, 41)]
    steps[19].state = "cut"
    rows = path_block(steps)
    assert [row.split()[1] for row in rows[1:]] == [
        *("op1", "op2", "op3"),
        "14",
        *("op18", "op19", "op20", "op21", "op22"),
        "15",
        *("op38", "op39", "op40"),
    ]
    assert rows[4] == "   … 14 operations (-v) …"
    assert len(path_block(steps, verbose=True)) == 41


def test_fourteen_rows_are_not_shortened() -> None:
    assert len(path_block([op(f"op{n}", line=n) for n in range(1, 15)])) == 15


def test_a_single_row_is_never_replaced_by_a_count() -> None:
    seven = [parameter(f"p{n}", [1]) for n in range(7)]
    assert any("p6" in row for row in path_block([*seven, op("cat")]))
    eight = [parameter(f"p{n}", [1]) for n in range(8)]
    assert path_block([*eight, op("cat")])[7].startswith("   … and 2 more (-v) ─")


def test_the_remark_counts_those_that_starve() -> None:
    cut = op("detach", "cut")
    one = path_block([parameter("w", [1]), cut])
    assert one[0] == "path: parameter to loss"
    assert "wants a gradient, cannot get one" in one[1]
    three = path_block([parameter(f"w{n}", [1]) for n in range(3)] + [cut])
    assert "all 3 want a gradient," in three[1]
    assert "none can get one" in three[2]


def test_there_is_no_remark_where_the_path_does_not_prove_it() -> None:
    whole = path_block([parameter("w", [1]), op("mul")])
    frozen = path_block([parameter("w", [1], "off"), op("detach", "cut")])
    assert not any("gradient," in row for row in whole + frozen)


def test_a_path_may_start_at_a_variable() -> None:
    assert path_block([PathStep("source", "x", "live", [3]), op("mul")])[0] == "path: `x` to loss"


def test_files_of_the_same_name_are_told_apart() -> None:
    steps = [op("mul"), op("sum")]
    steps[0].file, steps[1].file = "/data/one/net.py", "/data/two/net.py"
    rows = path_block(steps)
    assert "one/net.py:1" in rows[1]
    assert "two/net.py:1" in rows[2]


def test_parameters_alone_are_listed() -> None:
    rows = path_block([parameter("a", [1]), parameter("b", [2])], width=40)
    assert [row.split()[:2] for row in rows[1:]] == [["a", "[1]"], ["b", "[2]"]]
