from __future__ import annotations

import doctest
import linecache
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from source_helpers import Probe, execute, find, spans_of, text_at, watch, write

from whygrad.source import spans
from whygrad.source.spans import Span, line_span, location, source_lines, span_of


@pytest.mark.parametrize(
    ("text", "operation", "expected"),
    [
        ("x = 1 + len(str(t.a.detach(\n    u, 2)))", "call", "t.a.detach(\n    u, 2)"),
        ("a = 2; b = t + u  # sum", "add", "t + u"),
        ("t += 1", "iadd", "t += 1"),
        ("y = t.data", "get data", "t.data"),
        ("t.requires_grad = False", "set requires_grad", "t.requires_grad"),
        ("t[0] = 3", "setitem", "t[0]"),
        ("y = [t[0], 1]", "getitem", "t[0]"),
        ("with t.no_grad():\n    y = 1\n    z = 2", "enter", "t.no_grad()"),
        ("with t.no_grad():\n    y = 1\n    z = 2", "exit", "t.no_grad()"),
        ("for x in t.rows(\n        1):\n    y = 2", "iter", "t.rows(\n        1)"),
        ("if t:\n    y = 1\nelse:\n    y = 2", "bool", "t"),
        ("while t:\n    y = 1", "bool", "t"),
        ("y = 1 if t else 2", "bool", "t"),
        ("y = [x for x in t.rows]", "iter", "t.rows"),
        ("y = [x for a in [1] for x in t.rows]", "iter", "t.rows"),
        ("y = {x: 1 for x in t.rows}", "iter", "t.rows"),
        ("y = list(x for a in [1] for x in t.rows)", "iter", "t.rows"),
        ("y = [x.item() for x in [t]]", "call", "x.item()"),
        ("y = (lambda x: x.detach())(t)", "call", "x.detach()"),
        ("@t.decorate(1)\ndef f():\n    return 1", "call", "t.decorate(1)"),
        ("äö = 'ü', t.é(1), 'ß'", "call", "t.é(1)"),
        ("text = '日本語'; y = t.f('日本')", "call", "t.f('日本')"),
    ],
)
def test_span_is_what_was_evaluated(
    tmp_path: Path, text: str, operation: str, expected: str
) -> None:
    spans = spans_of(tmp_path, text, operation)
    assert text_at(spans[-1]) == expected


def test_decorator_is_also_where_it_is_applied(tmp_path: Path) -> None:
    text = "@t.plain\n@u\ndef f():\n    return 1"
    assert [text_at(s) for s in spans_of(tmp_path, text, "call")] == ["u", "t.plain"]


def test_each_item_of_a_with_has_its_own_span(tmp_path: Path) -> None:
    text = "with t.first(), u.second() as x:\n    y = 1"
    entered = [text_at(s) for s in spans_of(tmp_path, text, "enter")]
    assert entered == ["t.first()", "u.second()"]


def test_a_call_in_a_chain_over_lines_starts_at_its_name(tmp_path: Path) -> None:
    text = """
        y = (t
             .first(1)
             .detach(
                 2)
             .data)
    """
    seen = watch(tmp_path, text)
    calls = [s for operation, s in seen if operation == "call" and s is not None]
    assert [text_at(s).split("(")[0] for s in calls] == ["first", "detach"]
    assert [(s.line, s.end_line) for s in calls] == [(2, 2), (3, 4)]
    assert seen[-1][0] == "get data" and seen[-1][1] is not None and seen[-1][1].line == 5


def test_a_chain_on_one_line_is_whole(tmp_path: Path) -> None:
    calls = spans_of(tmp_path, "y = t.first(1).detach() + 1", "call")
    assert [text_at(s) for s in calls] == ["t.first(1)", "t.first(1).detach()"]


