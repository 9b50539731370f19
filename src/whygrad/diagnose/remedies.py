"""What to do about operations that fail for some values. Data: operation -> advice."""

from __future__ import annotations

from whygrad.diagnose.poisons import Poison
from whygrad.graph.tracing import kind_of
from whygrad.session import Fix

_ROOT = (
    "keep its input above zero, with the eps inside: `torch.sqrt(x + eps)`; for a length use "
    "`torch.linalg.vector_norm`, which has gradient 0 at 0"
)
_LOG = "keep its input above zero: `torch.log(x.clamp(min=eps))`"
_DIVISOR = "keep the divisor away from zero: `x / (y + eps)`, or `y.clamp(min=eps)`"
_INSIDE = "keep its input just inside: `x.clamp(-1 + eps, 1 - eps)`"
_SHIFT = "keep its input small: subtract the maximum first, or use logsumexp or softplus"
_ROW = (
    "keep at least one entry of every row unmasked, or mask with a large negative number instead "
    "of -inf"
)
_ADVICE = {
    **dict.fromkeys(("sqrt", "hypot"), _ROOT),
    **dict.fromkeys(("log", "log2", "log10", "log1p", "xlogy", "logit"), _LOG),
    **dict.fromkeys(("div", "truediv", "reciprocal", "rsqrt", "addcdiv"), _DIVISOR),
    **dict.fromkeys(("acos", "asin", "arccos", "atanh", "erfinv"), _INSIDE),
    **dict.fromkeys(("exp", "exp2", "expm1", "cosh", "sinh"), _SHIFT),
    **dict.fromkeys(("softmax", "logsoftmax", "logsumexp"), _ROW),
    **dict.fromkeys(
        ("std", "var", "stdmean", "varmean"),
        "give it at least two values: check the dimension, or pass `correction=0`",
    ),
    "pow": "keep its base above zero, with the eps inside: `(x + eps) ** p`",
    "mean": "check that something is left before the mean is taken",
    "nllloss": "skip batches in which every label is ignored",
}
_TOGETHER = {
    "softmax": "take logarithm and softmax in one operation: log_softmax, or cross_entropy on the "
    "scores",
    "sigmoid": "take logarithm and sigmoid in one operation: logsigmoid, or "
    "binary_cross_entropy_with_logits on the scores",
}
_GENERAL = "keep the values that come to this operation away from where it fails"


def for_operation(op: str, before: str = "") -> str:
    """Advice for an operation, by its name and that of the operation before it."""
    if op.strip("`").lower().startswith("log") and before.lower() in _TOGETHER:
        return _TOGETHER[before.lower()]
    return _ADVICE.get(op.strip("`").replace("_", "").lower(), _GENERAL)


def for_poison(poison: Poison) -> Fix:
    title = for_operation(poison.kind, _before(poison))
    if poison.began == "data":
        title = "clean the data before it is used: `torch.isnan(x).any()` shows where it is"
    elif poison.passed is not None and "Where" in poison.passed.kinds_above(poison.at):
        title = (
            "make the value safe before the operation, too: `torch.where(ok, x, 1.0)` inside as "
            "well as outside"
        )
    return Fix(
        title=title,
        safety="changes forward values only where they would fail",
        deliberate="if the program finds such steps and skips them itself, silence this line.",
    )


def _before(poison: Poison) -> str:
    """The kind of the operation whose result comes in."""
    if poison.passed is None or poison.at < 0:
        return ""
    feeds = [fed for fed in poison.passed.nodes[poison.at].feeds if fed >= 0]
    return kind_of(poison.passed.nodes[feeds[0]]) if feeds else ""
