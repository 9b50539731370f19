"""Ties the stages together: recording feeds the graph, questions become findings, a session."""

from __future__ import annotations

import dataclasses
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from whygrad import catalogue
from whygrad._version import __version__
from whygrad.diagnose import compiled
from whygrad.diagnose.case import Case
from whygrad.diagnose.engine import diagnose, rank
from whygrad.diagnose.truth import parameter_states
from whygrad.graph.flow import FlowGraph
from whygrad.graph.places import Places
from whygrad.record.events import Event, ParameterInfo, Question
from whygrad.record.watcher import Watcher, torch_version
from whygrad.session import (
    ExceptionInfo,
    Finding,
    GraphNode,
    ParameterState,
    Program,
    Session,
    system_name,
)
from whygrad.settings import Settings
from whygrad.source.ignores import ignored_codes
from whygrad.source.spans import source_lines

_CONTEXT_LINES = 3
_MAX_GRAPH_NODES = 5_000
_INPUTS = Event._fields.index("inputs")

active: list[Watch] = []  # the watches that are on, innermost last

OnFinding = Callable[[Session, Finding], None]


@dataclass(slots=True)
class Answered:
    """A finding with what is needed to confirm it again at the end."""

    finding: Finding
    stack: int
    weight: int  # another one at the same place replaces it only if that weighs more
    missing: dict[str, int] = field(default_factory=dict)  # name -> node, for missing gradients
    frozen: set[int] = field(default_factory=set)  # nodes of what is said to be frozen
    growing: bool = False  # true only as long as more graphs are kept with every step
    zero: dict[str, int] = field(default_factory=dict)  # name -> node, for gradients of zero
    unheld: dict[str, int] = field(default_factory=dict)  # name -> node, for what no step moves
    shown: bool = False


