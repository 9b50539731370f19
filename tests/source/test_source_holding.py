"""Since when a name may have held its value, for the call of `use` in each program."""

from __future__ import annotations

from pathlib import Path

import pytest
from source_helpers import find, text_at, write

from whygrad.source.holding import holding_of, is_generator, kept_at
from whygrad.source.spans import Span, line_span


def used(folder: Path, text: str, name: str) -> Span:
    file = write(folder, text, f"program{len(list(folder.iterdir()))}.py")  # sources are kept
    return find(file, f"use({name})")


def check(folder: Path, text: str, name: str, expected: str) -> None:
    assert holding_of(used(folder, text, name), name) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x", "x = start()\nuse(x)"),
        ("x", "use(x)\nx = start()"),
        ("x", "for i in range(3):\n    x = start()\n    use(x)"),
        ("x", "for i in range(3):\n    x = start()\n    use(x)\n    x = next_of(x)"),
        ("x", "for i in range(3):\n    x = start()\n    x = use(x)"),
        ("x", "def f(n):\n    x = start(n)\n    return use(x)"),
        ("x", "def f():\n    for x in range(3):\n        use(x)"),
        ("self.x", "class A:\n    def f(self):\n        return use(self.x)"),
        ("x", "def f(y):\n    x = y\n    use(x)"),
        ("x", "def f():\n    return [use(x) for x in range(3)]"),
        ("x", "x: int = start()\nuse(x)"),
        ("x", "with start() as x:\n    use(x)"),
        ("x", "for i in range(3):\n    for j in range(3):\n        x = start()\n        use(x)"),
    ],
)
def test_fresh(name: str, text: str, tmp_path: Path) -> None:
    check(tmp_path, text, name, "fresh")


@pytest.mark.parametrize(
    "text",
    [
        "x = start()\nfor i in range(3):\n    use(x)\n    x = start()",
        "x = start()\nfor i in range(3):\n    x = use(x)",
        "x = start()\nwhile True:\n    use(x)\n    x = start()",
        "x = start()\nfor i in range(3):\n    use(x)\n    y, x = start()",
        "x = start()\nfor i in range(3):\n    use(x)\n    x += 1",
        "def f(x):\n    for i in range(3):\n        use(x)\n        x = start()",
        "async def f(y):\n    x = start()\n    async for i in y:\n        use(x)\n        x = i",
        "x = start()\nfor i in range(3):\n    if i:\n        use(x)\n    x = start()",
        "h = start()\nfor i in range(3):\n    x = h\n    use(x)\n    h = start()",
        "h = start()\nfor i in range(3):\n    x = h.scale(2)\n    use(x)\n    h = start()",
        "h = start()\nfor i in range(3):\n    [use(x) for x in h]\n    h = start()",
        "h = start()\nfor i in range(3):\n    for x in h:\n        use(x)\n    h = start()",
    ],
)
def test_set_by_the_loop_for_the_next_iteration(text: str, tmp_path: Path) -> None:
    check(tmp_path, text, "x", "loop")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x", "x = start()\nfor i in range(3):\n    use(x)"),
        ("x", "def f():\n    x = start()\n    for i in range(3):\n        use(x)"),
        ("x", "use(x)"),
        ("x", "def f():\n    return use(x)"),
        ("self.x", "class A:\n    def __init__(self):\n        self.x = 1\n        use(self.x)"),
        (
            "self.x",
            "class A:\n    def __post_init__(self):\n        self.x = 1\n        use(self.x)",
        ),
        ("model.weight", "for i in range(3):\n    use(model.weight)"),
        (
            "self.items",
            "class A:\n    def __init__(self):\n        self.items = []\n"
            "        self.items.append(1)\n    def f(self):\n        use(self.items)",
        ),
    ],
)
def test_set_once_before(name: str, text: str, tmp_path: Path) -> None:
    check(tmp_path, text, name, "before")


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return use(x)",
        "def f(*, x=None):\n    return use(x)",
        "def f(x, /):\n    return use(x)",
        "def f(*x):\n    return use(x)",
        "def f(**x):\n    return use(x)",
        "async def f(x):\n    return use(x)",
        "f = lambda x: use(x)",
        "def f(x):\n    for i in range(3):\n        use(x)",
        "x = 1\ndef f(x):\n    return use(x)",
        "def f(x):\n    use(x)\n    x = 1",
    ],
)
def test_handed_in(text: str, tmp_path: Path) -> None:
    check(tmp_path, text, "x", "handed")


