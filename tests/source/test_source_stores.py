from __future__ import annotations

from pathlib import Path

import pytest
from source_helpers import find, text_at, write

from whygrad.source.spans import Span, line_span
from whygrad.source.stores import Store, best_store, stores


def frames(file: str, *places: str) -> list[Span]:
    return [line_span(file, find(file, place).line) for place in places]


def in_loop(statement: str, before: str = "") -> str:
    """A training loop with one more statement in it."""
    body = statement.replace("\n", "\n        ")
    return f"""
import torch
import time
import numpy as np
import torch.nn.functional as F

def train(self, model, loader, optimizer, outputs):
    {before or "pass"}
    for i, (x, y) in enumerate(loader):
        output = model(x)
        loss = F.mse_loss(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {body}
    return outputs
"""


def stored(folder: Path, statement: str, before: str = "") -> list[tuple[str, str, str]]:
    file = write(folder, in_loop(statement, before))
    found = stores(frames(file, "optimizer.step()"))
    return [(store.container, store.value, store.kind) for store in found]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("outputs.append(output)", ("outputs", "output", "append")),
        ("outputs.extend([output, 1])", ("outputs", "[output, 1]", "append")),
        ("outputs.add(loss)", ("outputs", "loss", "append")),
        ("outputs.insert(0, loss)", ("outputs", "loss", "append")),
        ("outputs.appendleft(loss)", ("outputs", "loss", "append")),
        ("outputs.put(loss)", ("outputs", "loss", "append")),
        ("outputs.update(loss=loss)", ("outputs", "loss", "append")),
        ("outputs.update({'loss': loss})", ("outputs", "{'loss': loss}", "append")),
        ("outputs.setdefault(i, loss)", ("outputs", "loss", "append")),
        ("outputs.setdefault('a', []).append(loss)", ("outputs", "loss", "append")),
        ("outputs[i] = loss", ("outputs", "loss", "item")),
        ("outputs['a'].append(loss)", ("outputs", "loss", "append")),
        ("outputs['a']['b'] = loss.mean()", ("outputs", "loss.mean()", "item")),
        ("outputs += [loss]", ("outputs", "loss", "append")),
        ("outputs = outputs + [loss]", ("outputs", "loss", "append")),
        ("outputs |= {i: loss}", ("outputs", "{i: loss}", "item")),
        ("outputs = torch.cat([outputs, output])", ("outputs", "output", "append")),
        ("self.history.append((i, loss))", ("self.history", "(i, loss)", "append")),
        ("self.total += loss", ("self.total", "loss", "sum")),
        ("self.total = self.total + loss", ("self.total", "loss", "sum")),
        ("self.total = loss * 2 + self.total", ("self.total", "loss * 2", "sum")),
        ("outputs['a'] += loss", ("outputs", "loss", "sum")),
        ("outputs['a'] = outputs['a'] + loss", ("outputs", "loss", "sum")),
        ("self.ema = 0.9 * self.ema + 0.1 * loss", ("self.ema", "0.1 * loss", "sum")),
        ("self.ema: float = self.ema - loss", ("self.ema", "loss", "sum")),
        ("self.mean = 0.9 * (self.mean + loss)", ("self.mean", "loss", "sum")),
        ("row = {'i': i, 'loss': loss}\noutputs.append(row)", ("outputs", "row", "append")),
        ("self.state.total += loss", ("self.state.total", "loss", "sum")),
        ("row = outputs[0]\nrow.append(loss)", ("row", "loss", "append")),
        ("for meter in self.meters:\n    meter.update(loss)", ("meter", "loss", "append")),
        ("outputs.append(loss.cpu())", ("outputs", "loss.cpu()", "append")),
        ("with torch.no_grad():\n    outputs.append(loss)", ("outputs", "loss", "append")),
        ("a, outputs[i] = 1, loss", ("outputs", "loss", "item")),
        ("if i:\n    outputs.append(evaluate(model))", ("outputs", "evaluate(model)", "append")),
    ],
)
def test_stores(tmp_path: Path, statement: str, expected: tuple[str, str, str]) -> None:
    assert stored(tmp_path, statement) == [expected]


