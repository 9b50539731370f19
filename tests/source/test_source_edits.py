from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from source_helpers import find, spans_of, write

from whygrad.session import Edit
from whygrad.source import edits
from whygrad.source.spans import Span

Change = Callable[[Span], list[Edit]]


def after(folder: Path, text: str, at: str, change: Change) -> str | None:
    """The whole text after an edit at a piece of it; None if there is no edit."""
    file = write(folder, text)
    return applied(file, change(find(file, at)))


def applied(file: str, found: list[Edit]) -> str | None:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    for edit in found:
        start = edit.line - 1
        assert edit.file == file
        assert lines[start : start + len(edit.before)] == edit.before
        assert edit.before, "an edit without lines cannot be shown"
        lines[start : start + len(edit.before)] = edit.after
    return "\n".join(lines) if found else None


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("x = f(y).detach() + 1  # é", "f(y).detach()", "x = f(y) + 1  # é"),
        ("é = 'ü', (a + b).detach() * 2", "(a + b).detach()", "é = 'ü', (a + b) * 2"),
        ("y = x.data.sum()", "x.data", "y = x.sum()"),
        ("y = -x.detach() ** 2", "x.detach()", "y = -x ** 2"),
        ("y = 1\nx = x.detach()\nz = 2", "x.detach()", "y = 1\nz = 2"),
        ("self.h = self.h.detach()\ny = 1", "self.h.detach()", "y = 1"),
        ("y = 1\nx.detach_()\nz = 2", "x.detach_()", "y = 1\nz = 2"),
        ("f(x).detach()", "f(x).detach()", "f(x)"),
        ("if a:\n    x = x.detach()  # why\n", "x.detach()", "if a:\n    pass"),
        ("if a: x = x.detach()", "x.detach()", "if a: pass"),
        ("a = 1; x = x.data", "x.data", "a = 1; pass"),
        ("y = x .detach( ) [0]", "x .detach( )", "y = x [0]"),
        ("y = torch.detach(x) + 1", "torch.detach(x)", "y = x + 1"),
        ("y = torch.detach(a if b else c) + 1", "torch.detach(a if b else c)",
         "y = (a if b else c) + 1"),
    ],
)  # fmt: skip
def test_remove_method_call(tmp_path: Path, text: str, at: str, expected: str) -> None:
    assert after(tmp_path, text, at, edits.remove_method_call) == expected


def test_remove_method_call_in_a_chain_over_lines(tmp_path: Path) -> None:
    text = "y = (t\n     .first(1)\n     .detach()\n     .last())  # é\n"
    span = spans_of(tmp_path, text, "call")[1]
    result = applied(span.file, edits.remove_method_call(span))
    assert result == "y = (t\n     .first(1)\n     .last())  # é"


def test_remove_method_call_below_a_comment(tmp_path: Path) -> None:
    text = "y = (t  # the input.\n     .first()\n     # a comment.\n     .detach())\n"
    first, second = spans_of(tmp_path, text, "call")
    result = applied(first.file, edits.remove_method_call(first))
    assert result == "y = (t  # the input.\n     # a comment.\n     .detach())"
    result = applied(second.file, edits.remove_method_call(second))
    assert result == "y = (t  # the input.\n     .first()\n     # a comment.\n     )"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("x.data = y", "x.data"),
        ("x.data -= y", "x.data"),
        ("y = a + b", "a + b"),
        ("y = a", "y = a"),
    ],
)
def test_remove_method_call_not_done(tmp_path: Path, text: str, at: str) -> None:
    assert after(tmp_path, text, at, edits.remove_method_call) is None


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("y = float(x)", "float(x)", "y = x"),
        ("y = 2 * float(a + b)", "float(a + b)", "y = 2 * (a + b)"),
        ("y = float(a * b) + 2", "float(a * b)", "y = a * b + 2"),
        ("y = float(x)\nz = 1", "float(x)", "y = x\nz = 1"),
        ("x = Variable(x, requires_grad=True)\nz = 1",
         "Variable(x, requires_grad=True)", "z = 1"),
        ("y = torch.tensor(\n    a +\n    b)", "torch.tensor(\n    a +\n    b)",
         "y = (a +\n    b)"),
        ("y = torch.tensor(data=x).sum()", "torch.tensor(data=x)", "y = x.sum()"),
        ("y = float(a if b else c).x", "float(a if b else c)", "y = (a if b else c).x"),
        ("y = f(float(x := 2), 1)", "float(x := 2)", "y = f(x := 2, 1)"),
        ("y = float('日' + x), 1", "float('日' + x)", "y = '日' + x, 1"),
        ("y = float()", "float()", None),
        ("y = float(*x)", "float(*x)", None),
    ],
)  # fmt: skip
def test_replace_call_with_argument(
    tmp_path: Path, text: str, at: str, expected: str | None
) -> None:
    assert after(tmp_path, text, at, edits.replace_call_with_argument) == expected


