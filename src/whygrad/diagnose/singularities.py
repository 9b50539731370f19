"""Operations whose derivative can fail, and by which values one sees that it did.

Data: autograd's name of an operation -> what to look for in the values that it kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from whygrad.graph.tracing import Followed, is_finite, kind_of
from whygrad.record.accounts import Range

Saved = dict[str, Range]
Test = Callable[[Saved], str]

_EDGE = 1 - 1e-6
_OVERFLOWING = 1e30


def _positive(name: str) -> Test:
    """For what has no value below zero and no slope at it."""

    def test(saved: Saved) -> str:
        seen = saved.get(name)
        if seen is None or math.isnan(seen.low) or seen.low > 0:
            return ""
        return "of 0" if seen.low == 0 else f"of a negative number ({seen.low:.3g})"

    return test


def _result(phrase: str, when: Callable[[Range], bool]) -> Test:
    def test(saved: Saved) -> str:
        seen = next((saved[name] for name in ("result", "result2") if name in saved), None)
        return phrase if seen is not None and when(seen) else ""

    return test


def _either(*tests: Test) -> Test:
    return lambda saved: next(filter(None, (test(saved) for test in tests)), "")


def _within_one(saved: Saved) -> str:
    seen = saved.get("self")
    if seen is None or not is_finite(seen) or max(-seen.low, seen.high) < _EDGE:
        return ""
    outside = max(-seen.low, seen.high) > 1
    return "of a value beyond 1" if outside else f"at {1 if seen.high >= _EDGE else -1}"


def _divisor(saved: Saved) -> str:
    seen = saved.get("other") or saved.get("tensor2")
    return "by 0" if seen is not None and seen.low <= 0 <= seen.high else ""


def _nothing_to_average(saved: Saved) -> str:
    seen = saved.get("total_weight")
    return "of labels that are all ignored" if seen is not None and seen.low == 0 else ""


def _at_least_two(saved: Saved) -> str:
    seen = saved.get("self")
    return "of a single value" if seen is not None and is_finite(seen) else ""


def _nan(seen: Range) -> bool:
    return math.isnan(seen.low)


def _infinite(seen: Range) -> bool:
    return math.isinf(seen.high) and not math.isnan(seen.low)


def _matrix(saved: Saved) -> str:
    return "of a matrix with equal singular values (or a singular one)"


_ROOT = _either(_result("of 0", lambda seen: seen.low == 0), _result("of a negative number", _nan))
_INVERSE = _either(_result("of 0", _infinite), _result("of a negative number", _nan))
_OVERFLOW = _result("overflows", _infinite)
_ROW = _result("over a row of -inf", _nan)

_TESTS: dict[str, Test] = {
    "Sqrt": _ROOT,
    "Hypot": _result("of (0, 0)", lambda seen: seen.low == 0),
    "Rsqrt": _INVERSE,
    "Reciprocal": _INVERSE,
    **dict.fromkeys(("Log", "Log2", "Log10", "Pow", "Xlogy"), _positive("self")),
    "Log1P": lambda saved: "of -1 or less" if saved["self"].low <= -1 else "",
    **dict.fromkeys(("Acos", "Asin", "Atanh", "Erfinv"), _within_one),
    "Acosh": lambda saved: "of 1 or less" if saved["self"].low <= 1 else "",
    "Logit": lambda saved: "of 0 or 1" if saved["self"].low <= 0 or saved["self"].high >= 1 else "",
    **dict.fromkeys(("Div", "Addcdiv"), _divisor),
    **dict.fromkeys(("Exp", "Exp2", "Expm1", "Cosh", "Sinh", "Tan"), _OVERFLOW),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _ROW),
    "Logsumexp": _result("over a row of -inf", lambda seen: seen.low == -math.inf or _nan(seen)),
    **dict.fromkeys(("Std", "Var", "StdMean", "VarMean"), _at_least_two),
    "NllLoss": _nothing_to_average,
    **dict.fromkeys(
        ("NativeBatchNorm", "NativeLayerNorm", "NativeGroupNorm"),
        _result("of values that are all equal", _infinite),
    ),
    **dict.fromkeys(
        ("LinalgSvd", "LinalgEigh", "LinalgInvEx", "LinalgDet", "LinalgSlogdet"), _matrix
    ),
    "Mean": lambda saved: "of nothing (an empty tensor)",
}
# These take infinite values as a matter of course: a masked score is -inf.
_TAKE_INFINITY = frozenset(["Softmax", "LogSoftmax", "Logsumexp"])


def trouble(passed: Followed, index: int) -> str:
    """What an operation with finite operands fails at: "of 0"; empty if it does not seem to.

    Asked only about operations from which NaN or infinity came.
    """
    node = passed.nodes[index]
    kind = kind_of(node)
    test = _TESTS.get(kind)
    if test is None:
        return ""
    given = passed.inputs(index).values()
    if any(
        math.isnan(seen.low) or not (kind in _TAKE_INFINITY or is_finite(seen)) for seen in given
    ):
        return ""
    if _is_too_large(passed, index):
        return ""
    if kind in _TAKE_INFINITY and not _is_masked(passed, index):
        return ""
    try:
        return test(node.saved)
    except KeyError:
        return ""


def _is_too_large(passed: Followed, index: int) -> bool:
    """Whether a gradient arrives that overflows in any operation."""
    came = passed.nodes[index].incoming
    return came is not None and math.isfinite(came) and came > _OVERFLOWING


def _is_masked(passed: Followed, index: int) -> bool:
    """Whether -inf comes to an operation on purpose, and nothing that has overflowed."""
    got = passed.input(index)
    if got is not None:
        return got.low == -math.inf and got.high != math.inf
    kinds = {kind_of(passed.nodes[below]) for below in passed.below(index)}
    constants = (*passed.trace.data.values(), *passed.trace.values.values())
    return bool(kinds & _MASKING) or any(seen.low == -math.inf for seen in constants)


_MASKING = frozenset(["MaskedFill", "Where", "IndexPut", "CopySlices"])


# Operations, as the program calls them, that can make NaN of finite values.
SPOILING = frozenset(
    """
    log log2 log10 log1p sqrt rsqrt div truediv rdiv rtruediv reciprocal pow acos asin atanh acosh
    std var mean softmax log_softmax sub exp fmod remainder norm normalize
    """.split()
) | {"index write"}


def forward_trouble(passed: Followed, index: int) -> str:
    """The same for an operation whose result itself is not finite; empty unless that is certain."""
    phrase, kind = trouble(passed, index), kind_of(passed.nodes[index])
    if not phrase:
        return ""
    gave = passed.output(index)
    if gave is not None:
        return "" if is_finite(gave) else phrase
    saved = passed.nodes[index].saved
    if kind in ("Acos", "Asin"):
        return phrase if "beyond" in phrase else ""
    if kind == "Div":
        return phrase if 0 in (saved["other"].low, saved["other"].high) else ""
    return phrase if kind in _FAIL_AT_ONCE else ""


_FAIL_AT_ONCE = frozenset(["Log", "Log2", "Log10", "Log1P", "Atanh", "Acosh", "Erfinv", "Logit"])
