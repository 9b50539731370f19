"""Parameters that took the place of those an optimizer still holds."""

from __future__ import annotations

from dataclasses import dataclass

from whygrad.diagnose import left as leaving
from whygrad.diagnose.case import Case
from whygrad.diagnose.left import Left
from whygrad.record.accounts import OptimizerUse, Registration
from whygrad.record.events import ParameterInfo
from whygrad.source.spans import Span
from whygrad.source.tree import callee_name

_COPYING = ("deepcopy", "copy", "clone", "load")


@dataclass(slots=True)
class Replacement:
    """New parameters, and the optimizer that holds the old ones."""

    optimizer: OptimizerUse
    old: list[int]
    new: list[ParameterInfo]
    places: list[Span]  # the lines that put the new ones in place, oldest first


def replacements(left: Left) -> list[Replacement]:
    """What was replaced behind the back of each optimizer that steps."""
    new = [info for info in left.infos if info.registered]
    if not new:
        return []
    found = []
    for optimizer in left.stepping:
        gone = _gone(left, optimizer, new)
        if gone:
            lately = _made_lately(left, new, gone)
        else:
            gone = _unused(left, optimizer)
            lately = _copies(left, new, gone)
        places = _places(left, lately)
        if gone and lately and places:
            found.append(Replacement(optimizer, gone, lately, places))
    return found


def replaced_targets(case: Case) -> set[int]:
    """Targets of a question that others have replaced, which train and which no optimizer holds.

    Nothing but first values leads from them to a root, if anything does. For questions about
    missing gradients, which come without an account of what happened.
    """
    others = [
        info
        for info in case.question.parameters
        if info.registered and info.has_grad and not info.in_optimizer
    ]
    if not others:
        return set()
    current = _behind(case, {info.node for info in others})
    left = [target for target in case.question.targets if target not in current]
    return {target for target in left if _has_successor(case, target, others)}


def _behind(case: Case, successors: set[int]) -> set[int]:
    """What the roots were computed from, and not what their parameters once got as values."""
    seen, waiting = set(case.question.roots), list(case.question.roots)
    while waiting:
        node = waiting.pop()
        for feeder in case.graph.inputs(node) if node not in successors else ():
            if feeder not in seen:
                seen.add(feeder)
                waiting.append(feeder)
    return seen


def _has_successor(case: Case, node: int, others: list[ParameterInfo]) -> bool:
    """Whether a module has lost it, or there is a copy of it in another one."""
    info, source = case.parameter(node), case.graph.source(node)
    if info is None or not info.registered:
        return source is not None and source.parameter
    own = info.name.rpartition(".")[2]
    return any(
        other.root != info.root
        and other.shape == info.shape
        and other.name.rpartition(".")[2] == own
        for other in others
    )


def _gone(left: Left, optimizer: OptimizerUse, new: list[ParameterInfo]) -> list[int]:
    """Held parameters that no module has any more and that no pass has reached lately."""
    known = {info.node: info for info in left.case.question.parameters}
    fresh = {info.node for info in new}
    began = min((act.order for act in left.passes if act.touched & fresh), default=0)
    lately = {node for act in left.passes if act.order >= began for node in act.touched}
    found = []
    for node in optimizer.nodes - lately:
        info, source = known.get(node), left.case.graph.source(node)
        loose = info is None or not (info.registered or info.kept_as)
        if loose and source is not None and source.parameter:
            found.append(node)
    return sorted(found, reverse=True)


def _unused(left: Left, optimizer: OptimizerUse) -> list[int]:
    """All that an optimizer holds, if no pass has reached any of it."""
    return sorted(optimizer.nodes) if not optimizer.nodes & set(left.touched) else []


def _made_lately(left: Left, new: list[ParameterInfo], gone: list[int]) -> list[ParameterInfo]:
    """Those that came after the optimizer, or at least after all that it lost."""
    registered = {n for entry in left.account.registrations for n in entry.nodes}
    late = [info for info in new if info.node in registered]
    # Sources count down: what was made later has a lower number.
    return late or [info for info in new if info.node < min(gone)]


def _copies(left: Left, new: list[ParameterInfo], old: list[int]) -> list[ParameterInfo]:
    """Copies of what an optimizer holds that are trained in place of the originals."""
    shapes = [left.case.shape(node) for node in old]
    found = []
    for info in new:
        spans = leaving.made_at(left.case, info.node)
        place = leaving.maker(spans, info.module_types)
        called = (callee_name(place) or "") if place is not None else ""
        copied = called.rpartition(".")[2].startswith(_COPYING)
        if copied and list(info.shape) in shapes and info.node < min(old):
            found.append(info)
    return found


def _places(left: Left, new: list[ParameterInfo]) -> list[Span]:
    """The lines that made or registered new parameters, each once, in their order."""
    # The first: a slice of a ModuleList registers the same ones again wherever it is taken. But
    # not what a new module registers while it is made.
    first: dict[int, Registration] = {}
    for entry in sorted(left.account.registrations, key=lambda entry: entry.built):
        for node in entry.nodes:
            first.setdefault(node, entry)
    found: dict[tuple[str, int], Span] = {}
    for info in sorted(new, key=lambda info: -info.node):
        found_at = first.get(info.node)
        if found_at is not None:
            spans = leaving.user_spans(left.case, found_at.stack)
        else:
            spans = leaving.made_at(left.case, info.node)
        place = leaving.maker(spans, info.module_types)
        if place is not None:
            found.setdefault((place.file, place.line), place)
    return list(found.values())