@pytest.mark.parametrize(
    ("before", "statement", "expected"),
    [
        ("total = 0", "total += loss", ("total", "loss", "sum")),
        ("total = 0", "total = total + loss", ("total", "loss", "sum")),
        ("ema = 0", "ema = 0.9 * ema + 0.1 * output.mean()",
         ("ema", "0.1 * output.mean()", "sum")),
        ("losses = []", "losses.append(loss)", ("losses", "loss", "append")),
        ("losses = {}", "losses[i] = loss", ("losses", "loss", "item")),
        ("losses = []", "if i % 9 == 0:\n    losses = []\nlosses.append(loss)",
         ("losses", "loss", "append")),
    ],
)  # fmt: skip
def test_stores_in_what_the_function_made_before_the_loop(
    tmp_path: Path, before: str, statement: str, expected: tuple[str, str, str]
) -> None:
    assert stored(tmp_path, statement, before) == [expected]


@pytest.mark.parametrize(
    "statement",
    [
        "outputs.append(loss.item())",
        "outputs.append(loss.detach())",
        "outputs.append(loss.detach().cpu().mean())",
        "outputs.append(float(loss))",
        "outputs.append(round(loss.item(), 3))",
        "outputs.append(loss.data)",
        "outputs.append(i)",
        "outputs.append(f'{loss}')",
        "outputs.append(x.shape)",
        "outputs.append(len(x))",
        "outputs.append(output.argmax(1) == y)",
        "outputs.append((output > 0).sum().item() / x.size(0))",
        "outputs.append(time.time())",
        "outputs.append(np.mean(output.tolist()))",
        "outputs[i] = output.detach().numpy()",
        "outputs += [loss.item()]",
        "self.total += loss.item() * len(x)",
        "self.count += 1",
        "self.lr = self.lr * 0.9",
        "value = loss.item()\noutputs.append(value)",
        "value = loss.item()\nrow = {'loss': value, 'i': i}\noutputs.append(row)",
        "with torch.no_grad():\n    self.total += loss",
        "with torch.no_grad():\n    value = loss * 2\noutputs.append(value)",
        "losses = []\nlosses.append(loss)",
        "losses = []\nfor k in range(3):\n    losses.append(loss)",
        "batch = {}\nbatch['loss'] = loss",
        "x['loss'] = loss",
        "total = 0\ntotal += loss",
        "loss = loss + output.mean()",
        "self.last = loss",
        "y = outputs.add(loss)",
        "outputs.update()",
        "print(loss)",
    ],
)
def test_no_stores(tmp_path: Path, statement: str) -> None:
    assert stored(tmp_path, statement) == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("self.losses.append(loss)", ["self.losses"]),
        ("log.append(loss)", ["log"]),
        ("out.append(loss)", ["out"]),
        ("out += [loss]", ["out"]),
        ("row = self.table[0]\nrow.append(loss)", ["row"]),
        ("global total\ntotal += loss", ["total"]),
        ("losses = []\nlosses.append(loss)", []),
        ("losses = []\nfor k in x:\n    losses.append(loss)", []),
        ("loss = loss + x", []),
        ("loss += x", []),
    ],
)
def test_without_a_loop_only_what_outlives_the_call_counts(
    tmp_path: Path, statement: str, expected: list[str]
) -> None:
    body = statement.replace("\n", "\n    ")
    text = f"""
log = []
total = 0

def step(self, loss, x, optimizer, out):
    {body}
    optimizer.step()
"""
    file = write(tmp_path, text)
    found = stores(frames(file, "optimizer.step()"))
    assert [store.container for store in found] == expected


NESTED = """
def step(self, loss, optimizer):
    self.a.append(loss)
    optimizer.step()

def other(self, loss):
    self.never.append(loss)

def train(self, loader, optimizer):
    history, best, seen = [], [], []
    for epoch in range(3):
        for x in loader:
            out = self.model(x)
            step(self, out, optimizer)
            history.append(out)
        best.append(out)
        for x in loader:
            seen.append(self.model(x))
    def inner():
        history.append(self.model(1))
    self.done.append(out)
"""


