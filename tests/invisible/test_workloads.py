"""Every workload does the same watched as bare, bit for bit, and nothing is found in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from invisible_helpers import faults, observe, run_process
from torch.overrides import TorchFunctionMode
from workloads import all_workloads

WORKLOADS = all_workloads()

# These make a failing call on purpose, or one that torch warns about: whygrad may explain that.
FAILING = {
    "graphs.warnings_of_torch",
    "optimizing.schedulers",
    "graphs.gradient_modes",
    "graphs.anomaly_mode",
    "failing.backward_that_raises",
    "failing.operations_that_raise",
    "failing.tracebacks_of_calls_in_c",
    "optimizing.conversions_that_swap_tensors",  # a layer that nothing uses is in the optimizer
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_watched_program_does_what_it_does_bare(name: str) -> None:
    program = WORKLOADS[name]
    # From one line: anomaly mode quotes the whole stack.
    first, watched, bare = (observe(program, watched=watch) for watch in (False, True, False))
    assert first.exception == ""
    assert first.values == bare.values, "the workload itself is not deterministic"
    assert watched.exception == ""
    assert watched.values == bare.values
    assert watched.random_states == bare.random_states
    assert watched.warnings == bare.warnings
    assert faults(watched) == []
    if name not in FAILING:
        assert [f for f in watched.findings if f.severity != "info"] == []


def test_stderr_is_the_same_with_pythons_own_warning_filters() -> None:
    script = str(Path(__file__).with_name("run_workloads.py"))
    code, bare_out, bare_err = run_process(sys.executable, script, "bare")
    assert code == 0
    assert "Warning" in bare_err
    assert run_process(sys.executable, script, "watched") == (0, bare_out, bare_err)


class CallLog(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def test_a_mode_around_the_watch_sees_what_it_sees_without() -> None:
    program = WORKLOADS["optimizing.usual_optimizers"]
    logs = []
    for watched in (False, True):
        with CallLog() as log:
            observe(program, watched=watched)
        logs.append(log.calls)
    assert logs[0] == logs[1]
