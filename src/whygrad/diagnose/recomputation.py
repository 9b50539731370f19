"""Where the second run of a checkpointed block parts from the first, and what decides that."""

from __future__ import annotations

from dataclasses import dataclass

from whygrad.diagnose.case import Case, is_library
from whygrad.record.events import Again, Recomputed
from whygrad.record.ops import is_write
from whygrad.source.branches import (
    calls_between,
    changes,
    decision,
    function_lines,
    in_constructor,
    origin,
    state_read,
)
from whygrad.source.spans import Span

_MAX_COMPARED = 3_000
_UNSEEN = "Backward"  # custom Functions, which are recorded when their output is used
_SWITCHES = frozenset(["eval", "train", "requires_grad_", "half", "float", "double", "to"])


@dataclass(slots=True)
class First:
    """An operation of the first run."""

    node: int
    op: str
    site: int
    shape: tuple[int, ...] | None
    dtype: object


@dataclass(slots=True)
class Difference:
    """The first operation in which two runs differ; None where one of them had ended."""

    first: First | None
    second: Again | None
    place: Span | None  # of the operation, in the block
    decided: Span | None = None  # the condition, or the loop's head, before it
    changed: Span | None = None  # where the state is changed that it depends on
    between: bool = False  # that lies between the forward pass and backward()

    @property
    def same_operation(self) -> bool:
        return self.first is not None and self.second is not None and self.decided is None


def difference(case: Case, run: Recomputed, raised: Span | None = None) -> Difference | None:
    """What the record knows of both runs, compared; `raised` is where the second was refused."""
    before, after = _first_run(case, run), _second_run(run)
    for one, two in zip(before, after, strict=False):
        if (one.site, one.op) != (two.site, two.op):
            return _settled(case, run, one, two, same=False)
        if (one.shape, one.dtype) != (two.shape, two.dtype):
            return _settled(case, run, one, two, same=True)
    done = min(len(before), len(after))
    first = before[done] if done < len(before) else None
    second = after[done] if done < len(after) else None
    if second is None and not run.returned:
        # Where it was not refused, autograd had enough and stopped it.
        return _refused(case, first, raised) if raised is not None else None
    if first is None and second is None:
        return None
    return _settled(case, run, first, second, same=False)


def _first_run(case: Case, run: Recomputed) -> list[First]:
    """The operations of the block, up to the first one of those who called checkpoint()."""
    recording = case.places.recording
    call = recording.stacks[run.stack]
    callers = {recording.sites[site].code for site in call}
    found: list[First] = []
    node = max(run.first, recording.base)
    while len(found) < _MAX_COMPARED:
        event = recording.event(node)
        if event is None:
            break
        inside = event.site == call[0] if call else True
        if event.site >= 0 and not inside and recording.sites[event.site].code in callers:
            break
        node += 1
        if not event.op.endswith(_UNSEEN):
            found.append(First(node - 1, event.op, event.site, event.shape, event.dtype))
    return found


def _second_run(run: Recomputed) -> list[Again]:
    return run.operations[:_MAX_COMPARED]


def _refused(case: Case, one: First | None, raised: Span) -> Difference:
    place = case.places.node_span(one.node) if one is not None else None
    same = place is not None and place.first_line == raised.first_line
    decided = decision(place, raised) if same else None
    return Difference(one, None, raised, origin(decided) if decided is not None else None)


def written_in_place(case: Case, run: Recomputed, kept: Span) -> Span | None:
    """Where the first run of a block overwrote what was computed at a place."""
    values: set[int] = set()
    for operation in _first_run(case, run):
        place = case.places.node_span(operation.node)
        inputs = case.graph.inputs(operation.node)
        if place is not None and place.extent == kept.extent and place.file == kept.file:
            values.add(operation.node)
        elif is_write(operation.op) and values.intersection(inputs[:1]):
            return place
    return None


def _settled(
    case: Case, run: Recomputed, one: First | None, two: Again | None, same: bool
) -> Difference:
    inner = _own_spans(case, run, one, two)
    found = Difference(one, two, inner[0] or inner[1])
    if not same:
        decided = decision(*inner)
        found.decided = origin(decided) if decided is not None else None
    _find_change(case, run, found)
    return found


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
    names = state_read(where)
    between = lines_between(case, run)
    if between is not None:
        file, first, last = between
        moved = [s for s in changes(file, names, within=(first + 1, last - 1)) if s != where]
        if moved:
            found.changed, found.between = moved[-1], True
            return
    own = changes(where.file, names, within=function_lines(where))
    own = own or [s for s in changes(where.file, names) if _is_written_in_a_function(s)]
    others = [s for s in own if s.line != where.line]
    found.changed = others[0] if others else None


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
