"""What became of gradients: passes, clearings, clippings and steps in their order, and values.

Plain data, taken in the closely watched steps. Parameters are named by their nodes; a `stack` is
a place with its callers, as elsewhere in a recording, and 0 where none is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# What was seen of a parameter's gradient over all looks at it. `zero`: present, and nothing but
# zeros at every look. `non-finite`: so at the latest look. `flows`: finite and not zero, once.
GradientState = Literal["flows", "zero", "non-finite", "none", "frozen"]


@dataclass(slots=True)
class PassUse:
    """A backward() and what became of the gradients that it made."""

    number: int  # counts backward() calls from 1
    stack: int
    roots: tuple[int, ...]
    touched: frozenset[int]  # parameters (and other leaves) whose .grad it changed
    used_by: list[int] = field(default_factory=list)  # `order` of the steps that used some of it
    cleared_by: int = 0  # `order` of the clearing that threw the last of it away unused
    lost: bool = False  # all of it was cleared, and no step had used any
    read: bool = False  # the program itself looked at .grad: a use of its own
    order: int = 0


@dataclass(slots=True)
class ClearUse:
    """Gradients were set to None or to zero."""

    stack: int  # 0: seen by its effect alone
    call: str  # "optimizer.zero_grad" | "module.zero_grad" | "" (by hand)
    optimizer: int  # number of the optimizer whose zero_grad() it was, -1 otherwise
    order: int = 0


@dataclass(slots=True)
class StepUse:
    """An optimizer's step and the gradients that it used."""

    optimizer: int  # its number in `Account.optimizers`
    stack: int
    passes: tuple[int, ...]  # numbers of the passes whose gradients it was the first to use
    again: tuple[int, ...]  # passes that an earlier step of this optimizer had used already
    without: int  # how many of its parameters had no gradient (None)
    of: int  # how many parameters it holds
    zeros: int = 0  # how many had a gradient of nothing but zeros
    order: int = 0
    stale: frozenset[int] = frozenset()  # its parameters whose gradients hold some of `again`


ClipSight = Literal["none", "used", "zero", "fresh"]


@dataclass(slots=True)
class ClipUse:
    """clip_grad_norm_() and its like."""

    stack: int
    name: str
    # What it found: no gradient at all, only such as a step had used already, only zeros, or
    # gradients that a step could still use.
    sight: ClipSight
    parameters: frozenset[int]
    order: int = 0


@dataclass(slots=True)
class ScheduleUse:
    """A learning-rate scheduler's step, called by the program."""

    stack: int
    name: str  # its class
    optimizer: int
    steps_before: int  # of that optimizer
    order: int = 0


ScalerCall = Literal["scale", "unscale_", "step", "update"]


@dataclass(slots=True)
class ScalerUse:
    """A call of an enabled gradient scaler that went through. Its step() comes after the
    optimizer's own, which has the same `stack`; there is none if the step was skipped."""

    call: ScalerCall
    stack: int
    optimizer: int = -1  # number of the optimizer that it was given
    scaled: frozenset[int] = frozenset()  # nodes of the scaled losses
    initial: float | None = None  # the scale that the scaler began with
    order: int = 0


Act = PassUse | ClearUse | StepUse | ClipUse | ScheduleUse | ScalerUse


@dataclass(slots=True)
class OptimizerUse:
    """One optimizer of the program."""

    number: int
    name: str  # its class
    stack: int  # where it was made
    nodes: frozenset[int]  # the parameters it holds
    steps: int
    cleared: int  # how often its zero_grad() was called
    alive: bool = True


@dataclass(slots=True)
class Registration:
    """A module got a parameter or a submodule after an optimizer had been made."""

    stack: int
    name: str  # of the attribute
    nodes: frozenset[int]  # the parameters that came with it
    built: bool = False  # by the constructor of a new module, as a part of it


@dataclass(slots=True)
class Account:
    """The closely watched part of a program's run, in order."""

    acts: list[Act] = field(default_factory=list)  # each with its place in the order, from 1
    optimizers: list[OptimizerUse] = field(default_factory=list)
    registrations: list[Registration] = field(default_factory=list)
    written: frozenset[int] = frozenset()  # parameters that the program itself changed in place
    by_hand: list[StepUse] = field(default_factory=list)  # updates of the program's own writing
    # Parameters to which the program has assigned a gradient with other strides -> where.
    laid_out: dict[int, int] = field(default_factory=dict)
    scaled: bool = False  # a gradient scaler is in use: steps may be skipped on purpose
    complete: bool = True  # nothing was left out since the program's start
    final: bool = False  # the program has ended


# --- values -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Range:
    """The values of a tensor, in three numbers."""

    low: float  # NaN if there is any
    high: float
    size: int  # number of elements


@dataclass(slots=True)
class TraceNode:
    """An operation of a backward pass, with the largest absolute gradient on each side of it.

    Sizes are NaN or infinite where gradients are; None where there was none, or none was taken.
    """

    event: int | None  # the recorded operation that made it
    function: str  # autograd's name: "TanhBackward0"
    incoming: float | None  # what came from the side of the loss
    outgoing: tuple[float | None, ...]  # what it sent on, one per entry of `feeds`
    feeds: tuple[int, ...]  # index of the next operation; -1: none; leaves see `leaf`
    leaf: int | None = None  # the parameter's node, where this is where its gradient is stored
    saved: dict[str, Range] = field(default_factory=dict)  # values kept for backward, by name


@dataclass(slots=True)
class Trace:
    """The gradients of one backward pass, from the loss (first) to the leaves.

    Without nodes: the pass had ended before anything was seen to be off, so it was not followed,
    and only the values that were still alive before the step are known.
    """

    nodes: list[TraceNode]
    roots: tuple[int, ...]  # indices of the operations that it started from
    number: int  # of the pass
    step: int
    whole: bool  # every operation was measured, not only those whose derivative can fail
    values: dict[int, Range] = field(default_factory=dict)  # node -> forward values, if alive
    parameters: dict[int, Range] = field(default_factory=dict)  # node -> values at that time
    data: dict[int, Range] = field(default_factory=dict)  # node -> inputs that need no gradient


@dataclass(slots=True)
class Sizes:
    """How large gradients and losses were, over the steps that were looked at."""

    step: int
    loss: float | None
    gradient: float | None  # largest absolute value over all parameters
    finite: bool = False  # a light look, at one gradient only, found nothing
