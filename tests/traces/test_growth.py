"""When growth over steps is an explosion, and when it is not."""

from __future__ import annotations

from math import inf, nan

import pytest

from whygrad.diagnose import explosions
from whygrad.diagnose.case import Case
from whygrad.graph.flow import FlowGraph
from whygrad.graph.places import Places
from whygrad.record.accounts import Account, Sizes
from whygrad.record.events import Question, Recording


def case_with(gradients: list[float | None], losses: list[float] | None = None) -> Case:
    losses = losses or [1.0] * len(gradients)
    recording = Recording([], 0, {}, [], [], [()], {}, [])
    question = Question("health", (), (), 0, len(gradients), account=Account())
    question.sizes = [
        Sizes(step, loss, gradient)
        for step, (loss, gradient) in enumerate(zip(losses, gradients, strict=True), 1)
    ]
    return Case(question, FlowGraph(recording), Places(recording))


@pytest.mark.parametrize(
    "gradients",
    [
        [1.0, 1e3, 1e6, 1e9],
        [5.0, 1.0, 1e3, 1e6, inf],
        [1e20, inf],
        [1.0, 1e9, inf],
    ],
    ids=["on its way", "until it overflows", "at once", "in two steps"],
)
def test_gradients_that_explode(gradients: list[float | None]) -> None:
    growth = explosions.find(case_with(gradients))
    assert growth is not None and growth.what == "gradient"


@pytest.mark.parametrize(
    "gradients",
    [
        [1.0, 2.0, 3.0, 4.0],
        [1e10, 1e10, 9e9],
        [1.0, 1e3, 1e6, 1e9, 1.0],
        [0.1, 0.5, 2.0, inf],
        [1.0, inf],
    ],
    ids=["slow", "large units", "came back", "overflows out of nothing", "no growth seen"],
)
def test_gradients_that_do_not(gradients: list[float | None]) -> None:
    assert explosions.find(case_with(gradients)) is None


def test_where_gradients_are_looked_at_now_and_then_losses_tell() -> None:
    losses = [10.0**power for power in range(0, 20, 2)] + [nan]
    growth = explosions.find(case_with([1.0, 2.0, *[None] * 9], losses))
    assert growth is not None and growth.what == "loss"
    assert growth.overflow == 11
    assert growth.factor == pytest.approx(1e18)


def test_a_scaled_loss_overflows_on_purpose() -> None:
    case = case_with([1.0, 1e4, 1e9, inf])
    assert case.question.account is not None
    case.question.account.scaled = True
    assert explosions.find(case) is None
