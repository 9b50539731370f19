from __future__ import annotations

from pathlib import Path

import pytest
from source_helpers import find, text_at, write

from whygrad.source.dataflow import Region, Slice, call_arguments_slice, slice_back
from whygrad.source.spans import Span


def texts(found: Slice | None) -> set[str]:
    """The source text of a slice's regions."""
    assert found is not None
    return {
        text_at(Span(r.file, r.line, r.column, r.end_line, r.end_column)) for r in found.regions
    }


def sliced(folder: Path, text: str, at: str) -> Slice:
    found = slice_back(find(write(folder, text), at))
    assert found is not None
    return found


def test_numpy_round_trip_across_variables(tmp_path: Path) -> None:
    found = sliced(
        tmp_path,
        """
        def step(model, batch):
            hidden = model(batch["é"])
            other = unrelated(batch)
            values = hidden.detach().cpu().numpy()
            scaled = np.clip(values, 0, 1) * len(other)
            return torch.from_numpy(scaled)
        """,
        "torch.from_numpy(scaled)",
    )
    assert {
        "scaled",
        "np.clip(values, 0, 1) * len(other)",
        "hidden.detach().cpu().numpy()",
        'model(batch["é"])',
    } <= texts(found)
    assert "unrelated(batch)" not in texts(found)
    assert found.parameters == {"model", "batch"}
    assert {"scaled", "values", "hidden", "batch"} <= found.names
    assert "other" not in found.names


def test_regions_contain_spans(tmp_path: Path) -> None:
    text = "a = x.numpy()\nb = f(\n    a)\nc = 1\n"
    file = write(tmp_path, text)
    found = slice_back(find(file, "f(\n    a)"))
    assert found is not None
    exit_span = find(file, "x.numpy()")
    assert [r.contains(exit_span) for r in found.regions].count(True) == 1
    assert not any(r.contains(find(file, "1")) for r in found.regions)
    region = next(r for r in found.regions if r.contains(exit_span))
    assert region == Region(file, "", 1, 5, 1, 14)
    assert not region.contains(Span("other.py", 1, 5, 1, 14))


def test_the_call_itself_belongs_to_the_slice_on_request(tmp_path: Path) -> None:
    file = write(tmp_path, "y = torch.tensor([a.item()])\n")
    call = find(file, "torch.tensor([a.item()])")
    inside, whole = slice_back(call), slice_back(call, arguments_of_call=False)
    assert inside is not None and whole is not None
    assert not any(r.contains(call) for r in inside.regions)
    assert any(r.contains(call) for r in whole.regions)
    assert any(r.contains(find(file, "a.item()")) for r in inside.regions)


def test_a_loop_collects_values(tmp_path: Path) -> None:
    found = sliced(
        tmp_path,
        """
        losses, total, table = [], 0.0, {}
        for x, y in zip(inputs(), targets()):
            loss = criterion(x)
            losses.append(loss.item())
            total += loss.item() * 2
            table["é"] = y.tolist()
        mean = torch.tensor([sum(losses), total, table["é"]])
        """,
        'torch.tensor([sum(losses), total, table["é"]])',
    )
    assert {"loss.item()", "total += loss.item() * 2", "y.tolist()", "criterion(x)"} <= texts(found)
    assert {"inputs()", "targets()"} <= texts(found)
    assert {"losses", "total", "table", "loss", "x", "y"} <= found.names


def test_zip_and_tuples_are_taken_apart(tmp_path: Path) -> None:
    text = """
        a, (b, c) = f(1), (f(2), f(3))
        for i, (d, e) in enumerate(zip(f(4), f(5))):
            g(b, d, i)
        for k, v in f(6).items():
            h(v)
        *p, q = f(7)
        r(p)
    """
    found = texts(sliced(tmp_path, text, "g(b, d, i)"))
    assert {"f(2)", "f(4)"} <= found
    assert found.isdisjoint({"f(1)", "f(3)", "f(5)"})
    assert "f(6)" in texts(sliced(tmp_path, text, "h(v)"))
    assert "f(7)" in texts(sliced(tmp_path, text, "r(p)"))


