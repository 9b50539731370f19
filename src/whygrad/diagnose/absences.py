"""A missing gradient behind an error of Python's own: `'NoneType' object has no attribute ...`.

Python says what could not be done with None. Which gradient that None is, and why it was not
there, the record tells: where `.grad` was read, of which tensor, and what became of that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from whygrad.graph.consumers import Consumers
from whygrad.graph.links import Linker
from whygrad.record.accounts import ClearUse, PassUse
from whygrad.record.events import Absent, Complaint
from whygrad.source.guards import asks_for_none
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, statement_at

if TYPE_CHECKING:
    from whygrad.diagnose.case import Case

AbsenceKind = Literal["result", "frozen", "not-asked", "no-pass", "cleared", "apart", "unused"]


@dataclass(slots=True)
class Absence:
    """The gradients that an error tripped over, and why they were None."""

    reads: list[Absent]
    kind: AbsenceKind
    cleared: int = 0  # the stack of what took them away


def find(case: Case) -> Absence | None:
    """What an error tripped over; None if it has nothing to do with gradients."""
    complaint = case.question.complaint
    reads = _tripped_over(case, complaint) if complaint is not None else []
    if not reads or complaint is None:
        return None
    kinds = [(read, *_kind(case, complaint, read)) for read in reads]
    _, kind, cleared = kinds[0]
    return Absence([read for read, other, _ in kinds if other == kind], kind, cleared)


def roots(case: Case, absence: Absence) -> tuple[int, ...]:
    """What the gradients should have come from."""
    return absence.reads[0].roots or tuple(case.question.root_stacks)


def awaits(case: Case, absence: Absence) -> bool:
    """Whether a loss of their own was computed that no backward() was called on."""
    if absence.kind != "apart" or absence.reads[0].call != ".grad":
        return False
    consumers, begun = Consumers(case.graph.recording), set(case.roots)
    ends = consumers.ends(read.node for read in absence.reads)
    return any(case.shape(end) == [] and end not in begun for end in ends)


def settle(case: Case, absence: Absence) -> Absence | None:
    """After a look for cuts: has anything used these tensors at all?"""
    if absence.kind != "apart" or case.separations or awaits(case, absence):
        return absence
    behind = case.graph.ancestors(case.roots)
    if any(read.node in behind for read in absence.reads):
        return None  # it had a gradient once, and what became of it was not seen
    if any(0 <= node < case.graph.recording.base for node in behind):
        return None
    consumers = Consumers(case.graph.recording)
    used = any(consumers.is_used(read.node) for read in absence.reads)
    absence.kind = "apart" if used else "unused"
    return absence


def _tripped_over(case: Case, complaint: Complaint) -> list[Absent]:
    """The reads, latest first, whose None flows into what could not be done."""
    spans = case.places.spans(complaint.stack)
    if not spans or not complaint.absent:
        return []
    linker = Linker(case.graph, case.places)
    found: list[Absent] = []
    for read in complaint.absent:
        if found:
            if read.stack == found[0].stack:
                found.append(read)
            continue
        places = case.places.spans(read.stack)
        if not places or asks_for_none(places[0]):
            continue
        if _is_part(spans[0], places[0]) or linker.leads_to(read.stack, spans):
            found.append(read)
    return found


def _is_part(whole: Span, part: Span) -> bool:
    """Whether one span lies in the expression at another."""
    if expression_at(whole) is None and statement_at(whole) is None:
        return False
    return (
        whole.file == part.file
        and whole.extent[:2] <= part.extent[:2]
        and part.extent[2:] <= whole.extent[2:]
    )


def _kind(case: Case, complaint: Complaint, read: Absent) -> tuple[AbsenceKind, int]:
    """Why a gradient was None, and the stack of what took it away, if something did."""
    if not read.leaf:
        return "result", 0
    if not read.requires_grad:
        source = case.graph.source(read.node)
        frozen = source is not None and (source.parameter or bool(source.flag_stack))
        return ("frozen" if frozen else "not-asked"), 0
    if read.call == "grad":
        return "apart", 0
    if not case.question.root_stacks:
        return "no-pass", 0
    reached, cleared = _clearing(complaint, read.node)
    return ("cleared", cleared) if reached and cleared else ("apart", 0)


def _clearing(complaint: Complaint, node: int) -> tuple[bool, int]:
    """Whether a pass had given a tensor a gradient, and what took that away after."""
    history, cleared = complaint.history, 0
    for act in reversed(history.account.acts if history is not None else []):
        if isinstance(act, ClearUse):
            cleared = act.stack or cleared
        elif isinstance(act, PassUse) and node in act.touched:
            return True, cleared
    return False, 0
