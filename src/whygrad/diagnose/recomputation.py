"""Where the second run of a checkpointed block parts from the first, and what decides that."""

from __future__ import annotations

from dataclasses import dataclass

from whygrad.diagnose.alignment import First, Pair, aligned, first_run
from whygrad.diagnose.case import Case, is_library
from whygrad.record.events import Again, Recomputed
from whygrad.record.ops import is_write
from whygrad.source.branches import (
    calls_between,
    changes,
    conditions_around,
    decision,
    function_lines,
    in_constructor,
    origin,
    state_behind,
)
from whygrad.source.spans import Span
from whygrad.source.tree import decorator_span

_SWITCHES = frozenset(["eval", "train", "requires_grad_", "half", "float", "double", "to"])
_MEMORIES = {"cache", "lru_cache", "functools.cache", "functools.lru_cache"}


@dataclass(slots=True)
class Difference:
    """The first operation in which two runs differ; None where one of them had ended."""

    first: First | None
    second: Again | None
    place: Span | None  # of the operation, in the block
    same: bool = False  # it is one operation, which gave something else the second time
    only: int = 0  # 1 or 2 where the operation is in that run alone
    decided: Span | None = None  # the condition, or the loop's head, before it
    remembered: bool = False  # that is a decorator which keeps results, and no condition
    read: Span | None = None  # where the operation's function reads what is changed
    changed: Span | None = None  # where the state is changed that it depends on
    between: bool = False  # that lies between the forward pass and backward()
    then: Pair | None = None  # an operation of both runs that gave something else after it

    @property
    def where(self) -> Span | None:
        """The line that behaves differently."""
        return self.decided or self.read or self.place


def difference(case: Case, run: Recomputed, raised: Span | None = None) -> Difference | None:
    """What the record knows of both runs, compared; `raised` is where the second was refused."""
    found: Difference | None = None
    for pair in aligned(case, run):
        if pair.same and not pair.differs:
            continue
        if found is not None:
            # Nothing decides about the operation before: what it changed is told with it.
            if pair.same:
                found.then = pair
                break
            continue
        if pair.two is None and not run.returned:
            # Where it was not refused, autograd had enough and stopped it.
            return _refused(case, pair.one, raised) if raised is not None else None
        found = _settled(case, run, pair)
        if pair.same or found.decided is not None:
            break
    if found is None and raised is not None and not run.returned:
        return _refused(case, None, raised)
    return found


def _refused(case: Case, one: First | None, raised: Span) -> Difference:
    place = case.places.node_span(one.node) if one is not None else None
    same = place is not None and place.first_line == raised.first_line
    decided = decision(place, raised) if same else None
    found = Difference(one, None, raised)
    found.decided = origin(decided) if decided is not None else None
    return found


def written_in_place(case: Case, run: Recomputed, kept: Span) -> Span | None:
    """Where the first run of a block overwrote what was computed at a place."""
    values: set[int] = set()
    for operation in first_run(case, run):
        place = case.places.node_span(operation.node)
        inputs = case.graph.inputs(operation.node)
        if place is not None and place.extent == kept.extent and place.file == kept.file:
            values.add(operation.node)
        elif is_write(operation.op) and values.intersection(inputs[:1]):
            return place
    return None


def _settled(case: Case, run: Recomputed, pair: Pair) -> Difference:
    inner = _own_spans(case, run, pair.one, pair.two)
    found = Difference(pair.one, pair.two, inner[0] or inner[1], pair.same, pair.only)
    if not pair.same:
        decided = decision(*inner)
        if decided is not None:
            found.decided = origin(decided)
        else:
            found.decided, found.remembered = _deeper(case, run, pair)
    _find_change(case, run, found)
    return found


