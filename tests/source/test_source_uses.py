from __future__ import annotations

import ast
from pathlib import Path

import pytest
from source_helpers import find, write

from whygrad.source.spans import Span, line_span
from whygrad.source.uses import (
    augmented_operator,
    callee_text,
    is_iterated,
    is_object_call,
    is_parameter,
    is_value,
    names_set,
    values_in,
    values_used,
    written_name,
)

IMPORTS = "import math\nimport numpy as np\nimport torch\nimport torch.nn.functional as F\n"


def at(folder: Path, line: str, text: str | None = None) -> Span:
    """The span of `text`, by default all, in a line of a program."""
    number = len(list(folder.iterdir()))  # a file that was read once is not read again
    file = write(folder, f"{IMPORTS}{line}\n", f"program{number}.py")
    return find(file, line if text is None else text, 0 if text is None else IMPORTS.count(text))


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("x", ["x"]),
        ("x + y * x", ["x", "y"]),
        ("a.b.c", ["a.b.c"]),
        ("self", []),
        ("self.state", ["self.state"]),
        ("x[i, 1:n]", ["x", "i", "n"]),
        ("f(x)", ["x"]),
        ("model(x, scale=y)", ["x", "y"]),
        ("self.encoder(x)", ["x"]),
        ("self.net.encoder(x)", ["self.net", "x"]),
        ("x.detach()", ["x"]),
        ("x.view(n, -1).sum()", ["x", "n"]),
        ("self.state.detach()", ["self.state"]),
        ("torch.cat([x, y], dim=d)", ["x", "y", "d"]),
        ("F.relu(x)", ["x"]),
        ("F.mse_loss(model(x), y)", ["x", "y"]),
        ("x * math.pi + np.float32(y) + torch.pi", ["x", "y"]),
        ("f(x)(y)", ["x", "y"]),
        ("layers[i](x)", ["layers", "i", "x"]),
        ("f(x).weight", ["x"]),
        ("getattr(self, 'hidden')", ["self.hidden"]),
        ("getattr(model, 'hidden', None)", ["model.hidden"]),
        ("getattr(model, name)", ["model", "name"]),
        ("lambda v: v + x", []),
        ("[v * x for v in rows if v > k]", ["x", "rows", "k"]),
        ("{k: v.grad for k, v in named}", ["named"]),
        ("sum(r.mean() for r in rows)", ["rows"]),
        ("{v for v in a for w in b}", ["a", "b"]),
        ("(x, *ys)", ["x", "ys"]),
        ("{'a': x, **more}", ["x", "more"]),
        ("f(*args, **options)", ["args", "options"]),
        ("x if y else z", ["y", "x", "z"]),
        ("1 + 2", []),
    ],
)
def test_values_used_in_an_expression(expression: str, names: list[str], tmp_path: Path) -> None:
    span = at(tmp_path, f"out = {expression}", expression)
    assert sorted(values_used(span)) == sorted(names)


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("total += loss", ["total", "loss"]),
        ("self.total += loss", ["self.total", "loss"]),
        ("x[i] = y", ["x", "i", "y"]),
        ("x = y", ["y"]),
        ("x: int = y", ["int", "y"]),
        ("return_value = x, y", ["x", "y"]),
        ("del x", []),
    ],
)
def test_values_used_in_a_statement(statement: str, names: list[str], tmp_path: Path) -> None:
    assert sorted(values_used(at(tmp_path, statement))) == sorted(names)


def test_each_value_comes_once_in_the_order_of_its_first_use(tmp_path: Path) -> None:
    assert values_used(at(tmp_path, "out = b + a * b + c", "b + a * b + c")) == ["b", "a", "c"]


def test_no_syntax_has_no_values(tmp_path: Path) -> None:
    file = write(tmp_path, "x = (\n")
    assert values_in(None, file) == []
    assert values_used(line_span(file, 1)) == []
    assert values_in(ast.parse("1", mode="eval").body, file) == []


@pytest.mark.parametrize(
    ("signature", "name", "expected"),
    [
        ("x", "x", True),
        ("x", "x.grad", True),
        ("y, /, x", "y", True),
        ("*, x=1", "x", True),
        ("*x", "x", True),
        ("**x", "x", True),
        ("y", "x", False),
        ("self, x", "self", True),
        ("self, x", "self.x", False),
        ("cls, x", "cls.x", False),
        ("self, x", "self_x", False),
    ],
)
def test_parameters(signature: str, name: str, expected: bool, tmp_path: Path) -> None:
    span = at(tmp_path, f"def f({signature}):\n    use(1)", "use(1)")
    assert is_parameter(span, name) is expected


