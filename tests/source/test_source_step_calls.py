from __future__ import annotations

from pathlib import Path

import pytest
from source_helpers import find, text_at, write

from whygrad.source.spans import Span
from whygrad.source.step_calls import (
    assigned_name,
    call_arguments,
    called_method,
    common_loop,
    gradient_resets,
    is_infinite,
    is_returned,
    method_uses,
    order_in_source,
    same_block,
    short_text,
)

LOOP = """
def train(model, opt, loader):
    opt.step
    for x in loader:
        if x is None:
            opt.zero_grad()
            continue
        loss = model(x)
        loss.backward()
        def closure():
            opt.step()
        self.opt.step
        print(opt.step(), opt.steps())

opt.step()
"""


def test_uses_of_a_method_are_those_of_the_function_around_a_place(tmp_path: Path) -> None:
    place = find(write(tmp_path, LOOP), "loss.backward()")
    uses = method_uses([place, place], "step")
    assert [(u.receiver, u.called, u.span.line) for u in uses] == [
        ("opt", False, 2),
        ("self.opt", False, 11),
        ("opt", True, 12),
    ]
    assert [text_at(use.span) for use in uses] == ["opt.step", "self.opt.step", "opt.step()"]


def test_a_mere_mention_is_no_use(tmp_path: Path) -> None:
    file = write(tmp_path, "for x in y:\n    f = opt.step\n    g(opt.step)\n    x.backward()\n")
    assert method_uses([find(file, "x.backward()")], "step") == []


def test_in_a_module_only_the_outermost_loop_counts(tmp_path: Path) -> None:
    loop = "for e in a:\n    for x in e:\n        x.backward()\n    opt.step\n"
    file = write(tmp_path, f"opt.step()\n{loop}opt.step()\n")
    assert [use.span.line for use in method_uses([find(file, "x.backward()")], "step")] == [5]
    assert method_uses([find(file, "opt.step()")], "step") == []


def test_there_is_no_use_in_a_file_that_is_not_there(tmp_path: Path) -> None:
    place = Span(str(tmp_path / "gone.py"), 3, 1, 3, 10)
    assert method_uses([place], "step") == []
    assert gradient_resets([place]) == []


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("p.grad = None", True),
        ("p.grad.zero_()", True),
        ("p.grad.data.zero_()", True),
        ("p.grad.detach().zero_()", True),
        ("p.grad = g", False),
        ("h.zero_()", False),
        ("p.grad.mul_(0)", False),
    ],
)
def test_gradients_reset_by_hand(tmp_path: Path, statement: str, found: bool) -> None:
    file = write(tmp_path, f"for x in y:\n    x.backward()\n    {statement}\n")
    resets = gradient_resets([find(file, "x.backward()")])
    assert [text_at(span) for span in resets] == ([statement] if found else [])


@pytest.mark.parametrize(
    ("text", "at", "name"),
    [
        ("opt = SGD(p)", "SGD(p)", "opt"),
        ("self.opt = SGD(p)", "SGD(p)", "self.opt"),
        ("opt: Optimizer = SGD(p)", "SGD(p)", "opt"),
        ("a, b = SGD(p), Adam(q)", "Adam(q)", "b"),
        ("a = b = SGD(p)", "SGD(p)", "a"),
        ("opts = [SGD(p), Adam(q)]", "SGD(p)", ""),
        ("opt = wrap(SGD(p))", "SGD(p)", ""),
        ("return_it(SGD(p))", "SGD(p)", ""),
    ],
)
def test_the_name_that_gets_a_value(tmp_path: Path, text: str, at: str, name: str) -> None:
    assert assigned_name(find(write(tmp_path, text), at)) == name


def test_what_is_returned(tmp_path: Path) -> None:
    file = write(tmp_path, "def f(p):\n    return SGD(p)\n\ndef g(p):\n    return wrap(Adam(p))\n")
    assert is_returned(find(file, "SGD(p)"))
    assert not is_returned(find(file, "Adam(p)"))


def test_a_method_call_taken_apart(tmp_path: Path) -> None:
    file = write(tmp_path, "self.scaler.step(opt, closure=again)\nstep(opt)\n")
    whole = find(file, "self.scaler.step(opt, closure=again)")
    assert called_method(whole) == ("self.scaler", "step", ("opt", "again"))
    assert called_method(find(file, "step(opt)")) is None
    assert call_arguments(find(file, "step(opt)")) == ("opt",)
    assert call_arguments(find(file, "self.scaler")) == ()


def test_only_short_text_is_quoted(tmp_path: Path) -> None:
    file = write(tmp_path, f"loss.backward()\nf({'x' * 50})\n")
    assert short_text(find(file, "loss.backward()")) == "loss.backward()"
    assert short_text(find(file, f"f({'x' * 50})")) == ""


ORDER = """
for epoch in epochs:
    scheduler.step()
    for x in loader:
        if x:
            opt.step()
        x.backward()
    for y in loader:
        y.measure()
print(x)
def f():
    for z in loader:
        z.step()
"""


def test_order_and_loops(tmp_path: Path) -> None:
    file = write(tmp_path, ORDER)
    schedule, step = find(file, "scheduler.step()"), find(file, "opt.step()")
    backward, measured = find(file, "x.backward()"), find(file, "y.measure()")
    outside, elsewhere = find(file, "print(x)"), find(file, "z.step()")
    assert order_in_source(schedule, step) == "before"
    assert order_in_source(backward, step) == "after"
    assert order_in_source(elsewhere, step) is None
    loops = [common_loop(schedule, step), common_loop(step, backward), common_loop(step, measured)]
    assert [loop.line for loop in loops if loop is not None] == [1, 3, 1]
    assert common_loop(step, outside) is None
    assert common_loop(step, elsewhere) is None
    assert same_block(find(file, "x.backward()"), find(file, "x:\n")) is True
    assert not same_block(step, backward)


def test_what_a_loop_goes_through_is_not_in_it(tmp_path: Path) -> None:
    file = write(tmp_path, "for x in first():\n    second()\nelse:\n    third()\n")
    second = find(file, "second()")
    assert common_loop(find(file, "first()"), second) is None
    assert common_loop(find(file, "third()"), second) is None
    assert common_loop(second, second) is not None


@pytest.mark.parametrize(
    ("text", "infinite"),
    [
        ('float("inf")', True),
        ("math.inf", True),
        ("np.Inf", True),
        ("1.0", False),
        ("info", False),
        ("config.clip", False),
        ("float(x)", False),
        ("a b", False),
    ],
)
def test_infinities(text: str, infinite: bool) -> None:
    assert is_infinite(text) is infinite
