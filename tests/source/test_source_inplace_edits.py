from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from source_helpers import find, spans_of, text_at, write

from whygrad.session import Edit
from whygrad.source import inplace_edits as edits
from whygrad.source.spans import Span, line_span

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


def in_function(*statements: str) -> str:
    """A function with an argument `x`, which it returns."""
    lines = [line for statement in statements for line in statement.split("\n")]
    return "\n    ".join(["def f(self, x, k):", *lines, "return x"])


def in_place_fixed(folder: Path, statement: str, at: str) -> str | None:
    """What becomes of one statement of a function."""
    head = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n\n"
    at = at.replace("\n", "\n    ")
    result = after(folder, head + in_function(statement), at, edits.out_of_place)
    if result is None:
        return None
    start, end = head + "def f(self, x, k):\n    ", "\n    return x"
    assert result.startswith(start)
    assert result.endswith(end)
    return result[len(start) : -len(end)].replace("\n    ", "\n")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x += self.pos", "x = x + self.pos"),
        ("x += k  # é", "x = x + k  # é"),
        ("x *= k + 1", "x = x * (k + 1)"),
        ("x *= (k + 1)", "x = x * (k + 1)"),
        ("x -= k * 2", "x = x - k * 2"),
        ("x -= k - 2", "x = x - (k - 2)"),
        ("x /= k if k else 1", "x = x / (k if k else 1)"),
        ("x **= k", "x = x ** k"),
        ("x **= -k", "x = x ** -k"),
        ("x //= 2", "x = x // 2"),
        ("x @= k", "x = x @ k"),
        ("x %= 2", "x = x % 2"),
        ("x |= k | 1", "x = x | (k | 1)"),
        ("x ^= k", "x = x ^ k"),
        ("x &= k > 1", "x = x & (k > 1)"),
        ("x <<= 1", "x = x << 1"),
        ("x >>= 1", "x = x >> 1"),
        ("x+=k", "x= x +k"),
        ("x += f(\n    k,\n)", "x = x + f(\n    k,\n)"),
        ("x *= lambda: k", "x = x * (lambda: k)"),
        ("self.h *= 2", "self.h = self.h * 2"),
        ("self.state.h += k", "self.state.h = self.state.h + k"),
    ],
)
def test_operators_out_of_place(tmp_path: Path, statement: str, expected: str) -> None:
    at = statement.removesuffix("  # é")
    assert in_place_fixed(tmp_path, statement, at) == expected


def test_the_recorded_span_of_an_operator_will_do(tmp_path: Path) -> None:
    (span,) = spans_of(tmp_path, "def f(x):\n    x += u  # add\n    return x\nf(t)\n", "iadd")
    result = applied(span.file, edits.out_of_place(span))
    assert result == "def f(x):\n    x = x + u  # add\n    return x\nf(t)"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x.mul_(k)", "x = x.mul(k)"),
        ("x.relu_()", "x = x.relu()"),
        ("x.masked_fill_(k > 0, float('-inf'))", "x = x.masked_fill(k > 0, float('-inf'))"),
        ("x.clamp_(\n    min=0,\n    max=1,\n)", "x = x.clamp(\n    min=0,\n    max=1,\n)"),
        ("self.h.add_(k, alpha=2)", "self.h = self.h.add(k, alpha=2)"),
        ("x.mul_(k).add_(1)", "x = x.mul(k).add(1)"),
        ("x.detach_()", "x = x.detach()"),
        ("torch.relu_(x)", "x = torch.relu(x)"),
        ("F.leaky_relu_(x, 0.1)", "x = F.leaky_relu(x, 0.1)"),
        ("F.relu(x, inplace=True)", "x = F.relu(x)"),
        ("F.relu(x, True)", "x = F.relu(x)"),
        ("F.relu(input=x, inplace=True)", "x = F.relu(input=x)"),
        ("F.relu(inplace=True, input=x)", "x = F.relu(input=x)"),
        ("nn.functional.dropout(x, 0.1, inplace=True)", "x = nn.functional.dropout(x, 0.1)"),
        ("F.elu(\n    x,  # é\n    inplace=True,\n)", "x = F.elu(\n    x,  # é\n)"),
        ("F.elu(\n    x,\n    inplace=True,\n)", "x = F.elu(\n    x,\n)"),
        ("F.elu(x,  # é\n      inplace=True)", "x = F.elu(x,  # é\n      )"),
        ("torch.add(k, 1, out=x)", "x = torch.add(k, 1)"),
        ("F.relu_(x.mul_(2))", "x = F.relu(x.mul(2))"),
    ],
)
def test_calls_out_of_place(tmp_path: Path, statement: str, expected: str) -> None:
    assert in_place_fixed(tmp_path, statement, statement) == expected