METHOD = "class A:\n    def __init__(self):\n        self.x = None\n    def step(self):\n        "


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("self.x", METHOD + "use(self.x)\n        self.x = start()"),
        ("self.x", METHOD + "use(self.x)\n        y, self.x = start()"),
        ("self.x", METHOD + "use(self.x)\n        self.x += 1"),
        ("self.x", METHOD + "use(self.x)\n        self.x[0] = 1"),
        ("self.x", METHOD + "use(self.x)\n        self.x[0][1] = 1"),
        ("self.x", METHOD + "use(self.x)\n        self.x.append(1)"),
        ("self.x", METHOD + "use(self.x)\n        self.x[0].append(1)"),
        (
            "cls.x",
            "class A:\n    @classmethod\n    def f(cls):\n        use(cls.x)\n        cls.x = 1",
        ),
        ("model.x", "for i in range(3):\n    use(model.x)\n    model.x = start()"),
        ("x", "x = None\ndef f():\n    global x\n    use(x)\n    x = start()"),
        (
            "x",
            "def f():\n    x = 1\n    def g():\n        nonlocal x\n        use(x)\n        x = 2",
        ),
        ("x", "def f():\n    x = start()\n    def g():\n        use(x)"),
        ("x", "x = start()\ndef f():\n    use(x)"),
        ("x", METHOD + "x = self.x\n        use(x)\n        self.x = start()"),
        ("x", METHOD + "[use(x) for x in self.x]\n        self.x.append(1)"),
        ("x", METHOD + "for x in self.x:\n            use(x)\n        self.x = [1]"),
    ],
)
def test_kept_as_state(name: str, text: str, tmp_path: Path) -> None:
    check(tmp_path, text, name, "state")


def test_state_is_followed_through_a_few_variables_only(tmp_path: Path) -> None:
    chain = "h = start()\nfor i in range(3):\n    a = h\n    b = a\n    {}use({})\n    h = start()"
    check(tmp_path, chain.format("", "b"), "b", "loop")
    check(tmp_path, chain.format("c = b\n    d = c\n    ", "d"), "d", "fresh")


def test_the_loop_that_counts_is_the_innermost_one_that_sets_it(tmp_path: Path) -> None:
    inner = "for i in range(3):\n    x = start()\n    for j in range(3):\n        use(x)"
    check(tmp_path, inner, "x", "fresh")
    check(tmp_path, f"x = start()\n{inner.replace('x = start()', 'y = 1')}", "x", "before")
    check(tmp_path, f"{inner}\n        x = start()", "x", "loop")


def test_a_loop_around_the_function_does_not_count(tmp_path: Path) -> None:
    around = "for i in range(3):\n    def f():\n        x = start()\n        return use(x)"
    check(tmp_path, around, "x", "fresh")


FILLING = ["x.append(i)", "x[i] = i", "x[0].add(i)"]


@pytest.mark.parametrize("fill", FILLING)
def test_a_container_that_the_loop_fills(fill: str, tmp_path: Path) -> None:
    check(tmp_path, f"x = start()\nfor i in range(3):\n    {fill}\n    use(x)", "x", "loop")
    check(tmp_path, f"x = start()\nfor i in range(3):\n    use(x)\n    {fill}", "x", "loop")


