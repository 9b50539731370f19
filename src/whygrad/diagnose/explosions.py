"""Gradients that grow: from step to step, or along one backward pass."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

from whygrad.diagnose import poisons, values
from whygrad.diagnose.case import Case
from whygrad.graph.tracing import Followed
from whygrad.record.accounts import Sizes
from whygrad.source.spans import Span

_HUGE = 1e8  # no healthy gradient of a loss in sane units, and on its way up
_LOOKS = 3
_GROWTH = 1e4  # over the looks in a row, until it overflows
_VISITS = 3  # of one line in one pass: a loop
_ALONG = 1e6  # growth along a pass that is worth a word
_DOMINANT = 0.6


@dataclass(slots=True)
class Growth:
    """Finite looks in a row, each larger than the one before, up to the last finite one."""

    looks: list[Sizes]
    overflow: Sizes | None  # the look at which it was no longer finite

    @property
    def factor(self) -> float:
        first = self.looks[0].gradient or 0.0
        return (self.looks[-1].gradient or 0.0) / first if first else math.inf


@dataclass(slots=True)
class Loop:
    """A line that one pass visits again and again, growing the gradient each time."""

    where: Span
    op: str
    visits: int
    factor: float  # in all


def find(case: Case) -> Growth | None:
    """Growth over steps that led to overflow, or is about to."""
    account = case.question.account
    if account is None or account.scaled:
        return None
    growth = _growth(case.question.sizes)
    if growth is None:
        return None
    last = growth.looks[-1].gradient or 0.0
    if growth.overflow is None:
        grown = len(growth.looks) > _LOOKS and growth.factor >= _GROWTH
        return growth if grown and last >= _HUGE else None
    grown = len(growth.looks) >= _LOOKS and growth.factor >= _GROWTH
    if not grown and last < _HUGE:
        return None
    poison = None if grown and last >= _HUGE else poisons.find(case)
    return None if poison is not None and poison.is_clear else growth


def _growth(sizes: list[Sizes]) -> Growth | None:
    looks = [look for look in sizes if look.gradient is not None]
    finite = [look for look in looks if _is_finite(look)]
    bad = next((look for look in looks if not _is_finite(look)), None)
    if bad is not None:
        finite = looks[: looks.index(bad)]
    if not finite:
        return None
    start = len(finite) - 1
    for at, (before, after) in reversed(list(enumerate(pairwise(finite)))):
        if (before.gradient or 0) >= (after.gradient or 0):
            break
        start = at
    return Growth(finite[start:], bad)


def _is_finite(look: Sizes) -> bool:
    numbers = [n for n in (look.gradient, look.loss) if n is not None]
    return all(math.isfinite(number) for number in numbers)


def loop(case: Case) -> Loop | None:
    """The line that makes the gradient grow within one pass, if there is one."""
    for trace in reversed(case.question.traces):
        found = _loop(case, Followed(trace)) if trace.nodes else None
        if found is not None:
            return found
    return None


def _loop(case: Case, passed: Followed) -> Loop | None:
    grown: dict[tuple[str, int], float] = defaultdict(float)
    visits: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    places: dict[tuple[str, int], tuple[Span, str]] = {}
    for node in passed.nodes:
        sent = [size for size in node.outgoing if size is not None and math.isfinite(size)]
        came = node.incoming
        if not came or not math.isfinite(came) or not sent or max(sent) <= 0:
            continue
        where = values.place_of(case, node)
        if where is not None:
            key = where.file, where.line
            grown[key] += math.log(max(sent)) - math.log(came)
            visits[key][node.function] += 1
            places.setdefault(key, (where, values.spoken(case, node)))
    upward = sum(total for total in grown.values() if total > 0)
    if not upward:
        return None
    key = max(grown, key=lambda key: grown[key])
    total, times = grown[key], max(visits[key].values())
    if times < _VISITS or total < math.log(_ALONG) or total < _DOMINANT * upward:
        return None
    where, op = places[key]
    return Loop(where, op, times, math.exp(min(total, 700.0)))