@pytest.mark.parametrize(
    ("statement", "at", "expected"),
    [
        ("x = x.relu_()", "x.relu_()", "x = x.relu()"),
        ("x = self.conv(x).relu_()", "self.conv(x).relu_()", "x = self.conv(x).relu()"),
        ("x = F.relu(self.conv(x), inplace=True)", "F.relu(self.conv(x), inplace=True)",
         "x = F.relu(self.conv(x))"),
        ("x = F.relu(self.conv(x), inplace=self.flag)", "F.relu(self.conv(x), inplace=self.flag)",
         "x = F.relu(self.conv(x))"),
        ("return k.relu_()", "k.relu_()", "return k.relu()"),
        ("if k: return x.relu_()", "x.relu_()", "if k: return x.relu()"),
        ("x = self.conv(k.relu_())", "k.relu_()", "x = self.conv(k.relu())"),
        ("y = k.relu_()", "k.relu_()", "y = k.relu()"),
        ("y = x.relu_()", "x.relu_()", "y = x = x.relu()"),
        ("y = x.mul_(2).add_(1)", "x.mul_(2)", "y = x = x.mul(2).add(1)"),
        ("y = k.mul_(2).sum()", "k.mul_(2)", "y = k.mul(2).sum()"),
        ("x = torch.relu_(k).t()", "torch.relu_(k)", "x = torch.relu(k).t()"),
        ("ks = [k.relu_() for k in self.ks]", "k.relu_()", "ks = [k.relu() for k in self.ks]"),
        ("g = lambda k: k.relu_()", "k.relu_()", "g = lambda k: k.relu()"),
    ],
)  # fmt: skip
def test_values_out_of_place(tmp_path: Path, statement: str, at: str, expected: str) -> None:
    assert in_place_fixed(tmp_path, statement, at) == expected