def test_attributes_across_methods(tmp_path: Path) -> None:
    text = """
        class Agent(nn.Module):
            scale = table.item()

            def act(this, state):
                probabilities = this.policy(state)
                this.log_prob = probabilities.log().item()
                this.other = state.tolist()

            def learn(self, reward):
                loss = torch.tensor(self.log_prob) * reward
                return f(self.scale)

        class Unrelated:
            def __init__(self):
                self.log_prob = elsewhere.item()
    """
    found = sliced(tmp_path, text, "torch.tensor(self.log_prob)")
    assert {"probabilities.log().item()", "this.policy(state)"} <= texts(found)
    assert texts(found).isdisjoint({"state.tolist()", "elsewhere.item()"})
    assert "self.log_prob" in found.names
    assert found.parameters == frozenset()  # `state` belongs to another method
    region = next(r for r in found.regions if r.line == 6)
    assert region.function == "Agent.act"
    assert "table.item()" in texts(sliced(tmp_path, text, "f(self.scale)"))


def test_an_attribute_surely_set_here_is_not_searched_elsewhere(tmp_path: Path) -> None:
    text = """
        class Net:
            def reset(self):
                self.h = start()
            def step(self, x):
                self.h = cell(x)
                return float(self.h)
            def late(self, x):
                y = int(self.h)
                self.h = later(x)
                return y
    """
    assert texts(sliced(tmp_path, text, "float(self.h)")) >= {"cell(x)"}
    assert "start()" not in texts(sliced(tmp_path, text, "float(self.h)"))
    late = texts(sliced(tmp_path, text, "int(self.h)"))
    assert {"start()", "cell(x)", "later(x)"} <= late


def test_closures_and_module_variables(tmp_path: Path) -> None:
    text = """
        history = []
        best = 1.0
        def outer(x):
            kept = x.item()
            count = 0
            def inner():
                nonlocal count
                global best
                count = count + kept
                best = kept
                history.append(kept)
                return torch.tensor(kept + count)
            return inner
        def report():
            kept = 3
            return torch.stack(history), float(best)
    """
    found = sliced(tmp_path, text, "torch.tensor(kept + count)")
    assert {"x.item()", "count + kept", "0"} <= texts(found)
    assert {"kept", "count"} <= found.names
    assert found.parameters == frozenset()
    found = sliced(tmp_path, text, "torch.stack(history)")
    assert {"[]", "x.item()"} <= texts(found)
    assert "3" not in texts(found)
    assert {"1.0", "x.item()"} <= texts(sliced(tmp_path, text, "float(best)"))


def test_comprehensions(tmp_path: Path) -> None:
    text = """
        def f(rows, other, x):
            pairs = {k: v for k, v in other.items()}
            y = [float(x) for x in rows]
            z = [g(x) for x in x]
            n = torch.tensor([1.0 for _ in pairs])
            return torch.tensor([v for v in pairs.values()])
    """
    assert sliced(tmp_path, text, "float(x)").parameters == {"rows"}
    assert sliced(tmp_path, text, "g(x)").parameters == {"x"}
    assert sliced(tmp_path, text, "torch.tensor([1.0 for _ in pairs])").parameters == set()
    last = sliced(tmp_path, text, "torch.tensor([v for v in pairs.values()])")
    assert last.parameters == {"other"}


def test_order_of_statements(tmp_path: Path) -> None:
    text = """
        def f(x, flag):
            x = old(x)
            x = new(1)
            if flag:
                x = perhaps(2)
            y = float(x)
            x = after(3)
            for i in range(3):
                z = int(x)
                x = around(4)
            with opened(5) as x:
                w = bool(x)
    """
    assert texts(sliced(tmp_path, text, "float(x)")) == {"x", "new(1)", "perhaps(2)"}
    assert sliced(tmp_path, text, "float(x)").parameters == frozenset()
    assert texts(sliced(tmp_path, text, "int(x)")) >= {"after(3)", "around(4)"}
    assert "perhaps(2)" not in texts(sliced(tmp_path, text, "int(x)"))
    assert texts(sliced(tmp_path, text, "bool(x)")) == {"x", "opened(5)"}


def test_a_value_carried_around_a_loop(tmp_path: Path) -> None:
    text = """
        state = start()
        for x in data:
            out = cell(x, state)
            state = out.detach()
            fresh = make(x)
            use(fresh)
            fresh = last(x)
    """
    found = sliced(tmp_path, text, "cell(x, state)")
    assert {"start()", "out.detach()", "data"} <= texts(found)
    assert "last(x)" not in texts(sliced(tmp_path, text, "use(fresh)"))


@pytest.mark.parametrize(
    "expression",
    [
        "torch.zeros(len(x))",
        "torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)",
        "torch.zeros(x.size(0), x.dim(), x.numel())",
        "torch.zeros(1 if isinstance(x, A) else 2, type(x))",
        "torch.zeros_like(x)",
        "x.new_zeros(3)",
        "f(f'{x}')",
        "table[x]",
    ],
)
def test_forms_carry_no_values(tmp_path: Path, expression: str) -> None:
    found = sliced(tmp_path, f"def f(x):\n    y = {expression}\n", expression)
    assert found.parameters == frozenset()
    assert found.names == frozenset()


