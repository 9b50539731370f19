"""Run all workloads with Python's own warning filters; `watched` as argument: under a watch."""

from __future__ import annotations

import contextlib
import sys

import torch
from workloads import all_workloads

import whygrad

if __name__ == "__main__":
    torch.set_num_threads(1)
    programs = all_workloads()
    del programs["running.profiled"]  # torch's profiler writes the time of day to stderr
    for name, program in programs.items():
        torch.manual_seed(0)
        print(name, file=sys.stderr)
        with whygrad.watch(quiet=True) if "watched" in sys.argv else contextlib.nullcontext():
            program()