@pytest.mark.parametrize(
    ("statement", "at"),
    [
        ("x[0] += 1", "x[0] += 1"),
        ("x[0].mul_(2)", "x[0].mul_(2)"),
        ("x.data += 1", "x.data += 1"),
        ("x.data.mul_(2)", "x.data.mul_(2)"),
        ("x.T.mul_(2)", "x.T.mul_(2)"),
        ("x.view(-1).mul_(2)", "x.view(-1).mul_(2)"),
        ("y = x.view(-1).mul_(2)", "x.view(-1).mul_(2)"),
        ("y = x[0].relu_()", "x[0].relu_()"),
        ("x.copy_(k)", "x.copy_(k)"),
        ("x.zero_()", "x.zero_()"),
        ("x.normal_()", "x.normal_()"),
        ("x.eq_(k)", "x.eq_(k)"),
        ("x.my_own_()", "x.my_own_()"),
        ("nn.init.normal_(x)", "nn.init.normal_(x)"),
        ("x = F.relu(x)", "F.relu(x)"),
        ("F.relu(x, inplace=False)", "F.relu(x, inplace=False)"),
        ("F.relu_(*x)", "F.relu_(*x)"),
        ("x = x.relu()", "x.relu()"),
        ("x = k + 1", "k + 1"),
        ("self.fc.weight.mul_(2)", "self.fc.weight.mul_(2)"),
        ("self.fc.bias -= 2", "self.fc.bias -= 2"),
        ("torch.add(k, 1, out=x[0])", "torch.add(k, 1, out=x[0])"),
        ("z = self.g(x.relu_())", "x.relu_()"),
        ("z = x + x.relu_()", "x.relu_()"),
    ],
)
def test_not_out_of_place(tmp_path: Path, statement: str, at: str) -> None:
    assert in_place_fixed(tmp_path, statement, at) is None


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        # Nobody would see the new value.
        ("def f(x):\n    x += 1", "x += 1", None),
        ("def f(x):\n    x.mul_(2)", "x.mul_(2)", None),
        ("def f(x):\n    print(x)\n    x += 1", "x += 1", None),
        ("def f(x):\n    y = x.relu_()\n    x = y\n    return x", "x.relu_()", "    y = x.relu()"),
        # The next turn of the loop does.
        ("def f(x):\n    for k in x:\n        print(x)\n        x.mul_(k)", "x.mul_(k)",
         "        x = x.mul(k)"),
        ("def f(x):\n    for k in x:\n        y = g(x)\n        print(y)\n        y.mul_(k)",
         "y.mul_(k)", None),
        # Only writing in place reaches the elements of a list, a parameter, a whole.
        ("def f(xs):\n    for x in xs:\n        x *= 2\n        g(x)", "x *= 2", None),
        ("w = nn.Parameter(t)\nw.mul_(2)\nprint(w)", "w.mul_(2)", None),
        ("w = nn.Parameter(t)\ny = w.mul_(2)", "w.mul_(2)", None),
        ("def f(x):\n    row = x[0]\n    row += 1\n    g(row)\n    return x", "row += 1", None),
        ("def f(x):\n    a, b = x.chunk(2)\n    a *= b\n    return a + x", "a *= b", None),
        ("def f(x):\n    y = x.view(-1)\n    z = y.relu_()\n    return x + z", "y.relu_()", None),
        ("def f(x):\n    for i in range(3):\n        row = x[i]\n        row += 1\n        g(row)",
         "row += 1", None),
        ("def f(xs):\n    ys = [x.relu_() for x in xs]\n    return xs, ys", "x.relu_()", None),
        ("def f(x):\n    a, b = x.chunk(2)\n    a *= b\n    return a", "a *= b",
         "    a = a * b"),
        ("for batch in loader:\n    x, y = batch\n    x /= 255\n    g(x, y)", "x /= 255",
         "    x = x / 255"),
        ("def f(batch):\n    x = batch['x']\n    x /= 255\n    g(x, batch['y'])", "x /= 255",
         "    x = x / 255"),
        # An assignment would make a variable of the function's own.
        ("x = 1\ndef f():\n    x.mul_(2)\n    print(x)", "x.mul_(2)", None),
        ("x = 1\ndef f():\n    global x\n    x.mul_(2)\n    print(x)", "x.mul_(2)",
         "    x = x.mul(2)"),
        ("x.mul_(2)\nprint(x)", "x.mul_(2)", "x = x.mul(2)"),
        ("def f(x):\n    def g():\n        return x\n    x += 1\n    return g", "x += 1",
         "    x = x + 1"),
        # What was imported by name alone cannot be renamed.
        ("from torch import relu_\ndef f(x):\n    relu_(x)\n    return x", "relu_(x)", None),
        ("from torch.nn.functional import relu\ndef f(x):\n    relu(x, True)\n    return x",
         "relu(x, True)", "    x = relu(x)"),
        ("if a: x += 1; print(x)", "x += 1", "if a: x = x + 1; print(x)"),
    ],
)  # fmt: skip
def test_out_of_place_only_where_it_does_the_same(
    tmp_path: Path, text: str, at: str, expected: str | None
) -> None:
    result = after(tmp_path, text, at, edits.out_of_place)
    if expected is None:
        assert result is None
    else:
        changed = [line for line in (result or "").splitlines() if line not in text.splitlines()]
        assert changed == [expected]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("nn.ReLU(inplace=True)", "nn.ReLU(inplace=False)"),
        ("nn.ReLU(True)", "nn.ReLU(inplace=False)"),
        ("nn.ReLU6( True )", "nn.ReLU6( inplace=False )"),
        ("ReLU(True)", "ReLU(inplace=False)"),
        ("nn.LeakyReLU(0.2, True)", "nn.LeakyReLU(0.2, inplace=False)"),
        ("nn.LeakyReLU(0.2, inplace=True)", "nn.LeakyReLU(0.2, inplace=False)"),
        ("nn.Hardtanh(-1, 1, True)", "nn.Hardtanh(-1, 1, inplace=False)"),
        ("nn.Dropout(0.5, inplace=inplace)", "nn.Dropout(0.5, inplace=False)"),
        ("act(inplace=True)", "act(inplace=False)"),
        ("nn.ReLU()", None),
        ("nn.ReLU(False)", None),
        ("nn.ReLU(inplace=False)", None),
        ("nn.LeakyReLU(True)", None),
        ("nn.Linear(True)", None),
        ("F.relu(x, inplace=True)", None),
    ],
)
def test_set_inplace_false(tmp_path: Path, call: str, expected: str | None) -> None:
    result = after(tmp_path, f"y = {call}\n", call, edits.set_inplace_false)
    assert result == (None if expected is None else f"y = {expected}")


