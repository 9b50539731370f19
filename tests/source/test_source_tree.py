from __future__ import annotations

import ast
from pathlib import Path

import pytest
from source_helpers import find, spans_of, text_at, write

from whygrad.source.spans import Span, line_span
from whygrad.source.tree import (
    assigned_names,
    callee_name,
    decorator_span,
    enclosing_with,
    expression_at,
    function_at,
    receiver_text,
    shorten,
    statement_at,
    text_of,
)

MODEL = """
    import torch
    import torch as t
    import torch.nn.functional as F
    from torch import FloatTensor as FT, nn
    from torch.autograd import Variable
    from .ops import scale

    class Square(torch.autograd.Function):
        pass

    class Model(nn.Module):
        def forward(self, x, y=torch.zeros(1)):
            self.h = torch.tanh(self.encoder(x)).detach()
            a, (self.b, *c) = x.split(2)
            out["é"] = x.item() + 1
            total += float(x)
            for i, row in enumerate(x):
                print(row.data)
            with open("é") as source, lock:
                y: int = FT(source)
            if (n := len(x)) > 2:
                return Variable(n)
            fs = [lambda v: v.cpu() for v in x]
            return (a + y).sum()
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    return write(tmp_path, MODEL)


def test_expression_is_the_one_with_exactly_this_span(model: str) -> None:
    assert isinstance(expression_at(find(model, "x.item()")), ast.Call)
    assert isinstance(expression_at(find(model, "x.item() + 1")), ast.BinOp)
    assert expression_at(find(model, "item() + 1")) is None
    assert expression_at(find(model, "total += float(x)")) is None


def test_expressions_in_a_chain_over_lines(tmp_path: Path) -> None:
    text = "y = (t\n     .first(1)\n     .detach(\n     )\n     .data)"
    first, second = spans_of(tmp_path, text, "call")
    (data,) = spans_of(tmp_path, text, "get data")
    assert receiver_text(second) == "t\n     .first(1)"
    assert (receiver_text(first), callee_name(second)) == ("t", ".detach")
    assert isinstance(expression_at(data), ast.Attribute)


def test_statement_and_function(model: str) -> None:
    assert isinstance(statement_at(find(model, "float(x)")), ast.AugAssign)
    assert isinstance(statement_at(find(model, "row.data")), ast.Expr)
    assert isinstance(statement_at(find(model, "enumerate(x)")), ast.For)
    assert isinstance(statement_at(line_span(model, 14)), ast.Assign)
    function = function_at(find(model, "float(x)"))
    assert isinstance(function, ast.FunctionDef) and function.name == "forward"
    assert isinstance(function_at(find(model, "v.cpu()")), ast.Lambda)
    assert function_at(find(model, "torch.zeros(1)")) is None  # defaults run outside


def test_text_of(model: str) -> None:
    statement = statement_at(find(model, "x.item()"))
    assert statement is not None and text_of(statement, model) == 'out["é"] = x.item() + 1'
    assert text_of(ast.arguments(), model) == ""


@pytest.mark.parametrize(
    ("text", "receiver"),
    [
        ("torch.tanh(self.encoder(x)).detach()", "torch.tanh(self.encoder(x))"),
        ("torch.tanh(self.encoder(x))", "self.encoder(x)"),
        ("self.encoder(x)", "self"),
        ("float(x)", "x"),
        ("row.data", "row"),
        ("(a + y).sum()", "a + y"),
        ('out["é"]', "out"),
        ("total += float(x)", "total"),
        ("FT(source)", "source"),
        ("a + y", None),
    ],
)
def test_receiver(model: str, text: str, receiver: str | None) -> None:
    assert receiver_text(find(model, text)) == receiver


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("self.encoder(x)", ["self.h"]),
        ("x.split(2)", ["a", "self.b", "c"]),
        ("x.item()", ["out"]),
        ("float(x)", ["total"]),
        ("enumerate(x)", ["i", "row"]),
        ("row.data", []),
        ('open("é")', ["source"]),
        ("FT(source)", ["y"]),
        ("len(x)", ["n"]),
        ("v.cpu()", ["fs"]),
        ("(a + y).sum()", []),
    ],
)
def test_assigned_names(model: str, text: str, names: list[str]) -> None:
    assert assigned_names(find(model, text)) == names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("torch.tanh(self.encoder(x))", "torch.tanh"),
        ("torch.tanh(self.encoder(x)).detach()", ".detach"),
        ("self.encoder(x)", ".encoder"),
        ("FT(source)", "torch.FloatTensor"),
        ("Variable(n)", "torch.autograd.Variable"),
        ("float(x)", "float"),
        ("x.item()", ".item"),
        ("(a + y).sum()", ".sum"),
        ("row.data", None),
        ("a + y", None),
    ],
)
def test_callee_name(model: str, text: str, name: str | None) -> None:
    assert callee_name(find(model, text)) == name


def test_callee_name_with_aliases_and_shadows(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        import torch as t, numpy
        import torch.nn.functional as F
        from .ops import scale
        class Square: pass
        a = t.tensor(1), F.relu(1), scale(1), Square.apply(1), nn.Linear(1), other.item(1)
        def f(t, np):
            from torch import stack
            return t.item(2), np.item(2), stack(2)
        @t.no_grad
        def g(): pass
        """,
    )
    expected = {
        "t.tensor(1)": "torch.tensor",
        "F.relu(1)": "torch.nn.functional.relu",
        "scale(1)": "ops.scale",
        "Square.apply(1)": "Square.apply",
        "nn.Linear(1)": "torch.nn.Linear",  # as in a notebook, where another cell imports it
        "other.item(1)": ".item",
        "t.item(2)": ".item",
        "np.item(2)": ".item",
        "stack(2)": "torch.stack",
        "t.no_grad": "torch.no_grad",
    }
    assert {text: callee_name(find(file, text)) for text in expected} == expected