class Watch:
    """Watches the program from start() to stop() and knows what it found."""

    def __init__(
        self, settings: Settings | None = None, on_finding: OnFinding | None = None
    ) -> None:
        self.settings = settings or Settings()
        self.on_finding = on_finding
        self.watcher = Watcher(
            self._answer,
            self.settings.max_operations,
            frozenset(self.settings.watch_step),
            self.settings.eager,
        )
        self.watcher.asker.early_report = self._report_early
        self._answered: list[Answered] = []
        self._graph: list[GraphNode] = []
        self._diagnosis_seconds = 0.0
        self._unanswered: list[str] = []

    def start(self) -> None:
        self.watcher.start()
        active.append(self)

    def stop(self) -> None:
        """Take all hooks away; harmless when called twice."""
        if self in active:
            active.remove(self)
            self._ask_for_the_last_time()
        self.watcher.stop()

    def _ask_for_the_last_time(self) -> None:
        try:
            self.watcher.asker.at_end()
        except Exception as fault:
            self.watcher.recorder.fault(fault)

    @property
    def findings(self) -> list[Finding]:
        """What is known so far, most important first."""
        asker = self.watcher.asker
        flowing, ledger = asker.health.flowing, asker.health.ledger
        held, written = ledger.held_nodes, ledger.written
        without = asker.still_without - written
        confirmed = []
        for answered in self._answered:
            finding = answered.finding
            if answered.frozen & asker.had_gradient or self._unfrozen(answered.frozen):
                continue  # frozen for a while only
            if answered.growing and not asker.keepers.growing:
                continue  # a window of a fixed size, which somebody chose
            if not (
                _narrow(finding, answered.missing, lambda node: node in without)
                and _narrow(finding, answered.zero, lambda node: node not in flowing)
                and _narrow(finding, answered.unheld, lambda node: node not in held | written)
            ):
                continue  # it was only late: it came to these parameters after all
            repeats = [n for (_, stack), n in asker.repeated.items() if stack == answered.stack]
            if finding.symptom == "raises" and repeats:
                finding.count = max(finding.count, *repeats)
            confirmed.append(finding)
        return rank(confirmed)

    def _unfrozen(self, nodes: set[int]) -> bool:
        sources = self.watcher.recorder.sources
        return any(node in sources and sources[node].requires_grad for node in nodes)

    def saw_uncaught(self, error: BaseException) -> None:
        """The program ends with this exception; say so if its cause was out of sight."""
        if not isinstance(error, Exception):
            return
        self.watcher.asker.on_uncaught(error)
        raised = [a.finding for a in self._answered if a.finding.symptom == "raises"]
        explained = any(finding.severity == "error" for finding in raised)
        message = catalogue.find(str(error), type(error).__name__)
        if explained or (message is None and "grad" not in str(error)):
            return
        if message in catalogue.python_symptoms():
            return  # Python's own words: no gradient has to do with them
        note = f"no cause was found for {type(error).__name__}: {str(error).splitlines()[0]}"
        if message is not None:
            note += f"; `whygrad explain {message.id}` lists the likely ones"
        if self.watcher.resting:
            step = self.watcher.recorder.step
            note += f" (step {step} was not recorded: run again with --watch-step {step})"
        if compiled.calls(self.watcher.recorder.recording()):
            note += " (compiled functions ran unseen: run again with --eager)"
        self._unanswered.append(note)

    def session(
        self,
        *,
        argv: list[str] | None = None,
        exit_code: int | None = None,
        exception: ExceptionInfo | None = None,
    ) -> Session:
        """Everything as plain data."""
        findings = self.findings
        session = Session(
            whygrad=__version__,
            torch=torch_version(),
            python=platform.python_version(),
            platform=system_name(),
            program=Program(argv or [], exit_code, exception),
            findings=findings,
            parameters=self._states(findings),
            steps=self._steps(),
            overhead=self._overhead(),
            notes=self._notes(),
            graph=self._graph,
        )
        for finding in findings:
            _quote_sources(session, finding)
        return session

    def parameter_truths(self) -> list[ParameterInfo]:
        """What is known of every parameter."""
        health = self.watcher.asker.health
        return health.take_census() if self in active else health.census

    def _states(self, findings: list[Finding]) -> list[ParameterState]:
        asker, recording = self.watcher.asker, self.watcher.recorder.recording()
        names = {held.number: held.name for held in asker.health.ledger.known}
        return parameter_states(asker.health.census, findings, names, Places(recording))

    def _steps(self) -> int:
        recorder, asker = self.watcher.recorder, self.watcher.asker
        return recorder.step - 1 if recorder.step > 1 else asker.backward_count

    def _overhead(self) -> dict[str, float]:
        recorder = self.watcher.recorder
        events = recorder.events
        sample = events[:: max(1, len(events) // 100)][:100]
        each = sum(sys.getsizeof(e) + sys.getsizeof(e[_INPUTS]) for e in sample)
        return {
            "operations": float(recorder.base + len(events)),
            "operations_held": float(len(events)),
            "record_bytes": each / len(sample) * len(events) if sample else 0.0,
            "diagnosis_seconds": round(self._diagnosis_seconds, 4),
        }

    def _notes(self) -> list[str]:
        recorder = self.watcher.recorder
        notes = [*self._unanswered, *recorder.faults]
        if recorder.gate.crowded:
            notes.append(
                "several threads train at the same time: gradients and steps were not looked at, "
                "so only what raised was explained"
            )
        if self.watcher.asker.blind:
            notes.append(
                "a compiled function runs backward() or an optimizer's step: what fails in silence "
                "was not looked for (whygrad run --eager does)"
            )
        if recorder.base:
            notes.append(
                f"the record holds the last {len(recorder.events)} operations; "
                f"{recorder.base} older ones were dropped (--max-operations)"
            )
        return notes

    # --- answering ----------------------------------------------------------------------------

    def _answer(self, question: Question) -> None:
        began = time.perf_counter()
        try:
            recording = self.watcher.recorder.recording()
            found, case = diagnose(recording, question, self.watcher.recorder.fault)
            findings = [finding for finding in found if self._wanted(finding)]
            nodes = {info.name: info.node for info in question.parameters}
            for finding in findings:
                self._keep(finding, question, nodes)
            if findings and case is not None and not self._graph:
                self._graph = _graph_of(case)
        except Exception as fault:
            self.watcher.recorder.fault(fault)
        finally:
            self._diagnosis_seconds += time.perf_counter() - began

    def _keep(self, finding: Finding, question: Question, nodes: dict[str, int]) -> None:
        place, weight = finding.location, _weight(finding, question)
        for known in self._answered:
            other = known.finding
            if (other.code, other.location.file, other.location.line) == (
                finding.code,
                place.file,
                place.line,
            ):
                if weight <= known.weight:
                    # Health is asked about again; that is no second time.
                    other.count += question.kind != "health"
                    return
                self._answered.remove(known)
                if other.symptom == "warns" and finding.symptom == "silent":
                    finding = dataclasses.replace(finding, symptom="warns")  # torch did say so
                break
        targets = set(question.targets) if question.kind == "no-gradient" else set()
        missing = {n: nodes[n] for n in finding.parameters if nodes.get(n) in targets}
        frozen = {info.node for info in question.parameters if not info.requires_grad}
        frozen &= {nodes[name] for name in finding.parameters if name in nodes}
        answered = Answered(finding, question.stack, weight, missing, frozen)
        answered.growing = question.kind == "kept-alive"
        if question.kind == "health":
            named = {i.name: i for i in question.parameters if i.name in finding.parameters}
            zero = {name: info.node for name, info in named.items() if info.gradient == "zero"}
            unheld = {name: info.node for name, info in named.items() if not info.in_optimizer}
            answered.zero = zero if len(zero) == len(finding.parameters) else {}
            answered.unheld = unheld if len(unheld) == len(finding.parameters) else {}
        self._answered.append(answered)

    def _wanted(self, finding: Finding) -> bool:
        settings = self.settings
        if settings.select and finding.code not in settings.select:
            return False
        if finding.code in settings.ignore:
            return False
        silenced = ignored_codes(finding.location.file, finding.location.line)
        return not ({"*", finding.code} & silenced)

    def _report_early(self) -> None:
        """The first steps are over: what is silent by now will most likely stay so."""
        if self.on_finding is None:
            return
        findings = self.findings
        session: Session | None = None
        for answered in self._answered:
            if answered.shown or answered.finding.at_end or answered.finding not in findings:
                continue
            if answered.finding.symptom != "raises" and answered.finding.severity != "info":
                session = session or dataclasses.replace(
                    self.session(), steps=self.watcher.recorder.step
                )
                answered.shown = True
                self.on_finding(session, answered.finding)


def _weight(finding: Finding, question: Question) -> int:
    """How much a finding tells: a notice, torch's warning, what came of it, or that it raised.

    What the program has caught at one time may end it at another.
    """
    if finding.severity == "info":
        return 0
    if question.kind == "warned":
        return 1
    if finding.symptom != "raises":
        return 2
    return 4 if finding.severity == "error" else 3


def _narrow(finding: Finding, nodes: dict[str, int], holds: Callable[[int], bool]) -> bool:
    """Leave out the parameters of which a finding is no longer true; False if none is left."""
    if nodes:
        finding.parameters = [n for n in finding.parameters if n in nodes and holds(nodes[n])]
    return bool(finding.parameters) or not nodes


def _graph_of(case: Case) -> list[GraphNode]:
    """The flow graph behind the question's roots, as it is saved with the session."""
    names = {info.node: info.name for info in case.question.parameters}
    nodes = sorted(case.graph.ancestors(case.roots or case.question.targets), reverse=True)
    shown = nodes[:_MAX_GRAPH_NODES]
    return [_graph_node(case.graph, case.places.node_span(n), n, names) for n in shown]


def _graph_node(graph: FlowGraph, span: object, node: int, names: dict[int, str]) -> GraphNode:
    event, source = graph.event(node), graph.source(node)
    dtype = event.dtype if event is not None else source.dtype if source is not None else ""
    shape = event.shape if event is not None else source.shape if source is not None else None
    return GraphNode(
        id=node,
        op=event.op if event is not None else "leaf",
        inputs=list(graph.inputs(node)),
        state="live" if graph.live(node) else "cut" if graph.block(node) else "values",
        shape=None if shape is None else [int(size) for size in shape],
        dtype=str(dtype).removeprefix("torch."),
        file=getattr(span, "file", ""),
        line=getattr(span, "line", 0),
        name=names.get(node, ""),
    )


def _quote_sources(session: Session, finding: Finding) -> None:
    """Put the lines that a report of this finding quotes into the session."""
    places = [finding.location, *(related.location for related in finding.related)]
    windows = [(p.file, p.line, max(p.end_line, p.line)) for p in places]
    if finding.fix is not None:
        windows += [(e.file, e.line, e.line + len(e.before)) for e in finding.fix.edits]
    for file, first, last in windows:
        lines = source_lines(file, max(1, first - _CONTEXT_LINES), last + _CONTEXT_LINES)
        session.sources.setdefault(file, {}).update(lines)