def test_near_stores_come_first(tmp_path: Path) -> None:
    file = write(tmp_path, NESTED)
    inner, outer = "optimizer.step()", "step(self, out, optimizer)"
    found = [store.container for store in stores(frames(file, inner, outer))]
    assert found == ["self.a", "history", "best", "seen", "self.done"]
    found = [store.container for store in stores(frames(file, outer, inner))]
    assert found == ["self.a", "history", "best", "seen", "self.done"]
    found = [store.container for store in stores(frames(file, "self.never.append(loss)"))]
    assert found == ["self.never"]


def test_module_level_loops_count(tmp_path: Path) -> None:
    body = ["loss = f(x)", "optimizer.step()", "history += [loss]"]
    file = write(tmp_path, "\n    ".join(["history = []\nfor x in data:", *body]))
    (store,) = stores(frames(file, "optimizer.step()"))
    assert store == Store(line_span(file, 5), "history", "loss", "append")
    assert text_at(store.span) == "history += [loss]"


METERS = """
import torch

class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0
        self.last = None

    def update(self, val, n=1):
        self.last = val
        self.sum += val * n
        self.count += n

class Window:
    def __init__(self):
        self.values = []

    def push(self, value):
        self.values.append(value)

    def push_number(self, value):
        self.values.append(value.item())

    def push_detached(self, value):
        value = value.detach()
        self.values.append(value)

    def report(self, text):
        print(text)

class Trainer:
    def __init__(self):
        self.seen = []

    def note(self, loss):
        self.seen.append(loss)

    def step(self, x, window):
        loss = self.model(x)
        self.optimizer.step()
        {statement}

def keep(items, thing):
    items.append(thing)
"""


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("meter.update(loss)", "self.sum += val * n"),
        ("meter.update(loss, x.size(0))", "self.sum += val * n"),
        ("meter.update(val=loss, n=len(x))", "self.sum += val * n"),
        ("self.meter.update(loss)", "self.sum += val * n"),
        ("self.meters['loss'].update(loss)", "self.sum += val * n"),
        ("AverageMeter().update(loss)", None),
        ("meter.update(loss.item())", None),
        ("meter.update(loss.detach(), x.size(0))", None),
        ("window.push(loss)", "self.values.append(value)"),
        ("w = Window()\nw.push(loss)", "self.values.append(value)"),
        ("window.push_number(loss)", None),
        ("window.push_detached(loss)", None),
        ("window.report(loss)", None),
        ("self.note(loss)", "self.seen.append(loss)"),
        ("keep(self.items, loss)", "items.append(thing)"),
        ("keep(self.items, loss.item())", None),
        ("self.log = []\n        self.log.update(loss)", "self.log.update(loss)"),
    ],
)
def test_calls_are_followed_into_the_same_file(
    tmp_path: Path, statement: str, expected: str | None
) -> None:
    file = write(tmp_path, METERS.replace("{statement}", statement.replace("\nw", "\n        w")))
    found = stores(frames(file, "self.optimizer.step()"))
    assert [text_at(store.span) for store in found] == ([] if expected is None else [expected])


def test_the_line_inside_the_method_is_the_store(tmp_path: Path) -> None:
    file = write(tmp_path, METERS.replace("{statement}", "meter.update(loss)"))
    (store,) = stores(frames(file, "self.optimizer.step()"))
    assert (store.container, store.value, store.kind) == ("self.sum", "val * n", "sum")
    assert store.span.function == "AverageMeter.update"
    spans = frames(file, "self.optimizer.step()")
    assert best_store(spans, value="loss") == store
    assert best_store(spans, container="meter") == store
    assert best_store(spans, container="self.sum") == store
    assert best_store(spans, container="history") is None


SEVERAL = """
def train(self, module, loader, optimizer):
    outputs, rows, total = [], {}, 0
    for i, batch in enumerate(loader):
        output = module.training_step(batch)
        loss, aux = module.losses(output)
        row = {"loss": aux}
        optimizer.step()
        outputs.append(output)
        rows[i] = row
        total += loss
        self.best.append(self.model.norm)
        self.best.extend(self.model.other)
"""


