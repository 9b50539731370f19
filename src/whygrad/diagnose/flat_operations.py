"""Operations that are flat, everywhere or in part. Data: by autograd's names for them."""

from __future__ import annotations

from collections.abc import Callable

from whygrad.diagnose.case import Case
from whygrad.graph.tracing import Followed, kind_of
from whygrad.record.accounts import Range

# These replace values and do not look at them.
OVERWRITES = frozenset("Fill Zero Copy Normal Uniform Exponential LogNormal Cauchy".split())
ROUNDED_DIVISIONS = ("DivBackward2", "DivBackward3")

_TINY = 1e-30


def _ends(at: tuple[float, float]) -> Callable[[Range], bool]:
    def check(seen: Range) -> bool:
        return all(any(abs(v - end) <= _TINY for end in at) for v in (seen.low, seen.high))

    return check


# Functions that are flat in part: what their values must be for all of them to be there.
_OUTPUTS_WHEN_FLAT: dict[str, Callable[[Range], bool]] = {
    "Tanh": _ends((-1.0, 1.0)),
    "Sigmoid": _ends((0.0, 1.0)),
    "Softmax": lambda seen: seen.high == 1 and seen.low in (0, 1),
    "LogSoftmax": lambda seen: seen.low == seen.high == 0,
    "Exp": lambda seen: seen.high <= _TINY,
}
_INPUTS_WHEN_FLAT: dict[str, Callable[[Range], bool]] = {
    "Erf": lambda seen: min(abs(seen.low), abs(seen.high)) > 5,
    **dict.fromkeys(("Softplus", "Gelu", "Silu", "Mish"), lambda seen: seen.high < -5),
    **dict.fromkeys(("Elu", "Celu"), lambda seen: seen.high < -5),
}
# Flat outside of limits that somebody chose. A loss that forgives what is within limits uses
# the same operations, so they count only if nothing that trains could bring the values back.
LIMITS = frozenset(
    """
    Clamp ClampMin ClampMax Hardtanh Hardsigmoid Hardswish Hardshrink Softshrink Minimum Maximum
    """.split()
)
RELUS = frozenset(["Relu", "Threshold"])
SHARES = frozenset(["Softmax", "LogSoftmax"])
_ADDING_UP = frozenset(
    "Sum Mean Add Sub Neg View Squeeze Unsqueeze Select Index Stack Cat Nanmean".split()
)
# Those whose limits nobody chose.
FLAT_IN_PART = frozenset({*RELUS, *_OUTPUTS_WHEN_FLAT, *_INPUTS_WHEN_FLAT} - SHARES)


def is_flat(passed: Followed, index: int) -> bool:
    """Whether every value at an operation lies where it is flat."""
    kind = kind_of(passed.nodes[index])
    gave, got = passed.output(index), passed.input(index)
    if kind in _OUTPUTS_WHEN_FLAT:
        return gave is not None and _OUTPUTS_WHEN_FLAT[kind](gave)
    return kind in _INPUTS_WHEN_FLAT and got is not None and _INPUTS_WHEN_FLAT[kind](got)


def is_penalty(case: Case, passed: Followed, index: int) -> bool:
    """Whether an operation is a term of the loss: after it, values are only added up and weighted.

    Then being zero is what it should be: a hinge that is met.
    """
    seen, waiting = {index}, [index]
    while waiting:
        for above in passed.consumers(waiting.pop()):
            if above in seen:
                continue
            node = passed.nodes[above]
            event = case.graph.event(node.event) if node.event is not None else None
            weighs = kind_of(node) in ("Mul", "Div") and event is not None and event.shape == ()
            if not weighs and kind_of(node) not in _ADDING_UP:
                return False
            seen.add(above)
            waiting.append(above)
    return True


def shares_alone(passed: Followed, index: int) -> bool:
    """Whether an operation is a softmax over a single entry: its result is always the same."""
    gave = passed.output(index)
    return kind_of(passed.nodes[index]) in SHARES and gave is not None and gave.low == gave.high
