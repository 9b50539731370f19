"""What a gradient scaler did to each optimizer's gradients, read off the account."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from whygrad.graph.flow import FlowGraph
from whygrad.record.accounts import (
    Account,
    ClearUse,
    ClipUse,
    PassUse,
    ScalerUse,
    StepUse,
)
from whygrad.record.ops import display_name

_MAX_DEPTH = 32
# What a scaled loss may go through before backward() and still be scaled.
_PASSED_ON = frozenset(
    "add sub sum mean mul div truediv neg stack cat getitem to squeeze view reshape float".split()
)

Kind = Literal["scaled step", "second step", "unscaled loss", "scaled clip"]


@dataclass(slots=True)
class Misuse:
    """One thing that a program does to a scaler's gradients without an error."""

    kind: Kind
    act: StepUse | ClipUse | PassUse  # what is wrong
    optimizer: int
    made: PassUse | None  # the backward() that made the gradients
    scale: ScalerUse | None = None  # the call that scaled its loss
    step: ScalerUse | None = None  # the scaler's own step of that optimizer


@dataclass(slots=True)
class _State:
    """The gradients of one optimizer, as they are between two acts."""

    scaled: list[PassUse] = field(default_factory=list)
    plain: list[PassUse] = field(default_factory=list)
    unscaled: bool = False  # divided by the scale
    stepped: ScalerUse | None = None  # by the scaler, since the last pass


def is_scaled(graph: FlowGraph, roots: Iterable[int], scaled: set[int]) -> bool | None:
    """Whether backward() started from scaled losses; None where that cannot be told."""
    seen: set[int] = set()
    waiting = [(root, 0) for root in roots]
    while waiting:
        node, depth = waiting.pop()
        if node in scaled:
            return True
        event = graph.event(node)
        if event is None or node in seen or depth > _MAX_DEPTH:
            continue
        seen.add(node)
        if display_name(event.op) in _PASSED_ON:
            waiting += [(fed, depth + 1) for fed in graph.inputs(node) if graph.live(fed)]
    known = all(graph.event(root) is not None for root in roots)
    return False if known and scaled.isdisjoint(graph.ancestors(roots)) else None


def misuses(graph: FlowGraph, account: Account) -> list[Misuse]:
    """What was done, in order; empty where no scaler was used."""
    acts = account.acts
    if not any(isinstance(act, ScalerUse) for act in acts):
        return []
    held = {use.number: use.nodes for use in account.optimizers}
    states = {number: _State() for number in held}
    scaled: dict[int, ScalerUse] = {}
    found: list[Misuse] = []
    for place, act in enumerate(acts):
        match act:
            case ScalerUse(call="scale"):
                scaled.update(dict.fromkeys(act.scaled, act))
            case ScalerUse(call="unscale_") if act.optimizer in states:
                states[act.optimizer].unscaled = True
            case ScalerUse(call="step") if act.optimizer in states:
                # Its gradients are unscaled from here on, whether or not a step was made.
                states[act.optimizer].unscaled = True
                states[act.optimizer].stepped = act
            case PassUse():
                verdict = is_scaled(graph, act.roots, set(scaled))
                for number, state in states.items():
                    if not act.touched.isdisjoint(held[number]):
                        _passed(state, act, verdict)
            case ClearUse():
                for number, state in states.items():
                    if act.optimizer in (-1, number):
                        states[number] = _State(stepped=state.stepped)
            case ClipUse():
                found += _clip(act, held, states, scaled)
            # Of the last step nobody knows yet whether the scaler made it.
            case StepUse() if act.optimizer in states and place + 1 < len(acts):
                by = _by_scaler(acts[place + 1 : place + 2], act)
                found += _step(act, by, states[act.optimizer], scaled)
    return found


def _passed(state: _State, act: PassUse, verdict: bool | None) -> None:
    if state.unscaled:
        # What is added now is scaled, what was there is not: a mixture that nobody can judge.
        state.scaled, state.plain = [], []
    state.unscaled, state.stepped = False, None
    if verdict is not None:
        (state.scaled if verdict else state.plain).append(act)


def _by_scaler(following: Sequence[object], step: StepUse) -> ScalerUse | None:
    """The scaler's step that an optimizer's step was a part of: it comes right after it."""
    for act in following:
        if isinstance(act, ScalerUse) and act.call == "step" and act.stack == step.stack:
            return act
    return None


def _step(
    act: StepUse, by: ScalerUse | None, state: _State, scaled: dict[int, ScalerUse]
) -> list[Misuse]:
    number = act.optimizer
    if by is not None:
        if state.plain and not state.scaled and not state.unscaled and not _read(state.plain):
            return [Misuse("unscaled loss", state.plain[-1], number, state.plain[-1], step=by)]
        return []
    if state.scaled and not state.unscaled and not _read(state.scaled):
        made = state.scaled[-1]
        return [Misuse("scaled step", act, number, made, _scale_of(made, scaled))]
    if state.stepped is not None and not act.passes and act.again:
        return [Misuse("second step", act, number, None, step=state.stepped)]
    return []


def _clip(
    act: ClipUse,
    held: dict[int, frozenset[int]],
    states: dict[int, _State],
    scaled: dict[int, ScalerUse],
) -> list[Misuse]:
    for number, state in states.items():
        mine = not act.parameters.isdisjoint(held[number])
        if mine and state.scaled and not state.unscaled and not _read(state.scaled):
            made = state.scaled[-1]
            return [Misuse("scaled clip", act, number, made, _scale_of(made, scaled))]
    return []


def _scale_of(made: PassUse, scaled: dict[int, ScalerUse]) -> ScalerUse | None:
    return next((scaled[root] for root in made.roots if root in scaled), None)


def _read(passes: list[PassUse]) -> bool:
    """Whether the program works on the gradients itself: it may well unscale them."""
    return any(made.read for made in passes)
