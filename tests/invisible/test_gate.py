"""Gradients are never looked at while another thread's backward pass may be writing them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

import whygrad
from whygrad.record import looks
from whygrad.record.gate import Gate


def in_another_thread(act: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    thread.join(10)
    return found[0]


def may_look(gate: Gate) -> bool:
    with gate.look() as clear:
        return clear


def test_a_thread_may_look_during_its_own_pass() -> None:
    gate = Gate()
    gate.enter()
    assert may_look(gate)


def test_no_thread_may_look_during_the_pass_of_another_nor_ever_after() -> None:
    gate = Gate()
    gate.enter()
    assert not in_another_thread(lambda: may_look(gate))
    gate.leave()
    assert not may_look(gate)


def test_passes_one_after_the_other_in_different_threads_are_fine() -> None:
    gate = Gate()

    def whole_pass() -> None:
        gate.enter()
        gate.leave()

    in_another_thread(whole_pass)
    whole_pass()
    assert in_another_thread(lambda: may_look(gate))


def test_a_pass_does_not_begin_while_somebody_looks() -> None:
    gate, began = Gate(), threading.Event()

    def whole_pass() -> None:
        gate.enter()
        began.set()
        gate.leave()

    thread = threading.Thread(target=whole_pass)
    with gate.look():
        thread.start()
        assert not began.wait(0.05)
    thread.join(10)
    assert began.is_set()


def test_threads_that_train_at_once_are_left_alone(monkeypatch: Any) -> None:
    """A read of `.grad` here, while autograd replaced it there, has crashed the interpreter."""
    inside, done = threading.Event(), threading.Event()
    looked_at: list[Any] = []
    size_of = looks.size_of
    monkeypatch.setattr(looks, "size_of", lambda t: (looked_at.append(t), size_of(t))[1])

    def hold(gradient: torch.Tensor) -> None:
        inside.set()
        done.wait(10)

    def long_pass() -> None:
        weight = torch.ones(2, requires_grad=True)
        weight.register_hook(hold)
        (weight * 2).sum().backward()

    with whygrad.watch(quiet=True) as watch:
        thread = threading.Thread(target=long_pass)
        thread.start()
        assert inside.wait(10)
        weight = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            (weight * 2).sum().backward()
            optimizer.step()
        done.set()
        thread.join(10)
    assert not watch.findings
    assert watch._watch.watcher.recorder.gate.crowded
    assert looked_at == []
