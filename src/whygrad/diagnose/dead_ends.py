"""Parameters whose gradient is always zero, by the operation at which it dies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from whygrad.diagnose import values
from whygrad.diagnose.case import Case
from whygrad.diagnose.flat_operations import (
    LIMITS,
    OVERWRITES,
    RELUS,
    ROUNDED_DIVISIONS,
    is_flat,
    is_penalty,
    shares_alone,
)
from whygrad.graph.tracing import STEPS, Death, Followed, is_zero, kind_of
from whygrad.record.accounts import TraceNode
from whygrad.record.events import ParameterInfo
from whygrad.source.spans import Span

STEP, SATURATED, RELU, INIT = "zero-gradient-op", "saturated", "dead-relu", "dead-init"
_FOLLOWS = ""  # a factor is zero because gradient's end elsewhere made it so
_PRIORITY = {STEP: 0, SATURATED: 1, RELU: 2, INIT: 3, _FOLLOWS: 4}
_LOOKS = 3  # a factor that starts at zero leaves its partner without gradient once
_FEW = 32  # values of which all can be on one side by chance


@dataclass(slots=True)
class Cause:
    """Why gradient ends at an operation."""

    code: str
    culprits: frozenset[int] = frozenset()  # for dead-init: the parameters that are all zero


@dataclass(slots=True)
class DeadEnd:
    """An operation at which gradient ends, with everything that gets none because of it."""

    code: str
    passed: Followed
    death: Death
    where: Span
    nodes: list[int] = field(default_factory=list)  # parameters
    further: set[Death] = field(default_factory=set)  # where other ways of theirs end
    culprits: set[int] = field(default_factory=set)
    late: bool = False  # may still change: be sure only at the end

    @property
    def node(self) -> TraceNode:
        return self.passed.nodes[self.death.at]

    @property
    def kind(self) -> str:
        return kind_of(self.node)

    def is_custom(self, case: Case) -> bool:
        """Whether it is the program's own backward() that gives only zeros."""
        return _is_custom(case, self.node)


def dead_ends(case: Case, code: str) -> list[DeadEnd]:
    """The dead ends of one kind; each parameter belongs to one dead end of one kind at most."""
    if case.question.kind != "health" or case.question.account is None:
        return []
    search = _Search(case)
    return [end for end in search.found() if end.code == code] if search.stuck else []