NET = """
import torch.nn as nn
import torch.nn.functional as F

class Other(nn.Module):
    def __init__(self):
        self.act = nn.SELU(inplace=True)

class Net(nn.Module):
    class Inner(nn.Module):
        def __init__(self):
            self.act = nn.ELU(1.0, True)

    def __init__(self, width, inplace=False):
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5, inplace=inplace)
        self.net = nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(0.1, True), nn.ReLU())
        layers = []
        for i in range(3):
            layers.append(nn.SiLU(True))
        self.stack = nn.Sequential(*layers)
        self.quiet = nn.ReLU()

    def forward(self, x):
        h = self.act(x)
        h = self.net(self.quiet(h))
        for layer in self.stack:
            h = layer(h)
        h = (self.drop(h)
             .flatten(1))
        y = h.sum()
        F.relu(y, inplace=True)
        return y

model = nn.Sequential(nn.Linear(2, 2), nn.Mish(inplace=True))
def run(x):
    y = model(x)
    return y.sum()
"""

IN_NET = [
    "nn.ReLU(inplace=True)",
    "nn.Dropout(0.5, inplace=inplace)",
    "nn.LeakyReLU(0.1, True)",
    "nn.SiLU(True)",
]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("h = self.act(x)", ["nn.ReLU(inplace=True)"]),
        ("h = self.net(self.quiet(h))", ["nn.LeakyReLU(0.1, True)"]),
        ("h = layer(h)", ["nn.SiLU(True)"]),
        ("h = (self.drop(h)", ["nn.Dropout(0.5, inplace=inplace)"]),
        (".flatten(1))", IN_NET),
        ("y = h.sum()", IN_NET),
        ("F.relu(y, inplace=True)", IN_NET),
        ("def forward", IN_NET),
        ("self.act = nn.ELU(1.0, True)", ["nn.ELU(1.0, True)"]),
        ("y = model(x)", ["nn.Mish(inplace=True)"]),
        ("return y.sum()", []),
        ("import torch.nn as nn", []),
    ],
)
def test_find_inplace_constructors(tmp_path: Path, at: str, expected: list[str]) -> None:
    file = write(tmp_path, NET)
    found = edits.find_inplace_constructors(file, find(file, at).line)
    assert [text_at(span) for span in found] == expected


def test_found_constructors_can_be_edited(tmp_path: Path) -> None:
    file = write(tmp_path, NET)
    (found,) = edits.find_inplace_constructors(file, find(file, "h = layer(h)").line)
    (edit,) = edits.set_inplace_false(found)
    assert edit.after == ["            layers.append(nn.SiLU(inplace=False))"]
    assert found.function == "Net.__init__"


