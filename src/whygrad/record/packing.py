"""The hooks that pack what autograd saves: those in force now, and those behind a loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from whygrad.record import autopsy, torch_api
from whygrad.record.events import HookUse
from whygrad.record.hooks import described
from whygrad.record.recorder import Recorder

_MAX_TOLD = 8


def in_force() -> list[HookUse]:
    """The pair of hooks that would pack what is saved now."""
    pair = torch_api.saved_tensors_hooks()
    return [] if pair is None else [described("pack", pair[0]), described("unpack", pair[1])]


def behind(recorder: Recorder, roots: Iterable[Any]) -> list[HookUse]:
    """The hooks that have yet to unpack something behind some tensors: the next one first."""
    found: dict[tuple[str, int, int], tuple[int, HookUse]] = {}
    live = [root for root in roots if root.grad_fn is not None]
    for function, _ in autopsy.functions(recorder, live):
        for name in torch_api.saved_names(function):
            for hook in torch_api.unpack_hooks(function, name):
                use = described("unpack", hook)
                key = (use.file, use.line, use.column)
                order = torch_api.node_sequence(function)
                if key not in found or found[key][0] < order:
                    found[key] = (order, use)
    rows = sorted(found.values(), key=lambda row: -row[0])
    return [use for _, use in rows[:_MAX_TOLD]]
