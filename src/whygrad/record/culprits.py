"""Which operation of the forward pass a message is about that names a piece of its backward."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from whygrad.record import autopsy, torch_api
from whygrad.record.derivatives import named_in, squashed
from whygrad.record.recorder import Recorder

_DERIVATIVE = re.compile(r"Backward\d*$")
_SHORTEST = 3  # letters of a name that says something


def operation(recorder: Recorder, roots: list[Any], text: str) -> tuple[int | None, str] | None:
    """The event of the operation, and autograd's name for it; None if no name leads there.

    The second derivative's pieces, and what has no derivative at all, carry no number that leads
    to a line. The operation of the first derivative does, and lies behind them.
    """
    wanted = squashed(named_in(text))
    if len(wanted) < _SHORTEST:
        return None
    live = [root for root in roots if root.grad_fn is not None]
    found = [
        (own == wanted, torch_api.node_sequence(function), event, name)
        for function, event, name in _named(recorder, live)
        if (own := squashed(_DERIVATIVE.sub("", name))) and _fits(own, wanted)
    ]
    if not found:
        return None
    _, _, event, name = max(found, key=lambda row: row[:2])
    return event, name


def _named(recorder: Recorder, roots: list[Any]) -> Iterator[tuple[Any, int, str]]:
    for function, event in autopsy.functions(recorder, roots):
        # Through the type: a custom Function's context may have a `name` of its own.
        name = str(type(function).name(function)).removeprefix("torch::autograd::")
        if event is not None and "BackwardBackward" not in name:
            yield function, event, name


def _fits(own: str, wanted: str) -> bool:
    return own == wanted or (len(own) > _SHORTEST and (own in wanted or wanted in own))
