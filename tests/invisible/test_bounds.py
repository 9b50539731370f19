"""The record has a size that a program cannot make it exceed."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sized
from typing import Any

import pytest
import torch
from torch import nn

import whygrad
from whygrad.record import adoption, asker, exits, frames, recorder

LIMIT = 50
ROUNDS = 2_000
SLACK = 2 * LIMIT + 10  # what a bounded table may hold before it is cut back


def every_table(watch: Any) -> dict[str, int]:
    """Name -> size of every container that a watch holds on to."""
    watcher = watch._watch.watcher
    record = watcher.recorder
    owners = [
        record,
        record.frames,
        record.switch_table,
        record.exits,
        record.tensors,
        watcher.asker,
        watcher.current_mode(),
        watcher.current_mode().switches,
        *watcher.asker.optimizers.values(),
    ]
    found = {}
    for number, owner in enumerate(owners):
        names = getattr(owner, "__slots__", None) or vars(owner)
        for name in names:
            value = getattr(owner, name)
            if isinstance(value, Sized) and not isinstance(value, str):
                found[f"{type(owner).__name__}{number}.{name}"] = len(value)
    return found


def new_tensors(number: int) -> None:
    torch.ones(1).add(number).mul(2)


def tensors_from_outside(number: int) -> None:
    with torch._C.DisableTorchFunction():
        tensor = torch.ones(1)
    tensor * 2


def values_that_leave(number: int) -> None:
    (torch.ones(1) * (number + 0.1234567)).item()
    torch.ones(number % 50 + 1).numpy()


def shapes(number: int) -> None:
    torch.empty(number, 0) * 2


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


LEAF = torch.ones(1, requires_grad=True)


def custom_functions(number: int) -> None:
    Double.apply(LEAF).sum()


def generated_code(number: int) -> None:
    text = "import torch\nwith torch.no_grad():\n    x = torch.ones(1) * 2\n"
    exec(compile(text, f"file{number}.py", "exec"), {})


def models_and_optimizers(number: int) -> None:
    if number % 20:
        return  # these take longer
    used, unused = nn.Linear(1, 1), nn.Linear(1, 1)
    optimizer = torch.optim.SGD([*used.parameters(), *unused.parameters()], lr=0.1)
    used(torch.ones(1)).sum().backward()
    optimizer.step()


def failures(number: int) -> None:
    if number % 20:
        return
    code = compile("torch.ones(1).backward()", f"failing{number}.py", "exec")
    with contextlib.suppress(RuntimeError):
        exec(code, {"torch": torch})


def switches_without_end(number: int) -> None:
    torch.set_grad_enabled(number % 2 == 0)


@pytest.mark.parametrize(
    "step",
    [
        new_tensors,
        tensors_from_outside,
        values_that_leave,
        shapes,
        custom_functions,
        generated_code,
        models_and_optimizers,
        failures,
        switches_without_end,
    ],
    ids=lambda step: step.__name__,
)
def test_no_table_grows_beyond_its_limit(
    step: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (adoption, asker, exits, frames, recorder):
        for name in vars(module):
            if name.startswith("_MAX") and name not in ("_MAX_STACK", "_MAX_NESTED", "_MAX_WALK"):
                monkeypatch.setattr(module, name, LIMIT)
    monkeypatch.setattr("whygrad.record.tensors._FIRST_SWEEP", LIMIT)
    monkeypatch.setattr(asker, "_MAX_ASKED", 5)  # each answer takes a while
    with whygrad.watch(quiet=True, max_operations=LIMIT) as watch:
        try:
            for number in range(ROUNDS):
                step(number)
                if number == 0:
                    torch.relu(torch.ones(1))
            sizes = every_table(watch)
        finally:
            torch.set_grad_enabled(True)
    assert {name: size for name, size in sizes.items() if size > SLACK} == {}
    assert len(sizes) > 20


def test_a_long_run_stays_within_the_usual_limits() -> None:
    with whygrad.watch(quiet=True, max_operations=500) as watch:
        leaf = torch.ones(1, requires_grad=True)
        window: deque[Any] = deque(maxlen=10)
        for number in range(20_000):
            window.append(leaf * number)
        sizes = every_table(watch)
    assert max(sizes.values()) <= 8_192 + 1
    assert watch.session is not None
    assert watch.session.overhead["operations"] == 20_001
    assert watch.session.overhead["operations_held"] <= 500
    (note,) = watch.session.notes
    assert "older ones were dropped" in note


def test_a_finding_survives_what_was_dropped() -> None:
    with whygrad.watch(quiet=True, max_operations=50) as watch:
        weight = nn.Parameter(torch.ones(2))
        for _ in range(200):
            torch.ones(1) * 2
        loss = (weight * 2).detach().sum()
        with pytest.raises(RuntimeError, match="does not require grad"):
            loss.backward()
    assert [finding.code for finding in watch.findings] == ["detach-call"]
