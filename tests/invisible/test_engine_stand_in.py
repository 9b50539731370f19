"""Watching goes on inside of backward(), ends with it, and cannot be told from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from invisible_helpers import faults, observe
from passes_with_code import PROGRAMS, a_hook_that_raises
from torch import nn
from torch.overrides import TorchFunctionMode

import whygrad
from whygrad.record import torch_api

depth = torch._C._len_torch_function_stack
every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


def raw_engine() -> Any:
    return vars(torch.autograd.Variable)["_execution_engine"]


@every_program
def test_the_same_bit_for_bit_and_frame_for_frame(program: Callable[[], Any]) -> None:
    observe(program, watched=False)  # what torch does only once is done
    bare, watched = observe(program, watched=False), observe(program, watched=True)
    assert bare.exception == ""
    assert bare.values not in (None, [])
    assert watched == bare
    assert faults(watched) == []


@every_program
def test_watching_goes_on_at_the_same_depth(program: Callable[[], Any]) -> None:
    original = raw_engine()
    with whygrad.watch(quiet=True) as watch:
        mode = watch._watch.watcher.current_mode()
        for _ in range(2):
            before = depth()
            program()
            assert depth() == before == 1
            assert (mode.quiet, mode.paused) == (False, False)
        assert raw_engine() is not original
        assert torch.autograd.Variable._execution_engine is original
        seen = len(watch.findings)
        with pytest.raises(RuntimeError, match="does not require grad"):
            (nn.Parameter(torch.ones(2)) * 2).detach().sum().backward()
    assert [finding.code for finding in watch.findings[seen:]] == ["detach-call"]
    assert raw_engine() is original
    assert depth() == 0


def _backward_with(hook: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.register_hook(hook)
    y.sum().backward()
    assert x.grad is not None
    return x.grad


def test_our_mode_is_on_inside_of_hooks_and_the_only_one() -> None:
    stacks: list[list[Any]] = []

    def hook(gradient: torch.Tensor) -> None:
        stacks.append(torch.overrides._get_current_function_mode_stack())

    _backward_with(hook)
    with whygrad.watch(quiet=True) as watch:
        mode = watch._watch.watcher.current_mode()
        _backward_with(hook)
    assert stacks == [[], [mode]]


def test_what_a_hook_computes_is_not_recorded_but_what_it_writes_is() -> None:
    x = torch.ones(2)
    with whygrad.watch(quiet=True) as watch:
        y = x * 2
        recorder = watch._watch.watcher.recorder
        counts: list[int] = []

        def hook(gradient: torch.Tensor) -> None:
            counts.append(len(recorder.events))
            gradient.exp().sum()
            y.mul_(2)
            counts.append(len(recorder.events))

        _backward_with(hook)
        assert counts[0] == counts[1]
        assert [written.op for written in recorder.writes.log] == ["mul_"]


class Own(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("watched_first", [True, False])
def test_a_mode_of_the_programs_own_sees_what_it_sees_without_us(watched_first: bool) -> None:
    def run(watched: bool) -> tuple[list[str], list[float]]:
        own, watch = Own(), whygrad.watch(quiet=True)
        order = [own, watch] if not watched_first else [watch, own]
        for context in order if watched else [own]:
            context.__enter__()
        try:
            gradient = _backward_with(lambda gradient: gradient.clone().mul_(2))
        finally:
            for context in reversed(order if watched else [own]):
                context.__exit__(None, None, None)
        return own.seen, gradient.tolist()

    before = depth()
    assert run(watched=True) == run(watched=False)
    assert depth() == before


def test_a_mode_that_a_hook_switches_on_and_off_sees_what_it_sees_without_us() -> None:
    def run() -> tuple[list[str], list[float]]:
        own = Own()

        def hook(gradient: torch.Tensor) -> torch.Tensor:
            with own:
                return gradient.clone().mul_(2)

        return own.seen, _backward_with(hook).tolist()

    bare = run()
    with whygrad.watch(quiet=True):
        assert run() == bare
        assert depth() == 1
    assert bare[0] == ["clone", "mul_"]


def test_tracebacks_show_the_way_through_backward_into_the_hook() -> None:
    with whygrad.watch(quiet=True):
        (message, *places), *others, _ = a_hook_that_raises()
    assert message.startswith("RuntimeError: shape '[7]' is invalid")
    assert [place.split()[-1] for place in places[-2:]] == ["hook", "inner"]
    assert [place.split()[-1] for place in places].count("backward") == 2
    assert [trace[-2:] for trace in others] == [places[-2:]] * 2


def test_a_watch_that_begins_inside_of_a_hook_watches_after_it() -> None:
    watch = whygrad.watch(quiet=True)
    _backward_with(lambda gradient: watch.__enter__() and None)
    try:
        with pytest.raises(RuntimeError, match="does not require grad"):
            (nn.Parameter(torch.ones(2)) * 2).detach().sum().backward()
    finally:
        watch.__exit__(None, None, None)
    assert depth() == 0
    assert [note for note in watch.session.notes if "internal" in note] == []


def test_a_fault_of_the_stand_in_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> None:
        raise RuntimeError("injected")

    with whygrad.watch(quiet=True) as watch:
        monkeypatch.setattr("whygrad.record.mode.WatchingMode.enter_backward", broken)
        gradient = _backward_with(lambda gradient: gradient * 2)
        assert depth() == 1
    assert gradient.tolist() == (2 * torch.ones(2).exp()).tolist()
    assert any("injected" in note for note in watch.session.notes)


def test_without_the_engines_attribute_everything_else_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_api, "engine", lambda: None)
    original = raw_engine()
    with whygrad.watch(quiet=True) as watch:
        assert raw_engine() is original
        gradient = _backward_with(lambda gradient: gradient * 2)
        assert depth() == 1
        with pytest.raises(RuntimeError, match="does not require grad"):
            (nn.Parameter(torch.ones(2)) * 2).detach().sum().backward()
    assert gradient.tolist() == (2 * torch.ones(2).exp()).tolist()
    assert [finding.code for finding in watch.findings] == ["detach-call"]