def test_function_and_first_line(tmp_path: Path) -> None:
    text = """
        class Model:
            @staticmethod
            def forward(x):
                def inner():
                    return x.one()
                return (lambda: x.two())() and inner()
        Model.forward(t)
        t.three()
    """
    seen = {s.function: s.first_line for s in spans_of(tmp_path, text, "call")}
    assert seen == {"Model.forward.<lambda>": 6, "<module>": 1}
    text = text.replace("(lambda: x.two())() and inner()", "inner()")
    (tmp_path / "b").mkdir()
    seen = {s.function: s.first_line for s in spans_of(tmp_path / "b", text, "call")}
    assert seen == {"Model.forward.inner": 4, "<module>": 1}


def test_equal_code_in_two_files_keeps_its_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (span,) = spans_of(tmp_path / name, "y = t()", "call")
        assert span.file == str(tmp_path / name / "program.py")


def test_a_class_statement_is_only_its_head(tmp_path: Path) -> None:
    text = """
        import sys
        seen = []
        def note(name, bases, body):
            frame = sys._getframe(1)
            seen.append((frame.f_code, frame.f_lasti))
        class A(metaclass=note):
            x = 1
            y = 2
    """
    span = span_of(*execute(write(tmp_path, text))["seen"][0])
    assert span is not None and text_at(span) == "class A(metaclass=note):"


PACKAGE = Path(spans.__file__).parent

CALLBACK = """
def f(note):
    x = 1
    return note(x)
"""


def _frame_in(file: str) -> tuple[object, int]:
    seen = []

    def note(value: object) -> None:
        frame = sys._getframe(1)
        seen.append((frame.f_code, frame.f_lasti))

    execute(file)["f"](note)
    return seen[0]


def test_without_source_the_code_still_knows_its_place(tmp_path: Path) -> None:
    file = write(tmp_path, CALLBACK)
    code, lasti = _frame_in(file)
    os.unlink(file)
    span = span_of(code, lasti)
    assert span == Span(file, 3, 12, 3, 19, "f", 1)
    assert location(span).text == ""
    assert source_lines(file, 1, 9) == {}


def test_source_of_exec_is_unknown() -> None:
    seen = []
    exec("y = note(\n 1)", {"note": lambda x: seen.append(sys._getframe(1))})
    frame = seen[0]
    span = span_of(frame.f_code, frame.f_lasti)
    assert span is not None and span.file == "<string>"
    assert location(span).text == ""


@pytest.mark.parametrize(
    "changed",
    [
        "# a comment above\n" + CALLBACK,  # everything moved
        CALLBACK.replace("note(x)", "x + note(x)"),  # the same line, other columns
        CALLBACK.replace("    x = 1\n", "    x = 1\n    y = 2\n"),
        "def f(:\n",
        "x = '\0'\n",
    ],
)
def test_a_file_changed_since_import_gives_no_wrong_place(tmp_path: Path, changed: str) -> None:
    file = write(tmp_path, CALLBACK)
    code, lasti = _frame_in(file)
    Path(file).write_text(changed.lstrip("\n"))
    assert span_of(code, lasti) is None


def test_a_file_that_changed_before_the_import_is_read_again(tmp_path: Path) -> None:
    file = write(tmp_path, "x = 1\n")
    assert source_lines(file, 1, 1) == {1: "x = 1"}
    write(tmp_path, CALLBACK)
    span = span_of(*_frame_in(file))
    assert span is not None and text_at(span) == "note(x)"
    assert location(span).text == "return note(x)"


def test_a_notebook_cell_is_found_through_linecache(monkeypatch: pytest.MonkeyPatch) -> None:
    name, text = "/tmp/ipykernel_1/42.py", "import sys\nwait = sys.intern\nz = 'é', wait(note())\n"
    entry = (len(text), None, text.splitlines(keepends=True), name)
    monkeypatch.setitem(linecache.cache, name, entry)
    seen = []
    # Notebooks give a cell's module another name and run its last expression apart.
    cell = compile(text, name, "exec").replace(co_name="<cell line: 3>")
    exec(cell, {"note": lambda: seen.append(sys._getframe(1).f_lasti) or ""})
    span = span_of(cell, seen[0])
    assert span is not None and text_at(span) == "note()"
    assert location(span).text == "z = 'é', wait(note())"


