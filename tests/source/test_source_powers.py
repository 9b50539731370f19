"""Powers that have a derivative everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from source_helpers import find, write

from whygrad.source.powers import is_whole_power


@pytest.mark.parametrize(
    "text", ["x ** 2", "x ** 1.5", "x.pow(3)", "torch.pow(x, 2)", "x.square()"]
)
def test_powers_that_never_fail(text: str, tmp_path: Path) -> None:
    assert is_whole_power(find(write(tmp_path, f"y = {text}"), text))


@pytest.mark.parametrize("text", ["x ** 0.5", "x ** p", "x.pow(p)", "x.abs()", "x ** -1"])
def test_powers_that_may(text: str, tmp_path: Path) -> None:
    assert not is_whole_power(find(write(tmp_path, f"y = {text}"), text))
