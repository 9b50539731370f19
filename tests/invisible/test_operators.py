"""Every operator that torch tests itself, forward, backward and in place, bare and watched."""

from __future__ import annotations

import itertools
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from invisible_helpers import faults, observe
from torch.utils._pytree import tree_leaves, tree_map

SAMPLES = 3  # of each operator's inputs

# Their values are whatever lies in memory.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"} | {
    "new_empty_strided"
}


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Torch's own table of operators; the test helper that it imports is not needed for it."""
    helper = types.ModuleType("expecttest")
    helper.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "expecttest", helper)
    dtype = torch.get_default_dtype()
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_default_dtype(dtype)
    yield [op for op in op_db if op.dtypes and op.name not in UNINITIALISED]


def _programs(op: Any) -> Iterator[Callable[[], Any]]:
    dtype = torch.float32 if torch.float32 in op.dtypes else sorted(op.dtypes, key=str)[0]
    torch.manual_seed(1)
    differentiable = op.supports_autograd and dtype.is_floating_point
    samples = op.sample_inputs_func(op, "cpu", dtype, requires_grad=differentiable)
    for sample in itertools.islice(samples, SAMPLES):
        yield lambda sample=sample: _forward_and_backward(op.op, sample)
        if op.inplace_variant is not None:
            yield lambda sample=sample: _forward_and_backward(op.inplace_variant, sample, copy=True)


def _forward_and_backward(call: Any, sample: Any, copy: bool = False) -> Any:
    """The results and gradients, or what is said against them."""
    try:
        first = tree_map(_clone, sample.input) if copy else sample.input
        out = call(first, *sample.args, **sample.kwargs)
        outputs = [t for t in _tensors(out) if t.requires_grad and t.layout is torch.strided]
        inputs = [
            t for t in _tensors([sample.input, sample.args, sample.kwargs]) if t.requires_grad
        ]
        if outputs and inputs:
            loss = sum(t.abs().sum() for t in outputs)
            return [_tensors(out), torch.autograd.grad(loss, inputs, allow_unused=True)]
        return _tensors(out) or repr(out)
    except Exception as error:
        return [type(error).__name__, str(error)]


def _clone(thing: Any) -> Any:
    return thing.clone() if isinstance(thing, torch.Tensor) else thing


def _tensors(thing: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(thing) if isinstance(leaf, torch.Tensor)]


@pytest.mark.filterwarnings("ignore")  # of making the inputs; those of the calls are compared
def test_every_operator_does_the_same(operators: list[Any]) -> None:
    different = []
    count = 0
    for op in operators:
        for program in _programs(op):
            watched, bare = (observe(program, watched=watch) for watch in (True, False))
            count += 1
            if watched != bare or faults(watched):
                different.append(f"{op.name} {op.variant_test_name} {faults(watched)}")
    assert different == []
    assert count > 1_500
