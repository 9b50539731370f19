"""When a watch ends, torch and Python are as they were; so they are inside, as far as one looks."""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import whygrad

PLACES: list[tuple[Any, str]] = [
    (torch, "from_numpy"),
    (torch, "compile"),
    (torch.Tensor, "__init__"),
    (torch.Tensor, "__new__"),
    (torch.nn.Parameter, "__new__"),
    (torch.autograd.Variable, "__new__"),
    (torch.inference_mode, "__enter__"),
    (torch.inference_mode, "__exit__"),
    (torch.no_grad, "__enter__"),
    (torch.utils, "swap_tensors"),
    (torch.overrides, "has_torch_function"),
    (torch.fx.traceback, "format_stack"),
    (torch.optim.Optimizer, "__init__"),
    (torch.optim.Optimizer, "step"),
    (torch.autograd.profiler.record_function, "__enter__"),
    (torch.autograd.profiler.record_function, "__exit__"),
    (threading.Thread, "_bootstrap_inner"),
    (threading.Thread, "run"),
]


def _state() -> Any:
    hooks = sys.modules["torch.optim.optimizer"]
    return [
        [vars(owner).get(name, "inherited") for owner, name in PLACES],
        dict(hooks._global_optimizer_pre_hooks),
        dict(hooks._global_optimizer_post_hooks),
        dict(torch.jit._builtins._get_builtin_table()),
        torch.overrides._get_current_function_mode_stack(),
        torch.is_grad_enabled(),
        len(torch.nn.modules.module._global_forward_hooks),
        threading._profile_hook,
    ]


def _use_torch() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.inference_mode():
        model(torch.ones(2))
    model(torch.ones(2)).sum().backward()
    optimizer.step()


def test_everything_is_restored() -> None:
    _use_torch()  # which imports more of torch
    before = _state()
    with whygrad.watch(quiet=True):
        _use_torch()
        assert _state() != before
    assert _state() == before


def test_everything_is_restored_after_an_exception() -> None:
    before = _state()
    with pytest.raises(KeyboardInterrupt), whygrad.watch(quiet=True):
        _use_torch()
        raise KeyboardInterrupt
    assert _state() == before


def test_everything_is_restored_when_a_step_never_ends() -> None:
    class Ending(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            watch.__exit__(None, None, None)

    _use_torch()  # which imports more of torch
    before = _state()
    watch = whygrad.watch(quiet=True).__enter__()
    Ending(nn.Linear(1, 1).parameters()).step()
    assert _state() == before


class Own(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_a_mode_that_the_program_leaves_on_stays_on_alone() -> None:
    own = Own()
    with whygrad.watch(quiet=True):
        own.__enter__()
    try:
        assert torch.overrides._get_current_function_mode_stack() == [own]
        assert torch.ones(1).add(1).item() == 2
    finally:
        own.__exit__(None, None, None)


def test_a_thread_that_outlives_the_watch_is_not_watched_any_more() -> None:
    started, ended, done = threading.Event(), threading.Event(), threading.Event()
    out: list[Any] = []

    def work() -> None:
        torch.ones(1).add(1)
        started.set()
        ended.wait(10)
        out.append(torch.ones(1).add(1))
        done.set()

    thread = threading.Thread(target=work)
    with whygrad.watch(quiet=True) as watch:
        thread.start()
        started.wait(10)
    held = watch._watch.watcher.recorder.events
    before = len(held)
    ended.set()
    thread.join(10)
    assert done.is_set()
    assert out == [torch.tensor([2.0])]
    assert len(held) == before


def test_a_step_that_outlives_the_watch_does_not_switch_it_on_again() -> None:
    started, ended = threading.Event(), threading.Event()
    depth: list[int] = []

    class Waiting(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            started.set()
            ended.wait(10)

    def work() -> None:
        Waiting([nn.Parameter(torch.ones(1))]).step()
        depth.append(torch._C._len_torch_function_stack())

    thread = threading.Thread(target=work)
    with whygrad.watch(quiet=True):
        thread.start()
        started.wait(10)
    ended.set()
    thread.join(10)
    assert depth == [0]


def test_recording_goes_on_after_a_step_that_raised() -> None:
    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            raise ValueError("no step")

    weight = nn.Parameter(torch.ones(2))
    with whygrad.watch(quiet=True) as watch:
        with pytest.raises(ValueError, match="no step"):
            Failing([weight]).step()
        with pytest.raises(RuntimeError, match="does not require grad"):
            (weight * 2).detach().sum().backward()
    assert [finding.code for finding in watch.findings] == ["detach-call"]


def test_a_forked_child_is_not_watched() -> None:
    with whygrad.watch(quiet=True):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            seen = torch.overrides._get_current_function_mode_stack()
            thread_modes: list[Any] = []
            thread = threading.Thread(
                target=lambda: thread_modes.extend(
                    torch.overrides._get_current_function_mode_stack()
                )
            )
            thread.start()
            thread.join()
            os.write(writer, f"{len(seen)} {len(thread_modes)}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 100) == b"0 0"
        assert len(torch.overrides._get_current_function_mode_stack()) == 1
    os.close(reader), os.close(writer)


@pytest.fixture(scope="module")
def watched() -> Iterator[None]:
    with whygrad.watch(quiet=True):
        yield


def _looks(owner: Any, name: str) -> list[Any]:
    thing = getattr(owner, name)
    try:
        signature: Any = inspect.signature(thing)
    except ValueError as error:
        signature = str(error)
    pickled = inspect.ismodule(owner) and pickle.loads(pickle.dumps(thing)) is thing
    return [signature, pickled, getattr(thing, "__name__", ""), getattr(thing, "__doc__", "")]


# Taken while nothing is watched: what the replacements must look like.
LOOKS = {(owner, name): _looks(owner, name) for owner, name in PLACES}


@pytest.mark.parametrize(("owner", "name"), PLACES)
def test_replacements_look_like_what_they_replace(owner: Any, name: str, watched: None) -> None:
    assert _looks(owner, name) == LOOKS[owner, name]
