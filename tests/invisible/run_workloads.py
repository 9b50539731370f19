"""Run the workloads that warn, with Python's own filters; `watched` as argument: under a watch."""

from __future__ import annotations

import contextlib
import sys

import torch
from workloads import all_workloads

import whygrad

WARNING = [
    "graphs.anomaly_mode",
    "graphs.custom_functions",
    "graphs.hooks_of_every_kind",
    "graphs.warnings_of_torch",
    "kinds.nested_tensors",
    "kinds.numpy_and_python",
    "kinds.sparse_tensors",
    "networks.attention_in_evaluation",
    "networks.parametrized_modules",
    "optimizing.schedulers",
    "running.generated_code",
    "running.scripted_and_traced",
]

if __name__ == "__main__":
    torch.set_num_threads(1)
    programs = all_workloads()
    for name in WARNING * 2:  # most warnings are shown once for each place
        torch.manual_seed(0)
        print(name, file=sys.stderr)
        with whygrad.watch(quiet=True) if "watched" in sys.argv else contextlib.nullcontext():
            programs[name]()