@pytest.mark.parametrize(
    ("container", "value", "expected"),
    [
        ("outputs", None, "outputs.append(output)"),
        ("self.outputs", None, "outputs.append(output)"),
        ("trainer.total", None, "total += loss"),
        ("rows", "loss", "rows[i] = row"),
        (None, "loss", "total += loss"),
        (None, "output", "outputs.append(output)"),
        (None, "row", "rows[i] = row"),
        (None, "module.training_step(batch)", "outputs.append(output)"),
        (None, "training_step", "outputs.append(output)"),
        (None, "norm", "self.best.append(self.model.norm)"),
        (None, "model.other", "self.best.extend(self.model.other)"),
        ("best", "model.other", "self.best.extend(self.model.other)"),
        ("nowhere", "output", "outputs.append(output)"),
        ("best", None, None),
        ("best", "loss", None),
        ("nowhere", None, None),
        (None, "nothing", None),
        (None, "module", None),
        ("nowhere", "nothing", None),
        (None, None, None),
    ],
)
def test_best_store(
    tmp_path: Path, container: str | None, value: str | None, expected: str | None
) -> None:
    file = write(tmp_path, SEVERAL)
    found = best_store(frames(file, "optimizer.step()"), container, value)
    assert (None if found is None else text_at(found.span)) == expected


def test_best_store_follows_one_assignment(tmp_path: Path) -> None:
    text = """
def train(self, loader, optimizer):
    outputs, rows = [], []
    for x in loader:
        loss = self.loss(x)
        row = {"loss": loss, "step": 1}
        optimizer.step()
        rows.append(row)
        outputs.append(x + 1)
"""
    file = write(tmp_path, text)
    found = best_store(frames(file, "optimizer.step()"), value="loss")
    assert found is not None
    assert (found.container, found.value) == ("rows", "row")


def test_best_store_follows_what_a_method_returned(tmp_path: Path) -> None:
    text = """
class Model:
    def training_step(self, batch):
        loss = self(batch)
        return {"loss": loss, "n": 1}

def train(module, loader, optimizer, outputs, batches):
    for batch in loader:
        output = module.training_step(batch)
        optimizer.step()
        batches.append(batch)
        outputs.append(output)
"""
    file = write(tmp_path, text)
    found = best_store(frames(file, "optimizer.step()"), value="loss")
    assert found is not None
    assert found.container == "outputs"
    assert best_store(frames(file, "optimizer.step()"), value="n") is None
    assert best_store(frames(file, "optimizer.step()")) is None


def test_best_store_without_hints(tmp_path: Path) -> None:
    file = write(tmp_path, in_loop("outputs.append(loss)\nself.total += loss.item()"))
    found = best_store(frames(file, "optimizer.step()"))
    assert found is not None
    assert found.container == "outputs"
    assert best_store([]) is None


def test_numbers_returned_by_functions_of_the_file_are_no_graphs(tmp_path: Path) -> None:
    text = """
import torch

def number(model, x):
    loss = model(x)
    return loss.item()

def graph(model, x):
    if x is None:
        return None
    return model(x)

@torch.no_grad()
def score(model, x):
    return model(x)

def again(model, x):
    return again(model, x)

class Agent:
    def update(self, x):
        return {"loss": self.model(x).item()}

def train(model, loader, optimizer, agent):
    a, b, c, d, e = [], [], [], [], []
    for x in loader:
        optimizer.step()
        a.append(number(model, x))
        b.append(graph(model, x))
        c.append(score(model, x))
        d.append(agent.update(x))
        e.append(again(model, x))
"""
    file = write(tmp_path, text)
    found = stores(frames(file, "optimizer.step()"))
    assert [store.container for store in found] == ["b"]


@pytest.mark.parametrize("content", [None, b"def f(:\n  x = ", b"x = '\xff'\n", b"\0", b""])
def test_odd_sources_have_no_stores(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "odd.py"
    if content is not None:
        path.write_bytes(content)
    assert stores([Span(str(path), 1, 1, 1, 5)]) == []
    assert best_store([Span(str(path), 7, 1, 7, 5)], "a", "b") is None
