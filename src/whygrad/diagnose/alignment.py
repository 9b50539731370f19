"""The two runs of a checkpointed block side by side: operations by name and place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from whygrad.diagnose.case import Case
from whygrad.record.events import Again, Recomputed

_MAX_COMPARED = 3_000
_MAX_MATCHED = 500  # behind the point where they part: matching is quadratic
_UNSEEN = "Backward"  # custom Functions, which are recorded when their output is used

_Key = tuple[str, int]


@dataclass(slots=True)
class First:
    """An operation of the first run."""

    node: int
    op: str
    site: int
    shape: tuple[int, ...] | None
    dtype: object


@dataclass(slots=True)
class Pair:
    """One operation in both runs, or the point from which on they do different things."""

    one: First | None  # None where the run had ended
    two: Again | None
    same: bool
    only: int = 0  # 1 or 2 where the operation is in that run alone

    @property
    def differs(self) -> bool:
        one, two = self.one, self.two
        assert one is not None and two is not None
        return (one.shape, one.dtype) != (two.shape, two.dtype)


def aligned(case: Case, run: Recomputed) -> Iterator[Pair]:
    """The operations that both runs have in common, and where they part in between."""
    before, after = first_run(case, run), run.operations[:_MAX_COMPARED]
    keys = _keys(case, run, before, after)
    done = 0
    while done < min(len(before), len(after)) and keys[0][done] == keys[1][done]:
        yield Pair(before[done], after[done], same=True)
        done += 1
    before, after = before[done:], after[done:]
    rest = [half[done : done + _MAX_MATCHED] for half in keys]
    matcher = SequenceMatcher(None, rest[0], rest[1], autojunk=False)
    for tag, i, last, j, _ in matcher.get_opcodes():
        if tag == "equal":
            for one, two in zip(before[i:last], after[j:], strict=False):
                yield Pair(one, two, same=True)
            continue
        first = before[i] if i < len(before) else None
        second = after[j] if j < len(after) else None
        alone = (tag == "delete" and keys[0][done + i] not in keys[1]) or (
            tag == "insert" and keys[1][done + j] not in keys[0]
        )
        yield Pair(first, second, same=False, only=(1 if tag == "delete" else 2) if alone else 0)


def first_run(case: Case, run: Recomputed) -> list[First]:
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


def _keys(
    case: Case, run: Recomputed, before: list[First], after: list[Again]
) -> tuple[list[_Key], list[_Key]]:
    """What an operation of a library's module has for a site is its caller, which is another."""
    stacks = case.places.recording.stacks
    call, back = stacks[run.stack][:1], stacks[run.outer][:1]
    return (
        [(o.op, -1 if o.site in call else o.site) for o in before],
        [(o.op, -1 if o.site in back else o.site) for o in after],
    )