class _Search:
    def __init__(self, case: Case) -> None:
        self.case = case
        question = case.question
        written = question.account.written if question.account is not None else frozenset()
        self.stuck: dict[int, ParameterInfo] = {
            info.node: info
            for info in question.parameters
            if info.gradient == "zero"
            and info.requires_grad
            and info.looks >= _LOOKS
            and (info.in_optimizer or info.node in written)
        }
        self.flowing = {i.node for i in question.parameters if i.gradient == "flows"}
        self.passes = [Followed(trace) for trace in question.traces if trace.whole]
        self._known: dict[tuple[int, frozenset[Death]], dict[Death, Cause]] = {}

    def found(self) -> list[DeadEnd]:
        direct: dict[int, tuple[Followed, dict[Death, Cause]]] = {}
        following: dict[int, tuple[Followed, dict[Death, Cause]]] = {}
        for leaf in self.stuck:
            passed, causes = self._explained(leaf)
            if passed is None:
                continue
            only_follows = all(cause.code == _FOLLOWS for cause in causes.values())
            (following if only_follows else direct)[leaf] = passed, causes
        ends: dict[tuple[str, Span | int], DeadEnd] = {}
        for leaf, (passed, causes) in direct.items():
            self._add(ends, leaf, passed, causes)
        for leaf, (passed, causes) in following.items():
            self._attach(ends, leaf, passed, causes)
        return _merged_inits([end for end in ends.values() if end.nodes])

    # --- one parameter ------------------------------------------------------------------------

    def _explained(self, leaf: int) -> tuple[Followed | None, dict[Death, Cause]]:
        """The latest pass to a parameter and why each way to it ends; None if that is open."""
        mine = [passed for passed in self.passes if leaf in passed.leaves]
        causes: dict[Death, Cause] = {}
        for passed in mine:
            deaths = passed.deaths(leaf)
            causes = self._causes(passed, deaths) if deaths is not None else {}
            if not causes or any(c.culprits and c.culprits <= {leaf} for c in causes.values()):
                return None, {}
        return (mine[-1], causes) if mine else (None, {})

    # --- one death ----------------------------------------------------------------------------

    def _causes(self, passed: Followed, deaths: frozenset[Death]) -> dict[Death, Cause]:
        """Why gradient ends at each of these, most telling first; empty if one of them is open.

        Parameters by the hundred share the same deaths.
        """
        key = id(passed), deaths
        if key not in self._known:
            self._known[key] = self._find_causes(passed, deaths)
        return self._known[key]

    def _find_causes(self, passed: Followed, deaths: frozenset[Death]) -> dict[Death, Cause]:
        content = is_zero(passed.loss())  # a loss of zero has all it wants
        found: list[tuple[Death, Cause]] = []
        for death in deaths:
            cause = self._find_cause(passed, death)
            if cause is None or (content and not shares_alone(passed, death.at)):
                return {}
            found.append((death, cause))
        return dict(sorted(found, key=lambda entry: (_PRIORITY[entry[1].code], entry[0])))

    def _find_cause(self, passed: Followed, death: Death) -> Cause | None:
        node = passed.nodes[death.at]
        kind = kind_of(node)
        if kind in STEPS or node.function in ROUNDED_DIVISIONS:
            return Cause(STEP)
        if kind in OVERWRITES:
            return Cause(STEP) if death.place == 0 else None
        if kind in RELUS or self._is_relu6(node):
            return None if is_penalty(self.case, passed, death.at) else self._relu(passed, death)
        if kind in LIMITS:
            alone = sum(fed >= 0 for fed in node.feeds) == 1
            stuck = alone and self._is_final(passed, death)
            return (
                Cause(SATURATED) if stuck and not is_penalty(self.case, passed, death.at) else None
            )
        if is_flat(passed, death.at):
            return Cause(SATURATED)
        if _is_custom(self.case, node):
            return Cause(STEP)
        return self._zero_factor(passed, death)

    def _is_relu6(self, node: TraceNode) -> bool:
        event = self.case.graph.event(node.event) if node.event is not None else None
        seen = node.saved.get("self")
        return event is not None and event.op == "relu6" and seen is not None and seen.high <= 0

    def _relu(self, passed: Followed, death: Death) -> Cause | None:
        node = passed.nodes[death.at]
        gave = node.saved.get("result")
        if gave is not None and gave.high > 0:
            return None  # some of it is alive, and what matters there is zero for other reasons
        zeros = passed.zero_because(node.feeds[0])
        return Cause(RELU) if zeros is None else self._init(zeros)

    def _zero_factor(self, passed: Followed, death: Death) -> Cause | None:
        factor = passed.factor(death)
        if factor is None:
            return None
        zeros = passed.zero_because(factor)
        if zeros is not None:
            return self._init(zeros)
        known = passed.output(factor)
        return Cause(_FOLLOWS) if known is None or is_zero(known) else None

    def _init(self, zeros: frozenset[int]) -> Cause | None:
        """Zeros that no gradient comes to stay; others are only a start."""
        return Cause(INIT, zeros) if zeros <= self.stuck.keys() else None

    def _is_final(self, passed: Followed, death: Death) -> bool:
        """Whether nothing that trains has a say in the values at an operation."""
        return not (passed.leaves_below(death.at) & self.flowing)

    # --- putting parameters together ----------------------------------------------------------

    def _add(
        self,
        ends: dict[tuple[str, Span | int], DeadEnd],
        leaf: int,
        passed: Followed,
        causes: dict[Death, Cause],
    ) -> None:
        deaths = list(causes)
        first = deaths[0]
        cause = causes[first]
        for death in deaths:
            if causes[death].code == _FOLLOWS and not self._comes_from(passed, death, causes):
                return
        where = values.place_of(self.case, passed.nodes[first.at])
        if where is None:
            return
        in_part = cause.code in (SATURATED, RELU)  # flat for some values only
        moving = in_part and not self._is_final(passed, first)
        if moving and self._siblings_flow(leaf):
            return
        late = moving or (in_part and self._may_be_chance(passed, first))
        # What a custom backward gives may hang on numbers that change: a weight that is zero yet.
        late = late or _is_custom(self.case, passed.nodes[first.at])
        end = ends.setdefault((cause.code, where), DeadEnd(cause.code, passed, first, where))
        end.nodes.append(leaf)
        end.culprits |= cause.culprits
        end.late = end.late or late
        end.further.update(d for d in deaths if causes[d].code != _FOLLOWS and d != end.death)

    def _attach(
        self,
        ends: dict[tuple[str, Span | int], DeadEnd],
        leaf: int,
        passed: Followed,
        causes: dict[Death, Cause],
    ) -> None:
        """A parameter that is multiplied with what a dead end gives suffers from it as well."""
        for end in ends.values():
            if end.passed is passed and all(
                self._comes_from(passed, death, [end.death]) for death in causes
            ):
                end.nodes.append(leaf)
                return

    def _comes_from(self, passed: Followed, death: Death, sources: Iterable[Death]) -> bool:
        factor = passed.factor(death)
        below = passed.below(factor) if factor is not None else set()
        return any(source.at in below for source in sources if source != death)

    def _may_be_chance(self, passed: Followed, death: Death) -> bool:
        """Whether few values were seen, and other data may bring others."""
        node, graph = passed.nodes[death.at], self.case.graph
        seen = next(iter(node.saved.values()), None)
        if seen is None or seen.size >= _FEW or node.event is None:
            return False
        if shares_alone(passed, death.at):
            return False
        starts = (n for n in graph.ancestors([node.event]) if not graph.inputs(n))
        return not all(graph.trainable_leaf(n) for n in starts)

    def _siblings_flow(self, leaf: int) -> bool:
        """Whether all else that its module has gets gradient."""
        mine = self.stuck[leaf]
        siblings = [
            info
            for info in self.case.question.parameters
            if (info.root, info.module) == (mine.root, mine.module) and info.node != leaf
        ]
        return bool(siblings) and all(info.gradient == "flows" for info in siblings)