MODES = {"no_grad", "inference_mode", "set_grad_enabled"}


def test_enclosing_with(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        import torch
        from torch import no_grad as ng
        with open("é") as f, torch.no_grad(), lock:
            one = 1
            with torch.enable_grad():
                two = [x for x in y]
            def f():
                three = 3
            g = lambda: 4
        with torch.no_grad() if evaluate else nullcontext():
            five = 5
        with ng():
            six = 6
        @other
        @torch.inference_mode()
        def h():
            seven = 7
            @torch.no_grad
            def inner(): return 8
        torch.no_grad()
        nine = 9
        """,
    )

    def around(text: str) -> str | None:
        span = enclosing_with(find(file, text), MODES)
        return text_at(span) if span is not None else None

    assert around("one = 1") == "torch.no_grad()"
    assert around("x for x in y") == "torch.no_grad()"
    assert around("three = 3") is None
    assert around("4") is None
    assert around("five = 5") == "torch.no_grad() if evaluate else nullcontext()"
    assert around("six = 6") == "ng()"
    assert around("seven = 7") == "torch.inference_mode()"
    assert around("8") == "torch.no_grad"
    assert around("nine = 9") is None
    assert around('open("é")') is None


def test_decorator_span(tmp_path: Path) -> None:
    file = write(tmp_path, "@other\n@torch.no_grad()\ndef f():\n    pass\ndef g(): pass\n")
    span = decorator_span(file, 1, MODES)
    assert span is not None and (text_at(span), span.line) == ("torch.no_grad()", 2)
    assert decorator_span(file, 5, MODES) is None
    assert decorator_span(file, 3, MODES) is None


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("x = x.detach()", 30, "x = x.detach()"),
        ("total = f(\n    a,  # first\n    b)", 40, "total = f( a, b)"),
        ("features = torch.tanh(self.encoder(tokens))", 30, "features = torch.tanh(…)"),
        ("return x / x.norm(dim=-1, keepdim=True).clamp(0)", 40, "return x / x.norm(…).clamp(0)"),
        ("f(')', a[1:2]) + (first_operand + second)", 35, "f(…) + (first_operand + second)"),
        ("abcdefghijklmnop", 8, "abcdefg…"),
    ],
)
def test_shorten(text: str, width: int, expected: str) -> None:
    assert shorten(text, width) == expected
    assert len(shorten(text, width)) <= width


@pytest.mark.parametrize("content", [None, b"def f(:\n  x = ", b"x = '\xff'\n", b"\0", b""])
def test_odd_sources_give_nothing(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "odd.py"
    if content is not None:
        path.write_bytes(content)
    span = Span(str(path), 1, 1, 1, 5, "f", 1)
    assert expression_at(span) is statement_at(span) is function_at(span) is None
    assert receiver_text(span) is callee_name(span) is None
    assert assigned_names(span) == []
    assert enclosing_with(span, MODES) is decorator_span(str(path), 1, MODES) is None


def test_very_deep_sources_do_not_raise(tmp_path: Path) -> None:
    file = write(tmp_path, "x = " + "+".join(["y"] * 3000) + "\n")
    assert assigned_names(line_span(file, 1)) in (["x"], [])