def test_other_ways_to_define(tmp_path: Path) -> None:
    text = """
        def f(a, b, c, d, e, g):
            if (n := a.item()) > 1:
                pass
            m: float = b.item()
            w.data.copy_(c)
            torch.add(d, 1, out=o)
            match e:
                case [first, *rest]:
                    pass
            box.value = g
            return use(n, m, w, o, rest, box)
    """
    found = sliced(tmp_path, text, "use(n, m, w, o, rest, box)")
    assert found.parameters == {"a", "b", "c", "d", "e", "g"}
    assert {"w.data.copy_(c)", "torch.add(d, 1, out=o)"} <= texts(found)


def test_lambdas_have_parameters_of_their_own(tmp_path: Path) -> None:
    text = "def f(x, k):\n    k = k.item()\n    return [lambda x: float(x * k)]\n"
    found = sliced(tmp_path, text, "float(x * k)")
    assert found.parameters == {"x"}
    assert "k.item()" in texts(found)


def test_an_in_place_statement_is_sliced_too(tmp_path: Path) -> None:
    text = "def f(a, b):\n    total = a.item()\n    total += b.item()\n    return total\n"
    found = sliced(tmp_path, text, "total += b.item()")
    assert found.parameters == {"a", "b"}
    assert {"total += b.item()", "a.item()"} <= texts(found)


def test_arguments_at_the_caller(tmp_path: Path) -> None:
    text = """
        class Model:
            def __init__(self, width, *, depth=1): ...
            def forward(self, x, mask=None, *rest, **options): ...
            @classmethod
            def make(cls, one, two): ...
        class Op:
            @staticmethod
            def forward(ctx, x, y): ...
        def helper(first, second, /, third): ...
        def main(a, b, c, d):
            helper(a, b, third=c)
            model(a, b)
            model(a, b, c, extra=d)
            model(*a, mask=b)
            Model.forward(model, a)
            Model(a, depth=b)
            Model.make(a, b)
            Op.apply(a, b)
            self.net(a).helper(b, c, third=d)
    """
    file = write(tmp_path, text)

    def parameters(call: str, wanted: str, line: int | None) -> set[str]:
        callee = (file, line) if line is not None else None
        found = call_arguments_slice(find(file, call), set(wanted.split()), callee)
        assert found is not None
        return set(found.parameters)

    assert parameters("helper(a, b, third=c)", "first", 9) == {"a"}
    assert parameters("helper(a, b, third=c)", "third", 9) == {"c"}
    assert parameters("helper(a, b, third=c)", "first", None) == {"a", "b", "c"}
    assert parameters("helper(a, b, third=c)", "x", 3) == {"a", "b", "c"}
    assert parameters("model(a, b)", "mask", 3) == {"b"}
    assert parameters("model(a, b, c, extra=d)", "rest", 3) == {"c"}
    assert parameters("model(a, b, c, extra=d)", "options", 3) == {"d"}
    assert parameters("model(*a, mask=b)", "x", 3) == {"a"}
    assert parameters("Model.forward(model, a)", "x", 3) == {"a"}
    assert parameters("Model(a, depth=b)", "width", 2) == {"a"}
    assert parameters("Model(a, depth=b)", "depth", 2) == {"b"}
    assert parameters("Model.make(a, b)", "one", 4) == {"a"}
    assert parameters("Op.apply(a, b)", "y", 7) == {"b"}
    assert parameters("self.net(a).helper(b, c, third=d)", "second", 9) == {"c"}


def test_a_library_in_between_gets_all_arguments(tmp_path: Path) -> None:
    text = """
        from torch.utils.checkpoint import checkpoint
        class Model:
            def forward(self, x, y): ...
        def main(a, b):
            checkpoint(model, a, b)
    """
    file = write(tmp_path, text)
    found = call_arguments_slice(find(file, "checkpoint(model, a, b)"), {"x"}, (file, 3))
    assert found is not None and found.parameters == {"a", "b"}


@pytest.mark.parametrize("content", [None, b"def f(:\n  x = ", b"x = '\xff'\n", b"\0", b""])
def test_odd_sources_have_no_slice(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "odd.py"
    if content is not None:
        path.write_bytes(content)
    span = Span(str(path), 1, 1, 1, 5)
    assert slice_back(span) is None
    assert call_arguments_slice(span, {"x"}, (str(path), 1)) is None
