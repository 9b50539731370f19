"""Small deterministic programs. Each public function is one: it returns all that it computed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import FunctionType
from typing import Any

Workload = Callable[[], Any]


def all_workloads() -> dict[str, Workload]:
    """`module.function` -> the function, for every public function of every module here."""
    found: dict[str, Workload] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for name, thing in vars(module).items():
            own = isinstance(thing, FunctionType) and thing.__module__ == module.__name__
            if own and not name.startswith("_"):
                found[f"{info.name}.{name}"] = thing
    return found
