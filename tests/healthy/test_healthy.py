"""Programs that folklore calls broken, and that are fine: whygrad finds nothing in them.

Every program proves its own health by assertions: the parameters moved, or the gradients are
there. It runs alone first, so that a failure here is known to be whygrad's.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import whygrad

THEMES = sorted(path.stem for path in Path(__file__).parent.glob("healthy_*.py"))
Program = Callable[[], None]


def programs_of(theme: str) -> dict[str, Program]:
    """The public functions that a module defines and that take no argument."""
    module = importlib.import_module(theme)
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == theme
        and not inspect.signature(function).parameters
    }


PROGRAMS = {
    name: program
    for theme in THEMES
    if theme != "healthy_helpers"
    for name, program in programs_of(theme).items()
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_found_in_a_healthy_program(name: str) -> None:
    PROGRAMS[name]()
    torch.manual_seed(0)
    with whygrad.watch(quiet=True) as watch:
        PROGRAMS[name]()
    assert watch.session is not None
    assert [f"{f.code}: {f.title}" for f in watch.findings if f.severity != "info"] == []
    assert watch.session.notes == []


def test_there_are_many_programs_and_no_name_twice() -> None:
    themes = [programs_of(theme) for theme in THEMES if theme != "healthy_helpers"]
    assert len(PROGRAMS) == sum(len(theme) for theme in themes)
    assert len(PROGRAMS) >= 50


def test_the_same_check_notices_a_program_that_is_not_healthy() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with whygrad.watch(quiet=True) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            model[1](model[0](torch.randn(8, 6)).detach()).square().mean().backward()
            optimizer.step()
    assert [finding.code for finding in watch.findings] == ["detach-call"]