def _deeper(case: Case, run: Recomputed, pair: Pair) -> tuple[Span | None, bool]:
    """What decides in a function that both runs may have called, and only one did something in.

    With it, whether that is a decorator by which the function is run once.
    """
    if pair.one is None or pair.two is None:
        return None, False
    first = _inside(case.places.node_spans(pair.one.node), case.places.spans(run.stack))
    second = _inside(case.places.spans(pair.two.stack), case.places.spans(run.outer))
    sides = {1: [(first, second)], 2: [(second, first)]}
    for spans, others in sides.get(pair.only, [(first, second), (second, first)]):
        known = {(span.file, span.first_line) for span in others}
        deeper = [s for s in spans if (s.file, s.first_line) not in known]
        for span in reversed([s for s in deeper if not is_library(s.file)]):
            memory = decorator_span(span.file, span.first_line, _MEMORIES)
            decided = memory or _condition(span)
            if decided is not None:
                return decided, memory is not None
    return None, False


def _condition(span: Span) -> Span | None:
    """The condition that led to a place: one about something that is changed, if there is."""
    around = conditions_around(span)
    for condition in around:
        if _changes(condition):
            return origin(condition)
    return origin(around[0]) if len(around) == 1 else None


def _changes(condition: Span) -> list[Span]:
    """Where a file changes, outside of constructors, what a place depends on."""
    names = set(state_behind(condition))
    return [s for s in changes(condition.file, names) if _is_written_in_a_function(s)]


def _own_spans(
    case: Case, run: Recomputed, one: First | None, two: Again | None
) -> tuple[Span | None, Span | None]:
    """The places of both operations in the innermost function that both runs were in."""
    first = case.places.node_spans(one.node) if one is not None else ()
    first = _inside(first, case.places.spans(run.stack))
    second = case.places.spans(two.stack) if two is not None else ()
    second = _inside(second, case.places.spans(run.outer))
    if not first or not second:
        spans = first or second
        own = [span for span in spans if not is_library(span.file)] or list(spans)
        if not own:
            return None, None
        # The run that ended was back in the outermost function of the block.
        return (own[-1], None) if first else (None, own[-1])
    for outer_one, outer_two in zip(reversed(first), reversed(second), strict=False):
        if (outer_one.file, outer_one.first_line) != (outer_two.file, outer_two.first_line):
            break
        if outer_one.extent != outer_two.extent:
            return outer_one, outer_two
    return first[0], second[0]


def _inside(spans: tuple[Span, ...], outer: tuple[Span, ...]) -> tuple[Span, ...]:
    """The spans of a stack without those of its callers."""
    count = 0
    for span, other in zip(reversed(spans), reversed(outer), strict=False):
        if span.file != other.file or span.first_line != other.first_line:
            break
        count += 1
    return spans[: len(spans) - count]


def _find_change(case: Case, run: Recomputed, found: Difference) -> None:
    """Where the state is changed on which the difference depends."""
    where = found.decided or found.place
    if where is None:
        return
    state = state_behind(where)
    between = lines_between(case, run)
    if between is not None:
        file, first, last = between
        moved = [s for s in changes(file, set(state), within=(first + 1, last - 1)) if s != where]
        if moved:
            found.changed, found.between = moved[-1], True
            return
    for name, read in state.items():
        own = changes(where.file, {name}, within=function_lines(where))
        own = own or [s for s in changes(where.file, {name}) if _is_written_in_a_function(s)]
        others = [s for s in own if s.line != read.line]
        if others:
            found.changed = others[0]
            found.read = read if read.line != where.line and found.decided is None else None
            return


def _is_written_in_a_function(span: Span) -> bool:
    return span.function != "<module>" and not in_constructor(span)


def lines_between(case: Case, run: Recomputed) -> tuple[str, int, int] | None:
    """File and lines of the forward pass and of backward(), where one function does both."""
    for back in case.places.spans(run.outer):
        for forth in case.places.spans(run.stack):
            same = (back.file, back.first_line) == (forth.file, forth.first_line)
            if same and forth.line < back.line:
                return back.file, forth.line, back.line
    return None


def switched(case: Case, run: Recomputed) -> Span | None:
    """A call between forward and backward that changes how modules work: model.eval()."""
    between = lines_between(case, run)
    found = calls_between(*between, _SWITCHES) if between is not None else []
    return found[-1] if found else None
