from __future__ import annotations

import ast
from pathlib import Path

import pytest
from source_helpers import find, write

from whygrad.source.attribute_reads import goes_through_all, reads_of
from whygrad.source.attributes import filling, hands_up, is_own_init, statement_span, store_of

NET = """\
class Base(Module):
    def __init__(self):
        self.layers = []
        self.late = None
        self.build()

class Net(Base):
    shared = Linear(1, 1)

    def build(self):
        inner = []
        for _ in range(2):
            inner.append(Linear(2, 2))
            self.layers.append(Linear(3, 3))
        self.late = inner
        self.register_buffer("table", zeros(4))
        self.first, self.second = Linear(5, 5), Linear(
            6, 6
        )
"""


@pytest.mark.parametrize(
    ("attribute", "made", "stored"),
    [
        ("late", "Linear(2, 2)", "self.late = inner"),
        ("table", "zeros(4)", 'self.register_buffer("table", zeros(4))'),
        ("shared", "Linear(1, 1)", "shared = Linear(1, 1)"),
    ],
)
def test_the_statement_that_sets_an_attribute(
    tmp_path: Path, attribute: str, made: str, stored: str
) -> None:
    file = write(tmp_path, NET)
    store = store_of([find(file, made)], attribute)
    assert store is not None and ast.unparse(store) == stored.replace('"', "'")


def test_the_statement_may_be_in_a_calling_function(tmp_path: Path) -> None:
    file = write(tmp_path, NET)
    spans = [find(file, "Linear(3, 3)"), find(file, "self.build()")]
    store, append = store_of(spans, "layers"), filling(spans, "layers")
    assert store is not None and store.lineno == 3
    assert append is not None and append.lineno == 14
    assert store_of(spans, "elsewhere") is None


def test_a_long_statement_is_shown_by_its_target(tmp_path: Path) -> None:
    file = write(tmp_path, NET)
    span = find(file, "Linear(5, 5)")
    store = store_of([span], "second")
    assert store is not None
    shown = statement_span(span, store)
    assert (shown.line, shown.end_line) == (17, 17)


MAKERS = """\
def plain():
    return Linear(1, 1)

def named():
    layer = Linear(2, 2)
    layer.to("cpu")
    return layer, 3

def used(x):
    y = Linear(3, 3)(x)
    return y

def kept(self):
    self.net = Linear(4, 4)

class Block(nn.Module):
    def __init__(self):
        self.inner = Linear(5, 5)

class Trainer:
    def __init__(self):
        self.model = Linear(6, 6)
"""


@pytest.mark.parametrize(("size", "expected"), [(1, True), (2, True), (3, False), (4, False)])
def test_functions_that_only_hand_back_what_they_make(
    tmp_path: Path, size: int, expected: bool
) -> None:
    file = write(tmp_path, MAKERS)
    assert hands_up(find(file, f"Linear({size}, {size})")) is expected


def test_the_making_of_a_module_is_not_that_of_its_owner(tmp_path: Path) -> None:
    file = write(tmp_path, MAKERS)
    assert is_own_init(find(file, "Linear(5, 5)"), ())
    assert not is_own_init(find(file, "Linear(6, 6)"), ())
    assert is_own_init(find(file, "Linear(6, 6)"), ["Trainer"])
    assert not is_own_init(find(file, "Linear(4, 4)"), ["Trainer"])


def forward(*lines: str) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"class Net(Module):\n    def forward(self, x, k):\n{body}"


@pytest.mark.parametrize(
    "lines",
    [
        ["for layer in self.layers[:-1]:", "    x = layer(x)"],
        ["for i in range(3):", "    x = self.layers[i](x)"],
        ["for norm, layer in zip(self.norms, self.layers):", "    x = layer(norm(x))"],
        ["for i, layer in enumerate(self.layers):", "    x = layer(x)", "    if i: x = relu(x)"],
        ["return [layer(x) for layer in self.layers]"],
        ["return self.layers[0](x) + self.layers[-2](x)"],
        ["for layer in self.layers.values():", "    x = layer(x)"],
        ["n = len(self.layers)", "for layer in self.layers:", "    x = layer(x) / n"],
    ],
)
def test_lists_that_are_gone_through_without_choosing(tmp_path: Path, lines: list[str]) -> None:
    assert goes_through_all(write(tmp_path, forward(*lines)), "layers")


@pytest.mark.parametrize(
    "lines",
    [
        ["return self.layers[k](x)"],
        ["for i, layer in enumerate(self.layers):", "    if k == i:", "        x = layer(x)"],
        ["for i in range(3):", "    if any(k): x = self.layers[i](x)"],
        ["for layer in self.layers:", "    if chance():", "        continue", "    x = layer(x)"],
        ["return [layer(x) for i, layer in enumerate(self.layers) if i == k]"],
        ["return choice(self.layers)(x)"],
        ["for task in k:", "    x = self.layers[task](x)"],
        ["return x"],
    ],
)
def test_lists_of_which_some_are_chosen(tmp_path: Path, lines: list[str]) -> None:
    assert not goes_through_all(write(tmp_path, forward(*lines)), "layers")


def test_reads_are_told_from_making_and_filling(tmp_path: Path) -> None:
    text = """\
    class Net(Module):
        def __init__(self):
            self.used, self.unused = [], []
            print(self.unused)
        def add(self, layer):
            self.unused.append(layer)
        def forward(self, x, name):
            return self.used[0](x) + getattr(self, name)(x)
    """
    file = write(tmp_path, text)
    used, unused = (
        {ast.unparse(node) for node in reads_of(file, name)} for name in ("used", "unused")
    )
    assert used == {"self.used", "getattr(self, name)"}
    assert unused == {"getattr(self, name)"}