def test_parameters_belong_to_the_innermost_function(tmp_path: Path) -> None:
    nested = "def f(x):\n    def g(y):\n        use(1)"
    assert is_parameter(at(tmp_path, nested, "use(1)"), "y")
    assert not is_parameter(at(tmp_path, nested, "use(1)"), "x")
    assert is_parameter(at(tmp_path, "f = lambda x: use(1)", "use(1)"), "x")
    assert not is_parameter(at(tmp_path, "use(1)"), "x")


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("y = x.add_(1)", "x.add_(1)", True),
        ("print(x.add_(1))", "x.add_(1)", True),
        ("y = x.relu_().sum()", "x.relu_()", True),
        ("f = lambda: x.add_(1)", "x.add_(1)", True),
        ("x.add_(1)", "x.add_(1)", False),
        ("y = x + 1", "x + 1", False),
        ("y = x + 1", "y = x + 1", False),
    ],
)
def test_whether_the_result_of_a_call_is_used(
    line: str, text: str, expected: bool, tmp_path: Path
) -> None:
    assert is_value(at(tmp_path, line, text)) is expected


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("for row in x.unbind():\n    pass", "x.unbind()", True),
        ("for row in rows:\n    pass", "rows", True),
        ("out = [r for r in x.split(2)]", "x.split(2)", True),
        ("out = {r: 1 for r in x.split(2)}", "x.split(2)", True),
        ("for row in f(x.unbind()):\n    pass", "x.unbind()", False),
        ("for row in rows:\n    row.add_(1)", "row.add_(1)", False),
        ("out = [f(r) for r in rows]", "f(r)", False),
        ("out = x.unbind()", "x.unbind()", False),
        ("out = x.unbind()", "out = x.unbind()", False),
    ],
)
def test_whether_a_for_goes_through_it(
    line: str, text: str, expected: bool, tmp_path: Path
) -> None:
    assert is_iterated(at(tmp_path, line, text)) is expected


@pytest.mark.parametrize(
    ("expression", "callee", "op", "object_called"),
    [
        ("self.encoder(x)", "self.encoder", "relu", True),
        ("model(x)", "model", "linear", True),
        ("relu(x)", "relu", "relu", False),
        ("self.relu(x)", "self.relu", "relu_", False),
        ("torch.relu(x)", "torch.relu", "add", False),
        ("F.relu(x)", "F.relu", "add", False),
        ("np.add(x, y)", "np.add", "mul", False),
        ("x.add_(1)", "x.add_", "add", False),
        ("x.add_(1)", "x.add_", "mul", True),
        ("x.__add__(1)", "x.__add__", "add", False),
        ("layers[0](x)", None, "relu", False),
        ("x.sum().exp()", None, "exp", False),
        ("x + y", None, "add", False),
    ],
)
def test_what_is_called(
    expression: str, callee: str | None, op: str, object_called: bool, tmp_path: Path
) -> None:
    span = at(tmp_path, f"out = {expression}", expression)
    assert callee_text(span) == callee
    assert is_object_call(span, op) is object_called


@pytest.mark.parametrize(
    ("line", "text", "op", "name"),
    [
        ("x.add_(y)", None, "add_", "x"),
        ("x[0].add_(y)", None, "add_", "x"),
        ("x.data.add_(y)", None, "add_", "x"),
        ("x.data[0].mul_(2)", None, "mul_", "x"),
        ("self.state.copy_(x)", None, "copy_", "self.state"),
        ("x.weight.data.copy_(y)", None, "copy_", "x.weight"),
        ("x[0, 1:][2].zero_()", None, "zero_", "x"),
        ("pred[..., 0] = x", None, "__setitem__", "pred"),
        ("self.pred[0][1] = x", None, "__setitem__", "self.pred"),
        ("x.data[0] = 1", None, "__setitem__", "x"),
        ("x += 1", None, "__iadd__", "x"),
        ("self.total[i] -= 1", None, "__isub__", "self.total"),
        ("x.data -= 1", None, "__isub__", "x"),
        ("torch.add(a, b, out=c)", None, "add", "c"),
        ("torch.relu_(x)", None, "relu_", "x"),
        ("F.relu(x, inplace=True)", None, "relu", "x"),
        ("torch.nn.init.zeros_(w.data)", None, "zeros_", "w"),
        ("self.relu(h)", None, "relu", "self"),
        ("self.act(h)", None, "relu", "h"),
        ("y = x.relu_()", "x.relu_()", "relu_", "x"),
        ("x.view(-1).add_(1)", None, "add_", None),
        ("y = x", None, "", None),
        ("a = b[0] = x", None, "__setitem__", None),
        ("f()", None, "add_", None),
    ],
)
def test_what_a_write_changes(
    line: str, text: str | None, op: str, name: str | None, tmp_path: Path
) -> None:
    assert written_name(at(tmp_path, line, text), op) == name


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("x = f(1)", ["x"]),
        ("x = y = f(1)", ["x", "y"]),
        ("x, (self.h, z) = f(1)", ["x", "self.h", "z"]),
        ("self.model.h = f(1)", ["self.model.h"]),
        ("x[0] = f(1)", []),
        ("x += f(1)", []),
        ("f(1)", []),
    ],
)
def test_names_that_an_assignment_sets(line: str, names: list[str], tmp_path: Path) -> None:
    assert names_set(at(tmp_path, line, "f(1)")) == names


OPERATORS = ("+=", "-=", "*=", "/=", "//=", "%=", "**=", "@=", "&=", "|=", "^=")


@pytest.mark.parametrize("operator", OPERATORS)
def test_augmented_operators(operator: str, tmp_path: Path) -> None:
    assert augmented_operator(at(tmp_path, f"x {operator} y.exp()")) == operator
    assert augmented_operator(at(tmp_path, f"x {operator} y.exp()", "y.exp()")) is None


@pytest.mark.parametrize("line", ["x = y", "x.add_(1)", "x <<= 1", "x[0] = 1"])
def test_no_augmented_operator(line: str, tmp_path: Path) -> None:
    assert augmented_operator(at(tmp_path, line)) is None