def test_rename_callee(tmp_path: Path) -> None:
    def rename(new: str) -> str | None:
        change: Change = lambda span: edits.rename_callee(span, new)  # noqa: E731
        return after(tmp_path, "y = torch.tensor(xs).sum()\n", "torch.tensor(xs)", change)

    assert rename("torch.stack") == "y = torch.stack(xs).sum()"
    assert rename("torch.") is None
    assert rename("x for") is None
    assert rename("a + b") is None


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("torch.randn(3)", "torch.randn(3, requires_grad=True)"),
        ("torch.randn( )", "torch.randn( requires_grad=True)"),
        ("f(3, )", "f(3, requires_grad=True, )"),
        ("f((3), (4))", "f((3), (4), requires_grad=True)"),
        ("f(*a, **b)", "f(*a, **b, requires_grad=True)"),
        ("f(3, requires_grad=False, x=1)", "f(3, requires_grad=True, x=1)"),
        ("f('é', x='日本'), 1", "f('é', x='日本', requires_grad=True), 1"),
        ("f(\n    1,\n    2,  # last\n)", "f(\n    1,\n    2,\n    requires_grad=True,  # last\n)"),
        ("f(\n    1,\n    2  # a, b)\n)", "f(\n    1,\n    2, requires_grad=True  # a, b)\n)"),
        ("f(1,\n  2)", "f(1,\n  2, requires_grad=True)"),
        ("f(x for x in y)", None),
    ],
)  # fmt: skip
def test_add_keyword(tmp_path: Path, call: str, expected: str | None) -> None:
    change: Change = lambda span: edits.add_keyword(span, "requires_grad=True")  # noqa: E731
    at = call.removesuffix(", 1")
    result = after(tmp_path, f"y = {call}\n", at, change)
    assert result == (None if expected is None else f"y = {expected}")


@pytest.mark.parametrize("keyword", ["3", "a=1, b=2", "a=", "a=1) + (2"])
def test_only_one_keyword_can_be_added(tmp_path: Path, keyword: str) -> None:
    change: Change = lambda span: edits.add_keyword(span, keyword)  # noqa: E731
    assert after(tmp_path, "y = f(1)\n", "f(1)", change) is None


WITH = '''
def f(x):
    with torch.no_grad():  # fast
        # é: a comment
        y = x.sum(
            1)

        text = """
        stays
"""
        if y:
            z = 2
    return y
'''

WITHOUT = '''
def f(x):
    # é: a comment
    y = x.sum(
        1)

    text = """
        stays
"""
    if y:
        z = 2
    return y
'''


def test_remove_with_moves_the_body_out(tmp_path: Path) -> None:
    result = after(tmp_path, WITH, "torch.no_grad()", edits.remove_with_item)
    assert result == WITHOUT.strip("\n")


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("with a(), b() as c:\n    x = 1", "a()", "with b() as c:\n    x = 1"),
        ("with a() as c, b():\n    x = 1", "b()", "with a() as c:\n    x = 1"),
        ("with (a(),\n      b(),\n      c()):\n    x = 1", "b()",
         "with (a(),\n      c()):\n    x = 1"),
        ("with a(): x = 1; y = 2", "a()", "x = 1; y = 2"),
        ("with a(\n    1\n):\n    x = 1", "a(\n    1\n)", "x = 1"),
        ("if x:\n\twith a():\n\t\ty = 1\n\tz = 2", "a()", "if x:\n\ty = 1\n\tz = 2"),
        ("with a() as b:\n    x = 1", "a()", None),
        ("x = a()", "a()", None),
    ],
)  # fmt: skip
def test_remove_with_item(tmp_path: Path, text: str, at: str, expected: str | None) -> None:
    assert after(tmp_path, text, at, edits.remove_with_item) == expected


def test_remove_decorator(tmp_path: Path) -> None:
    text = "class A:\n    @other\n    @torch.no_grad()\n    def f(self): pass\n"
    result = after(tmp_path, text, "torch.no_grad()", edits.remove_decorator)
    assert result == "class A:\n    @other\n    def f(self): pass"
    assert after(tmp_path, "x = f()\n", "f()", edits.remove_decorator) is None


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("a = 1\nb = f(\n    2)\nc = 3", "f(\n    2)", "a = 1\nc = 3"),
        ("for a in b:\n    f(a)\nelse:\n    g(a)", "g(a)",
         "for a in b:\n    f(a)\nelse:\n    pass"),
        ("for a in b:\n    f(a)", "b", None),
        ("match a:\n    case 1:\n        f(a)", "a", None),
        ("def f():\n    '''doc'''\n    x = 1", "x = 1", "def f():\n    '''doc'''"),
    ],
)  # fmt: skip
def test_delete_statement(tmp_path: Path, text: str, at: str, expected: str | None) -> None:
    assert after(tmp_path, text, at, edits.delete_statement) == expected


def test_replace_text(tmp_path: Path) -> None:
    def replace(new: str) -> str | None:
        change: Change = lambda span: edits.replace_text(span, new)  # noqa: E731
        return after(tmp_path, "é = f('日', x)\nz = 1\n", "x", change)

    assert replace("x.clone()") == "é = f('日', x.clone())\nz = 1"
    assert replace("(") is None
    assert replace("x") is None


EVERY: list[Change] = [
    edits.remove_method_call,
    edits.replace_call_with_argument,
    lambda span: edits.rename_callee(span, "g"),
    lambda span: edits.add_keyword(span, "a=1"),
    edits.remove_with_item,
    edits.remove_decorator,
    edits.delete_statement,
    lambda span: edits.replace_text(span, "g"),
]


@pytest.mark.parametrize("content", [None, b"def f(:\n  x = ", b"x = '\xff'\n", b"\0", b""])
def test_odd_sources_have_no_edits(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "odd.py"
    if content is not None:
        path.write_bytes(content)
    assert [change(Span(str(path), 1, 1, 1, 5)) for change in EVERY] == [[]] * len(EVERY)


def test_a_span_beyond_the_file_has_no_edits(tmp_path: Path) -> None:
    file = write(tmp_path, textwrap.dedent("x = 1\n"))
    assert [change(Span(file, 7, 1, 9, 5)) for change in EVERY] == [[]] * len(EVERY)
