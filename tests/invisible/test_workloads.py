"""Every workload does the same watched as bare, bit for bit, and nothing is found in it."""

from __future__ import annotations

import pytest
from invisible_helpers import faults, observe
from workloads import all_workloads

WORKLOADS = all_workloads()

# These make a failing call on purpose, which whygrad may well explain.
FAILING = {"graphs.gradient_modes"}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_watched_program_does_what_it_does_bare(name: str) -> None:
    program = WORKLOADS[name]
    first = observe(program, watched=False)
    watched = observe(program, watched=True)
    bare = observe(program, watched=False)
    assert first.exception == ""
    assert first.values == bare.values, "the workload itself is not deterministic"
    assert watched.exception == ""
    assert watched.values == bare.values
    assert watched.random_states == bare.random_states
    assert watched.warnings == bare.warnings
    assert faults(watched) == []
    if name not in FAILING:
        assert watched.findings == []
