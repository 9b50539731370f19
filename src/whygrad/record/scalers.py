"""In which order the program calls its gradient scalers: scale, unscale_, step, update."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from whygrad.record import failures
from whygrad.record.accounts import ScalerCall, ScalerUse
from whygrad.record.frames import TORCH
from whygrad.record.ledger import Ledger
from whygrad.record.patches import After, Patches, stand_in
from whygrad.record.recorder import Recorder

CALLS: tuple[ScalerCall, ...] = ("scale", "unscale_", "step", "update")


def install(patches: Patches, recorder: Recorder, ledger: Ledger) -> None:
    """Four calls per step, and their mistakes show in any step: kept on throughout."""
    kind = torch.amp.GradScaler
    for call in CALLS:
        after = _called(recorder, ledger, call)
        patches.set(kind, call, stand_in(recorder, vars(kind)[call], after=after))


def _called(recorder: Recorder, ledger: Ledger, call: ScalerCall) -> After:
    def called(args: tuple[Any, ...], kwargs: Any, result: Any, frame: FrameType) -> None:
        # A step unscales by itself, which is no call of the program's.
        if not args[0].is_enabled() or recorder.frames.kind(frame) == TORCH:
            return
        given = args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
        held = ledger.optimizers.get(given) if isinstance(given, torch.optim.Optimizer) else None
        scaled = _nodes(recorder, result) if call == "scale" else frozenset()
        ledger.used_scaler(
            ScalerUse(
                call,
                recorder.frames.stack(frame),
                held.number if held is not None else -1,
                scaled,
                getattr(args[0], "_init_scale", None),
            )
        )

    return called


def _nodes(recorder: Recorder, result: Any) -> frozenset[int]:
    known = (recorder.node_of(tensor) for tensor in failures.tensors(result))
    return frozenset(node for node in known if node is not None)
