"""How far a backward pass got before it raised: which operation's derivative that was."""

from __future__ import annotations

import re
from math import prod
from typing import Any, NamedTuple

from whygrad.record import autopsy, torch_api
from whygrad.record.recorder import Recorder

_FREED = "second time"
_BYTES = re.compile(r"tried to allocate (\d+) bytes")


class Stopped(NamedTuple):
    """The operation whose derivative raised; `certain` unless others could have raised as well."""

    event: int | None
    function: str  # autograd's own name for it
    certain: bool


class _Step(NamedTuple):
    sequence: int
    done: bool | None  # None if it kept nothing that would tell
    event: int | None
    function: Any


def where(recorder: Recorder, roots: list[Any], text: str) -> Stopped | None:
    """The operation at which a pass stopped.

    Autograd works from the latest operation down and lets go of what each one kept when it is
    done. So it is one of those after the last that has let go, up to the first that has not.
    """
    live = [root for root in roots if root.grad_fn is not None]
    steps = [
        _Step(torch_api.node_sequence(function), _is_done(function), event, function)
        for function, event in autopsy.functions(recorder, live)
    ]
    steps.sort(key=lambda step: -step.sequence)
    last_done = max((n for n, step in enumerate(steps) if step.done), default=-1)
    waiting = next((n for n, s in enumerate(steps) if n > last_done and s.done is False), None)
    end = len(steps) if waiting is None else waiting + 1
    possible = [step for step in steps[last_done + 1 : end] if step.event is not None]
    if not possible:
        return None
    asked_for = _BYTES.search(text)
    if asked_for is not None:
        size = int(asked_for.group(1))
        fitting = [step for step in possible if size in _input_bytes(recorder, step.event)]
        if fitting:
            return _stopped(fitting[0], certain=True)
    if waiting is None and len(possible) > 1:
        return None
    return _stopped(possible[-1], certain=len(possible) == 1)


def _stopped(step: _Step, certain: bool) -> Stopped:
    # Through the type: a custom Function's context may have a `name` of its own.
    name = str(type(step.function).name(step.function)).removeprefix("torch::autograd::")
    return Stopped(step.event, name, certain)


def _is_done(function: Any) -> bool | None:
    """Whether a node has let go of what it kept."""
    known = None
    for name in torch_api.saved_names(function):
        if _FREED in torch_api.complaint(function, name):
            return True
        if torch_api.keeps(function, name):
            known = False
    return known


def _input_bytes(recorder: Recorder, event: int | None) -> set[int]:
    """What the gradients of an operation's inputs take in memory."""
    index = (event if event is not None else -1) - recorder.base
    if not 0 <= index < len(recorder.events):
        return set()
    made = recorder.recording().event(index + recorder.base)
    found = set()
    for node in made.inputs if made is not None else ():
        shape = recorder.known_shape(node)
        if made is not None and shape is not None:
            found.add(prod(shape) * int(getattr(made.dtype, "itemsize", 4)))
    return found