@pytest.mark.parametrize(
    ("call", "hint", "expected"),
    [
        ("self.netD(fake)", None, "self.netD(fake.detach())"),
        ("self.netD(fake)", "fake", "self.netD(fake.detach())"),
        ("self.netD(self.fake_B)", None, "self.netD(self.fake_B.detach())"),
        ("netD(input=fake)", None, "netD(input=fake.detach())"),
        ("netD(fake, 1, flag=True)", None, "netD(fake.detach(), 1, flag=True)"),
        ("netD(real, fake)", "fake", "netD(real, fake.detach())"),
        ("netD(real, fake)", None, None),
        ("netD(real, fake)", "other", None),
        ("netD(fake, fake)", "fake", None),
        ("netD(torch.cat([real, fake]))", "fake", "netD(torch.cat([real, fake.detach()]))"),
        ("netD(torch.cat([real, fake]))", None, None),
        ("netD(fake[0])", "fake", "netD(fake.detach()[0])"),
        ("netD(fake.detach())", "fake", None),
        ("netD(fake.detach())", None, None),
        ("netD(*fake)", None, None),
        ("netD(1)", None, None),
        ("(a + b)", None, None),
        ("netD('é', (fake))", None, "netD('é', (fake.detach()))"),
    ],
)
def test_detach_name(tmp_path: Path, call: str, hint: str | None, expected: str | None) -> None:
    change: Change = lambda span: edits.detach_name(span, hint)  # noqa: E731
    result = after(
        tmp_path, f"pred = {call}, 1\n", call.strip("()") if "+" in call else call, change
    )
    assert result == (None if expected is None else f"pred = {expected}, 1")


@pytest.mark.parametrize(
    ("text", "at", "name", "expected"),
    [
        ("for x in xs:\n    y, h = model(x, h)  # é\n    g(y)", "model(x, h)", "h",
         "for x in xs:\n    y, h = model(x, h)  # é\n    h = h.detach()\n    g(y)"),
        ("y, h = model(\n    x,\n    h,\n)", "model(\n    x,\n    h,\n)", "h",
         "y, h = model(\n    x,\n    h,\n)\nh = h.detach()"),
        ("class A:\n\tdef f(self, x):\n\t\tself.h = self.rnn(x, self.h)", "self.rnn(x, self.h)",
         "self.h", "class A:\n\tdef f(self, x):\n\t\tself.h = self.rnn(x, self.h)\n"
         "\t\tself.h = self.h.detach()"),
        ("if a: h = f(h)", "f(h)", "h", "if a: h = f(h); h = h.detach()"),
        ("h = f(h); g(h)", "f(h)", "h", "h = f(h); h = h.detach(); g(h)"),
        ("h += f(h)", "h += f(h)", "h", "h += f(h)\nh = h.detach()"),
        ("return_value = 1\ndef f(h):\n    return g(h)", "g(h)", "h", None),
        ("for h in f(x):\n    pass", "f(x)", "h", None),
        ("with f(x) as h:\n    pass", "f(x)", "h", None),
        ("h = f(h)", "f(h)", "h[0]", None),
        ("h = f(h)", "f(h)", "", None),
        ("h = f(h)", "f(h)", "h.", None),
        ("h = f(h)", "f(h)", "class", None),
        ("h = 1\ndef f(x):\n    y = g(x, h)\n    return y", "g(x, h)", "h", None),
        ("h = f(h)", "f(h)", "h.data", None),
    ],
)  # fmt: skip
def test_detach_after(tmp_path: Path, text: str, at: str, name: str, expected: str | None) -> None:
    change: Change = lambda span: edits.detach_after(span, name)  # noqa: E731
    assert after(tmp_path, text, at, change) == expected


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("w -= 1\nx = 2", "w -= 1", "with torch.no_grad():\n    w -= 1\nx = 2"),
        ("def f(w):\n    w.mul_(\n        2)  # é", "w.mul_(\n        2)",
         "def f(w):\n    with torch.no_grad():\n        w.mul_(\n            2)  # é"),
        ("for p in model.parameters():\n    p -= lr * p.grad\nx = 1", "p -= lr * p.grad",
         "with torch.no_grad():\n    for p in model.parameters():\n        p -= lr * p.grad\n"
         "x = 1"),
        ("for p in ps:\n    # é\n\n    p -= 1", "p -= 1",
         "with torch.no_grad():\n    for p in ps:\n        # é\n\n        p -= 1"),
        ("for p in ps: p -= 1", "p -= 1", "with torch.no_grad():\n    for p in ps: p -= 1"),
        ("for g in groups:\n    for p in g['params']:\n        p -= 1", "p -= 1",
         "with torch.no_grad():\n    for g in groups:\n        for p in g['params']:\n"
         "            p -= 1"),
        ("for p in ps:\n    if p.grad is not None:\n        p -= p.grad", "p -= p.grad",
         "with torch.no_grad():\n    for p in ps:\n        if p.grad is not None:\n"
         "            p -= p.grad"),
        ("if a:\n    p -= 1", "p -= 1", "if a:\n    with torch.no_grad():\n        p -= 1"),
        ("for p in ps:\n    p -= 1\n    q = p", "p -= 1",
         "for p in ps:\n    with torch.no_grad():\n        p -= 1\n    q = p"),
        ("for p in ps:\n    p -= 1\nelse:\n    q = p", "p -= 1",
         "for p in ps:\n    with torch.no_grad():\n        p -= 1\nelse:\n    q = p"),
        ("for p in forward(ps):\n    p -= 1", "p -= 1",
         "for p in forward(ps):\n    with torch.no_grad():\n        p -= 1"),
        ("def f(p):\n\tp -= 1", "p -= 1", "def f(p):\n\twith torch.no_grad():\n\t\tp -= 1"),
        ("x = f('''a\nb''', w.mul_(2))", "w.mul_(2)",
         "with torch.no_grad():\n    x = f('''a\nb''', w.mul_(2))"),
        ("a = 1; w -= 1", "w -= 1", None),
        ("w -= 1; a = 1", "w -= 1", None),
        ("if a: w -= 1", "w -= 1", None),
        ("for p in ps:\n    w = 1", "ps", None),
        ("if w.mul_(2):\n    w = 1", "w.mul_(2)", None),
    ],
)  # fmt: skip
def test_under_no_grad(tmp_path: Path, text: str, at: str, expected: str | None) -> None:
    head = "import torch\n"
    result = after(tmp_path, head + text, at, edits.under_no_grad)
    assert result == (None if expected is None else head + expected)