def _is_custom(case: Case, node: TraceNode) -> bool:
    event = case.graph.event(node.event) if node.event is not None else None
    # An operation next to a custom Function can pass for the same call: its name tells.
    named = event is not None and kind_of(node) == event.op
    return named and values.is_custom(case, node.event)


def _merged_inits(ends: list[DeadEnd]) -> list[DeadEnd]:
    """Zeros that keep each other in place are one finding, wherever they meet."""
    merged: list[DeadEnd] = []
    for end in ends:
        if end.code != INIT:
            merged.append(end)
            continue
        mine = {*end.nodes, *end.culprits}
        met = [m for m in merged if m.code == INIT and mine & {*m.nodes, *m.culprits}]
        if not met:
            merged.append(end)
            continue
        first = met[0]
        for other in (*met[1:], end):
            first.nodes += [n for n in other.nodes if n not in first.nodes]
            first.culprits |= other.culprits
            first.further |= {other.death, *other.further}
        merged = [m for m in merged if m not in met[1:]]
    return merged


def further_steps(end: DeadEnd) -> list[int]:
    """Operations behind a dead end that are flat everywhere as well."""
    below = end.passed.below(end.death.at) - {end.death.at}
    return [i for i in sorted(below) if kind_of(end.passed.nodes[i]) in STEPS]