def test_doctest_sources_are_found() -> None:
    found = {}

    def note() -> None:
        frame = sys._getframe(1)
        span = span_of(frame.f_code, frame.f_lasti)
        assert span is not None
        found[text_at(span)] = location(span).text

    test = doctest.DocTestParser().get_doctest(
        ">>> x = [note(),\n...      1]\n", {"note": note}, "cell", None, 0
    )
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
    assert found == {"note()": "x = [note(),"}


def _called_as() -> str:
    frame = sys._getframe(1)
    span = span_of(frame.f_code, frame.f_lasti)
    return text_at(span) if span is not None else ""


def test_code_that_pytest_rewrites_keeps_its_places() -> None:
    assert _called_as() + "!" == "_called_as()!"


def test_nothing_here_imports_torch() -> None:
    names = [f"whygrad.source.{path.stem}" for path in PACKAGE.glob("[!_]*.py")]
    program = f"import sys, {', '.join(names)}; print('torch' in sys.modules)"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (len(names) > 5, result.stdout) == (True, "False\n")


def test_missing_columns_give_the_whole_line(tmp_path: Path) -> None:
    text = """
        import sys
        from whygrad.source.spans import span_of
        def f(note):
            y = note()  # here
        def note():
            frame = sys._getframe(1)
            span = span_of(frame.f_code, frame.f_lasti)
            print(span.line, span.column, span.end_line, span.end_column)
        f(note)
    """
    command = [sys.executable, "-X", "no_debug_ranges", write(tmp_path, text)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["4", "5", "4", "15"]


def test_instructions_without_a_place_have_no_span() -> None:
    code = compile("x = 1", "<nothing>", "exec")
    assert span_of(code, -1) is None
    assert span_of(code, 10_000) is None


def test_odd_encodings(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes("# -*- coding: latin-1 -*-\nä = 'é'; y = t.f('ü')\n".encode("latin-1"))
    seen: list[tuple[str, object, int]] = []
    execute(str(path), t=Probe(seen))
    span = span_of(*seen[-1][1:])
    assert span is not None and text_at(span) == "t.f('ü')"
    path = tmp_path / "broken.py"
    path.write_bytes(b"x = '\xff\xfe'\n")
    assert source_lines(str(path), 1, 5) == {}
    assert location(line_span(str(path), 1)).text == ""


def test_line_span(tmp_path: Path) -> None:
    file = write(tmp_path, "def f(x):\n    return x  # é\n# only a comment\n")
    assert line_span(file, 2) == Span(file, 2, 5, 2, 13, "f", 1)
    assert line_span(file, 1).function == "<module>"
    assert line_span(file, 3).end_column == 17
    assert line_span(file, 99) == Span(file, 99, 1, 99, 1, "<module>", 1)
    assert line_span("no such file.py", 3).line == 3


def test_location_and_lines(tmp_path: Path) -> None:
    file = write(tmp_path, "def f(x):\n    return x.detach()\n")
    where = location(find(file, "x.detach()"))
    assert (where.line, where.column, where.end_line, where.end_column) == (2, 12, 2, 22)
    assert where.text == "return x.detach()"
    assert source_lines(file, 0, 50) == {1: "def f(x):", 2: "    return x.detach()"}
    assert source_lines(file, 2, 1) == {}


def test_reading_sources_leaves_warnings_alone(tmp_path: Path) -> None:
    file = write(tmp_path, "import sys\nx = '\\d'\ny = 1 is 1\nz = sys._getframe(0)\n")
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        filters = list(warnings.filters)
        assert line_span(file, 4).function == "<module>"
        assert warnings.filters == filters
    assert noted == []