@pytest.mark.parametrize(
    ("text", "works"),
    [
        ("import torch.nn\nw -= 1", True),
        ("def f(w):\n    import torch\n    w -= 1", True),
        ("import torch.nn as nn\nw -= 1", False),
        ("from torch import nn\nw -= 1", False),
        ("import numpy as torch\nw -= 1", False),
        ("import torch\ndef f(w, torch):\n    w -= 1", False),
        ("w -= 1", False),
    ],
)
def test_under_no_grad_needs_torch(tmp_path: Path, text: str, works: bool) -> None:
    result = after(tmp_path, text, "w -= 1", edits.under_no_grad)
    assert (result is not None) == works


EVERY: list[Change] = [
    edits.out_of_place,
    edits.set_inplace_false,
    edits.detach_name,
    lambda span: edits.detach_name(span, "x"),
    lambda span: edits.detach_after(span, "x"),
    edits.under_no_grad,
]


@pytest.mark.parametrize("content", [None, b"def f(:\n  x = ", b"x = '\xff'\n", b"\0", b""])
def test_odd_sources_have_no_edits(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "odd.py"
    if content is not None:
        path.write_bytes(content)
    assert [change(Span(str(path), 1, 1, 1, 5)) for change in EVERY] == [[]] * len(EVERY)
    assert edits.find_inplace_constructors(str(path), 1) == []


def test_a_place_beyond_the_file_has_no_edits(tmp_path: Path) -> None:
    file = write(tmp_path, "x = 1\n")
    assert [change(Span(file, 7, 1, 9, 5)) for change in EVERY] == [[]] * len(EVERY)
    assert [change(line_span(file, 7)) for change in EVERY] == [[]] * len(EVERY)
    assert edits.find_inplace_constructors(file, 7) == []
