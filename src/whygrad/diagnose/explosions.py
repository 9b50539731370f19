"""Gradients that grow: from step to step, or along one backward pass."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Literal

from whygrad.diagnose import poisons, values
from whygrad.diagnose.case import Case
from whygrad.graph.tracing import Followed, kind_of
from whygrad.record.accounts import Sizes
from whygrad.source.spans import Span

_HUGE = 1e8  # for a gradient that has been growing: no sane unit explains it
_HUGE_LOSS = 1e12
_FAR = 1e8  # times the first loss
_LOOKS = 3
_GROWTH = 1e4  # over the looks in a row
_VISITS = 3  # of one line in one pass: a loop
_ALONG = 1e6  # growth along a pass that is worth a word
_DOMINANT = 0.6
_PRODUCTS = frozenset(["Mm", "Addmm", "Bmm", "Baddbmm", "Mul", "Mv", "Convolution"])


@dataclass(slots=True)
class Growth:
    """Looks in a row, each larger than the one before, up to the last finite one."""

    what: Literal["gradient", "loss"]
    looks: list[tuple[int, float]]  # step, size
    overflow: int | None  # the step at which it was no longer finite

    @property
    def factor(self) -> float:
        first = self.looks[0][1]
        return self.looks[-1][1] / first if first else math.inf

    @property
    def is_long(self) -> bool:
        return len(self.looks) >= _LOOKS and self.factor >= _GROWTH

    @property
    def is_huge(self) -> bool:
        return self.looks[-1][1] >= (_HUGE if self.what == "gradient" else _HUGE_LOSS)


@dataclass(slots=True)
class Loop:
    """A line that one pass visits again and again, growing the gradient each time."""

    where: Span
    op: str
    visits: int
    factor: float | None  # in all, if it was measured


def find(case: Case) -> Growth | None:
    """Growth over steps that led to overflow, or is about to."""
    account, sizes = case.question.account, case.question.sizes
    if account is None or account.scaled:
        return None
    for growth in (_growth(sizes, "gradient"), _growth(sizes, "loss")):
        if growth is not None and _explodes(case, growth):
            return growth
    return _blown_up(sizes)


def _explodes(case: Case, growth: Growth) -> bool:
    if growth.is_long and growth.is_huge:
        return True
    # A single gradient of that size can be all that comes before the overflow.
    alone = growth.is_huge and growth.what == "gradient"
    if growth.overflow is None or not (growth.is_long or alone):
        return False
    poison = poisons.find(case)
    return poison is None or not poison.is_clear


def _blown_up(sizes: list[Sizes]) -> Growth | None:
    """A loss that was thrown far up and has not come back."""
    losses = [(look.step, abs(look.loss)) for look in sizes if look.loss is not None]
    if len(losses) < _LOOKS or not all(math.isfinite(loss) for _, loss in losses):
        return None
    first, last, peak = losses[0], losses[-1], max(losses, key=lambda look: look[1])
    if last[1] < _HUGE_LOSS or last[1] < _FAR * max(first[1], 1.0):
        return None
    return Growth("loss", [first, peak], None)


def _growth(sizes: list[Sizes], what: Literal["gradient", "loss"]) -> Growth | None:
    finite: list[tuple[int, float]] = []
    overflow = None
    for look in sizes:
        size = look.gradient if what == "gradient" else look.loss
        if any(n is not None and not math.isfinite(n) for n in (look.gradient, look.loss)):
            overflow = look.step
            break
        if size is not None:
            finite.append((look.step, abs(size)))
    if not finite:
        return None
    start = len(finite) - 1
    while start and finite[start - 1][1] < finite[start][1]:
        start -= 1
    return Growth(what, finite[start:], overflow)


def loop(case: Case, growth: Growth) -> Loop | None:
    """The line that makes the gradient grow within one pass, if there is one."""
    passes = [Followed(trace) for trace in reversed(case.question.traces) if trace.nodes]
    measured = next(filter(None, (_loop(case, passed) for passed in passes)), None)
    if measured is not None or growth.is_long or not passes:
        return measured
    # It is too large from the first step on, so it is within the pass that it grows.
    return _longest(case, passes[-1])


def _longest(case: Case, passed: Followed) -> Loop | None:
    """The line at which more products are chained than anywhere else."""
    visits: Counter[tuple[str, int]] = Counter()
    places: dict[tuple[str, int], tuple[Span, str]] = {}
    for node in passed.nodes:
        chained = any(fed >= 0 and not _is_weight(passed, fed) for fed in node.feeds)
        where = values.place_of(case, node) if kind_of(node) in _PRODUCTS and chained else None
        if where is not None:
            key = where.file, where.line
            visits[key] += 1
            places.setdefault(key, (where, values.spoken(case, node)))
    most = visits.most_common(2)
    if not most or most[0][1] < _VISITS or (len(most) > 1 and most[1][1] * 2 > most[0][1]):
        return None
    key, times = most[0]
    return Loop(*places[key], times, None)


def _is_weight(passed: Followed, index: int) -> bool:
    """A leaf, or a view of one."""
    while passed.nodes[index].leaf is None:
        node = passed.nodes[index]
        if kind_of(node) not in ("T", "Transpose", "Permute") or node.feeds[0] < 0:
            return False
        index = node.feeds[0]
    return True


def _loop(case: Case, passed: Followed) -> Loop | None:
    grown: dict[tuple[str, int], float] = defaultdict(float)
    visits: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    parts: dict[tuple[str, int], dict[tuple[Span, str], float]] = defaultdict(
        lambda: defaultdict(float)
    )
    for node in passed.nodes:
        sent = [size for size in node.outgoing if size is not None and math.isfinite(size)]
        came = node.incoming
        if not came or not math.isfinite(came) or not sent or max(sent) <= 0:
            continue
        where = values.place_of(case, node)
        if where is not None:
            key = where.file, where.line
            growth = math.log(max(sent)) - math.log(came)
            grown[key] += growth
            visits[key][node.function] += 1
            parts[key][where, values.spoken(case, node)] += growth
    upward = sum(total for total in grown.values() if total > 0)
    if not upward:
        return None
    key = max(grown, key=lambda key: grown[key])
    total, times = grown[key], max(visits[key].values())
    if times < _VISITS or total < math.log(_ALONG) or total < _DOMINANT * upward:
        return None
    where, op = max(parts[key], key=lambda part: parts[key][part])
    return Loop(where, op, times, math.exp(min(total, 700.0)))
