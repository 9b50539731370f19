"""The record of writes, passes and steps keeps nothing alive, and has a size."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from lives import Witness
from lives_of_writes import PROGRAMS
from torch import nn

import whygrad
from whygrad.record import timeline, writes


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_all_dies_when_it_dies_without_us(program: Callable[[Witness], None]) -> None:
    program(Witness())  # what torch does only once is done
    bare, watched = Witness(), Witness()
    program(bare)
    bare.write("returned")
    with whygrad.watch(quiet=True) as watch:
        program(watched)
        watched.write("returned")
        gc.collect()
        watched.write("collected")
    assert watched.book.pop() == ("collected", [])
    assert watched.book == bare.book
    moments = [set(alive) for _, alive in bare.book]
    assert any(earlier - later for earlier, later in itertools.pairwise(moments))
    assert {finding.code for finding in watch.findings} == PROGRAMS[program]
    assert not [note for note in watch.session.notes if "internal" in note]


LIMIT = 20


def _logs(watch: Any) -> tuple[writes.Writes, timeline.Timeline]:
    watcher = watch._watch.watcher
    return watcher.recorder.writes, watcher.asker.timeline


@pytest.fixture
def small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "_MAX_WRITES", LIMIT)
    monkeypatch.setattr(timeline, "_MAX_PASSES", LIMIT)
    monkeypatch.setattr(timeline, "_MAX_STEPS", LIMIT)


@pytest.mark.usefixtures("small_logs")
@pytest.mark.parametrize(
    ("write", "silent"),
    [
        (lambda x: x.add_(1), False),
        (lambda x: x.__setitem__(0, 1.0), False),
        (lambda x: torch.relu_(x), False),
        (lambda x: torch.add(torch.ones(2), 1, out=x), False),
        (lambda x: x.view(-1).mul_(2), False),
        (lambda x: x.data.add_(1), True),
        (lambda x: setattr(x, "data", torch.ones(2)), True),
    ],
)
def test_the_latest_writes_are_kept_and_no_more(
    write: Callable[[torch.Tensor], Any], silent: bool
) -> None:
    with whygrad.watch(quiet=True) as watch:
        x = torch.ones(2)
        for _ in range(LIMIT + 15):
            write(x)
        log, _ = _logs(watch)
        assert len(log.log) == log.log.maxlen == LIMIT
        times = [written.time for written in log.log]
        assert times == sorted(times) and times[0] >= 15
        assert {written.silent for written in log.log} == {silent}
        last_silent = watch._watch.watcher.recorder.last_silent
        assert (last_silent >= times[-1] - 1) is silent


@pytest.mark.usefixtures("small_logs")
def test_the_latest_passes_and_steps_are_kept_and_no_more() -> None:
    with whygrad.watch(quiet=True) as watch:
        weight = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for number in range(LIMIT + 15):
            loss = weight.square().sum()
            torch.autograd.grad(loss, weight, retain_graph=True)
            loss.backward(retain_graph=number % 2 == 0)
            optimizer.step()
        _, log = _logs(watch)
        assert len(log.passes) == len(log.steps) == LIMIT
        assert [passed.call for passed in log.passes] == ["grad", "backward"] * (LIMIT // 2)
        assert log.passes[-1].number == LIMIT + 15
        assert {passed.retained for passed in log.passes if passed.call == "grad"} == {True}
        assert {passed.retained for passed in log.passes if passed.call == "backward"} == {
            True,
            False,
        }
        assert {(step.name, step.silent) for step in log.steps} == {("SGD", False)}
        assert {step.optimizer for step in log.steps} == {log.steps[0].optimizer}
        assert log.steps[0].optimizer() is optimizer
        times = [step.time for step in log.steps]
        assert times == sorted(set(times))
        (moved,) = {frozenset(nodes) for _, nodes in log.moved()}
        assert len(moved) == 1


@pytest.mark.usefixtures("small_logs")
def test_optimizers_without_end_leave_nothing_but_a_bounded_log() -> None:
    with whygrad.watch(quiet=True) as watch:
        weight = nn.Parameter(torch.ones(2))
        for _ in range(40 * LIMIT):
            weight.grad = torch.ones(2)
            torch.optim.SGD([weight], lr=0.1).step()
        _, log = _logs(watch)
        assert len(log.steps) == LIMIT
        assert {step.optimizer() for step in log.steps} == {None}
        assert list(log.moved()) == []
        sizes = {name: len(value) for name, value in vars(log).items() if hasattr(value, "__len__")}
    assert {name: size for name, size in sizes.items() if size > 10 * LIMIT} == {}


def test_a_log_holds_numbers_words_and_weak_references_only() -> None:
    with whygrad.watch(quiet=True) as watch:
        weight = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            hidden = weight * 2
            hidden.add_(1)
            hidden.data.mul_(1)
            hidden.sum().backward()
            optimizer.step()
        written, log = _logs(watch)
    held = [value for entry in (*written.log, *log.passes, *log.steps) for value in entry]
    kinds = {type(value).__name__ for value in held}
    assert kinds == {"int", "str", "bool", "tuple", "ReferenceType"}
    assert {type(root) for passed in log.passes for root in passed.roots} == {int}
