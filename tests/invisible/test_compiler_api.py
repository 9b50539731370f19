"""The private parts of torch's compiler that are used, and what happens without them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import torch._dynamo.eval_frame as frames
from torch import nn

import whygrad
from whygrad.record import torch_api


def test_the_places_where_regions_begin_and_end_are_found() -> None:
    assert torch_api.compiler_frames() is frames
    assert callable(frames.set_eval_frame)
    assert callable(frames.skip_code)


def test_without_them_compiled_functions_run_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_api, "compiler_frames", lambda: None)
    torch.compiler.reset()
    x = torch.ones(2, requires_grad=True)
    with whygrad.watch(quiet=True) as watch:
        torch.compile(lambda x: (x * 2).sum(), backend="eager")(x).backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2]
    assert watch.session is not None and not watch.session.notes


def test_the_compiled_call_tells_its_function_and_result() -> None:
    seen: list[Any] = []
    double = torch.compile(lambda x: x * 2, backend="eager")
    switch = frames.set_eval_frame

    def noticing(callback: Any) -> Any:
        before = switch(callback)
        frame = sys._getframe(1)
        if callback is None and before is not None:
            seen.append(torch_api.compiled_call(frame))
        return before

    torch_api.never_compile(noticing)
    frames.set_eval_frame = noticing
    try:
        result = double(torch.ones(2))
    finally:
        frames.set_eval_frame = switch
    function, (args, _), outcome = seen[-1]
    assert callable(function) and len(args) == 1
    assert outcome is result


def test_a_suspended_hook_comes_back_in_its_place() -> None:
    order: list[int] = []
    layer = nn.Linear(1, 1)
    handles = [layer.register_forward_hook(lambda *_, n=n: order.append(n)) for n in range(3)]
    torch_api.suspend_hook(handles[1])
    layer(torch.ones(1))
    torch_api.resume_hook(handles[1])
    layer(torch.ones(1))
    assert order == [0, 2, 0, 1, 2]


def test_what_a_function_can_get_at() -> None:
    weight, unset = torch.ones(1), None

    def use() -> Any:
        return weight, unset, torch

    assert any(value is weight for value in torch_api.reached_by(use))
    assert any(value is torch for value in torch_api.reached_by(use))
    layer = nn.Linear(1, 1)
    assert torch_api.reached_by(layer.forward)[0] is layer