@pytest.mark.parametrize("fill", FILLING)
def test_a_container_that_each_iteration_makes_anew(fill: str, tmp_path: Path) -> None:
    inner = f"    for i in range(3):\n        {fill}\n"
    check(tmp_path, f"for j in range(3):\n    x = start()\n{inner}    use(x)", "x", "fresh")
    check(tmp_path, f"def f():\n    x = start()\n{inner}    use(x)", "x", "fresh")


@pytest.mark.parametrize("text", ["x = (\nuse(x)\n", ""])
def test_what_cannot_be_read_is_fresh(text: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    assert holding_of(line_span(file, 2), "x") == "fresh"


CELL = """
    class Cell:
        def __init__(self):
            self.state = self.other = start()
            self.cleared, self.filled = None, []

        def reset(self):
            self.state = None
            self.filled = []
            del self.annotated
            self.annotated: int

        def step(self, x):
            use(self.state, self.other, self.cleared, self.filled, self.twice, total, buffer)
            self.state = self.cell(x, self.state)
            self.filled.append(x)
            self.twice = x
            self.twice = x + 1
            self.pair, self.annotated = x, x
            self.memory["last"][0] = x
            total = x

    def outside(x):
        global buffer
        buffer = x
"""


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("self.state", "self.state = self.cell(x, self.state)"),
        ("self.filled", "self.filled.append(x)"),
        ("self.pair", "self.pair, self.annotated = x, x"),
        ("self.annotated", "self.pair, self.annotated = x, x"),
        ("self.memory", 'self.memory["last"][0] = x'),
        ("buffer", "buffer = x"),
        ("total", None),
        ("self.other", None),
        ("self.cleared", None),
        ("self.twice", None),
        ("self.nowhere", None),
        ("state", None),
    ],
)
def test_the_one_statement_that_keeps_a_value(
    name: str, statement: str | None, tmp_path: Path
) -> None:
    span = kept_at(find(write(tmp_path, CELL), "self.state, self.other"), name)
    assert (None if span is None else text_at(span)) == statement


KEPT = """
class A:
    def keep(self, x):
        self.h = x
        self.g = x
    def f(self):
"""


@pytest.mark.parametrize(
    ("lines", "statement"),
    [
        ("        v = self.h\n        use(v)", "self.h = x"),
        ("        w = self.h\n        v = w * 2\n        use(v)", "self.h = x"),
        ("        for v in self.h:\n            use(v)", "self.h = x"),
        ("        [use(v) for v in self.g]", "self.g = x"),
        ("        v = self.h + self.g\n        use(v)", None),
        ("        v = self.h\n        v = self.g\n        use(v)", None),
        ("        v = start()\n        use(v)", None),
    ],
)
def test_a_variable_that_was_set_from_state(
    lines: str, statement: str | None, tmp_path: Path
) -> None:
    span = kept_at(used(tmp_path, KEPT + lines, "v"), "v")
    assert (None if span is None else text_at(span)) == statement


@pytest.mark.parametrize("empty", ["None", "0.0", "[]", "{}", "()", '""'])
def test_a_statement_that_only_clears_keeps_nothing(empty: str, tmp_path: Path) -> None:
    file = write(tmp_path, f"def f(self):\n    self.x = {empty}\n    self.x = start()\n")
    span = kept_at(line_span(file, 2), "self.x")
    assert span is not None and text_at(span) == "self.x = start()"


def test_nothing_is_kept_in_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert kept_at(line_span(write(tmp_path, "x = (\n"), 1), "x") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f():\n    x = use(1)\n    yield x", True),
        ("def f():\n    yield from use(1)", True),
        ("async def f():\n    yield use(1)", True),
        ("def f():\n    return use(1)", False),
        ("def f():\n    use(1)\n    def g():\n        yield 1", False),
        ("def f():\n    yield 1\n    def g():\n        return use(1)", False),
        ("def f():\n    use(1)\n    return lambda: (yield 1)", False),
        ("use(1)", False),
    ],
)
def test_generators(text: str, expected: bool, tmp_path: Path) -> None:
    assert is_generator(used(tmp_path, text, "1")) is expected
