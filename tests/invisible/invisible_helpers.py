"""Run a program bare and watched, and put everything that can be seen of it side by side."""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whygrad
from whygrad.session import Finding


@dataclass
class Observation:
    """What a run can be told by; two runs of the same program must be equal in all of it."""

    values: Any
    random_states: Any
    warnings: list[tuple[str, str, str, int]]
    exception: str = ""
    notes: list[str] = field(default_factory=list, compare=False)
    findings: list[Finding] = field(default_factory=list, compare=False)


def observe(program: Callable[[], Any], *, watched: bool) -> Observation:
    """Run with fixed seeds and each warning on; torch's own "only once" is off."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    once = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    watch = whygrad.watch(quiet=True)
    values, exception = None, ""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with watch if watched else contextlib.nullcontext():
                    values = program()
            except Exception as error:
                exception = f"{type(error).__name__}: {error}"
    finally:
        torch.set_warn_always(once)
    states = [torch.get_rng_state(), np.random.get_state(), str(random.getstate())]
    return Observation(
        freeze(values),
        freeze(states),
        [
            (w.category.__name__, _without_addresses(str(w.message)), w.filename, w.lineno)
            for w in caught
        ],
        exception,
        list(watch.session.notes) if watch.session else [],
        list(watch.findings),
    )


def freeze(value: Any) -> Any:
    """Plain data that is equal exactly where the values are, bit for bit."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunction():
            return _freeze_tensor(value)
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): freeze(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [freeze(item) for item in value]
    return _without_addresses(repr(value))


def _freeze_tensor(tensor: torch.Tensor) -> Any:
    facts = (type(tensor).__name__, str(tensor.dtype), str(tensor.layout), tensor.requires_grad)
    tensor = tensor.detach()
    if tensor.is_nested:
        return facts, [_freeze_tensor(part) for part in tensor.unbind()]
    if tensor.layout is torch.sparse_coo:
        return facts, tensor.is_coalesced(), freeze([tensor._indices(), tensor._values()])
    if tensor.layout is torch.sparse_csr:
        return facts, freeze([tensor.crow_indices(), tensor.col_indices(), tensor.values()])
    plain = tensor.as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    plain = plain.clone(memory_format=torch.contiguous_format)
    return facts, tuple(plain.shape), plain.flatten().view(torch.uint8).numpy().tobytes()


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def run_process(*command: str, cwd: Path | None = None, **env: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a process; addresses are left out."""
    clean = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    done = subprocess.run(
        command, cwd=cwd, env=clean | env, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, _without_addresses(done.stdout), _without_addresses(done.stderr)


def faults(observation: Observation) -> list[str]:
    return [note for note in observation.notes if "internal" in note]
