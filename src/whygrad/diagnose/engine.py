"""Puts a question to the graph, asks every rule, ranks and merges what they say."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache

from whygrad.diagnose import (
    absences,
    caught,
    checking,
    compiled,
    complaints,
    following,
    missing,
    owners,
    replaced,
    rules,
)
from whygrad.diagnose.case import Case
from whygrad.diagnose.searching import search
from whygrad.graph.consumers import Consumers
from whygrad.graph.flow import FlowGraph
from whygrad.graph.lifetime import Lifetime
from whygrad.graph.places import Places
from whygrad.record.accounts import PassUse
from whygrad.record.events import Autopsy, Question, Recording
from whygrad.session import Finding

Rule = Callable[[Case], Iterator[Finding]]

_NOTHING_TO_UNSCALE = "amp-no-inf-checks"
_CUT_IN_CHECKPOINT = "none of output has requires_grad=True"
_NO_GRAPH = re.compile(r"element (\d+) of (?:the )?(?:tensors|variables) does not require grad")

# Of what is silent: mistakes that make others look like mistakes come first, and what may well
# be meant comes last.
_ORDER = {
    "optimizer-holds-old-parameters": 0,
    "gradients-zeroed-before-step": 0,
    "step-missing": 0,
    "backward-missing": 0,
    "output-not-in-loss": 2,
    "parameter-unused": 2,
    "frozen-parameters": 2,
    "scheduler-before-optimizer": 3,
}
_BEHIND_NOTICES = ("scheduler-before-optimizer", "step-missing", "backward-missing")
_SEVERITY = {"error": 0, "warning": 1, "info": 2}


@cache
def all_rules() -> dict[str, Rule]:
    """Code -> rule, one per module of the rules package."""
    found: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(rules.__path__):
        rule = importlib.import_module(f"{rules.__name__}.{module.name}")
        found[rule.CODE] = rule.diagnose
    return found


def diagnose(
    recording: Recording, question: Question, fault: Callable[[Exception], None] | None = None
) -> tuple[list[Finding], Case | None]:
    """The findings that answer a question, most important first, and the case they rest on.

    No findings: nothing is certain. No case: no rule can answer such a question. With `fault` to
    tell of a mistake in one of the rules, the others' findings are not lost.
    """
    handler = caught.handler(recording, question) if caught.is_caught(question) else None
    if handler is None and caught.is_caught(question):
        return [], None
    case = build_case(recording, question)
    if case is None:
        return [], None
    found: list[Finding] = []
    for rule in all_rules().values():
        try:
            found += rule(case)
        except Exception as error:
            if fault is None:
                raise
            fault(error)
    found += following.after(case, found)
    compiled.mention(recording, found)
    if handler is not None:
        caught.soften(found, handler)
    return rank(found), case


def rank(findings: list[Finding]) -> list[Finding]:
    """Most important first; the same code at the same place is one finding."""
    merged: dict[tuple[str, str, int, int], Finding] = {}
    for finding in sorted(findings, key=_weight):
        place = finding.location
        key = (finding.code, place.file, place.line, place.column)
        known = merged.get(key)
        if known is None:
            merged[key] = finding
            continue
        known.count += finding.count
        known.parameters += [n for n in finding.parameters if n not in known.parameters]
        known.first_step = min(known.first_step, finding.first_step)
    return _without_echoes(_without_notices(list(merged.values())))


def _without_echoes(findings: list[Finding]) -> list[Finding]:
    """What was silent at first, and raised in the end, is one defect."""
    raised = [f for f in findings if f.symptom == "raises" and f.parameters]
    return [
        finding
        for finding in findings
        if finding.symptom != "silent"
        or not any(
            finding.location == other.location and set(finding.parameters) <= set(other.parameters)
            for other in raised
        )
    ]


def _without_notices(findings: list[Finding]) -> list[Finding]:
    """Torch's word on schedulers is left out where it is known by now what it was about."""
    notices = [f for f in findings if f.symptom == "warns" and f.code == "step-missing"]
    others = [f for f in findings if f not in notices]
    known = any(f.code in _BEHIND_NOTICES and f.severity != "info" for f in others)
    return others if known else findings


def _weight(finding: Finding) -> tuple[int, int, int]:
    raises = finding.symptom == "raises"
    return _SEVERITY[finding.severity], 0 if raises else 1, _ORDER.get(finding.code, 1)


def build_case(recording: Recording, question: Question) -> Case | None:
    """Read the question on the graph; None if it is one that no rule can answer."""
    graph = FlowGraph(recording)
    case = Case(question, graph, Places(recording))
    owners.settle(question, recording, case.places)
    if question.kind == "call-raised":
        return _with_complaint(case)
    if question.kind in ("operation-raised", "warned", "kept-alive", "context-changed"):
        return case
    if question.kind == "health":
        case.roots = question.roots
        return case
    if question.autopsy is not None:
        return _with_lifetime(case, question.autopsy)
    if question.raised_at:
        return case
    if question.kind == "no-gradient":
        case.roots = question.roots
        case.awaiting = missing.awaiting(case)
        # The values of parameters that were replaced live on in others.
        elsewhere = case.awaiting | replaced.replaced_targets(case)
        case.leaves = [target for target in question.targets if target not in elsewhere]
        if case.leaves:
            search(case)
            _leave_out_rehearsals(case)
        return case
    no_graph = _NO_GRAPH.search(question.error_text)
    if question.kind == "asked":
        case.roots = question.roots
    elif no_graph:
        index = int(no_graph.group(1))
        case.roots = question.roots[index : index + 1] or question.roots
        if case.roots and all(graph.live(node) for node in case.roots):
            return _inside_backward(case) or (case if question.complaint is not None else None)
    elif _CUT_IN_CHECKPOINT in question.error_text:
        case.roots = question.roots
    else:
        case.roots = question.roots
        return case if question.complaint is not None else None
    search(case)
    return case


def _leave_out_rehearsals(case: Case) -> None:
    """Parameters that ran without gradients once, and with gradients beside that.

    A rollout or an evaluation is no cut: what was computed with gradients leads nowhere.
    """
    consumers = Consumers(case.graph.recording)
    kept = []
    for separation in case.separations:
        off = separation.first.kind in ("switch", "torch-switch")
        entered = separation.path.nodes[1:2]  # where the parameter itself is used on that way
        off = off and not any(case.graph.live(node) for node in entered)
        if off and all(consumers.is_used(target) for target in separation.targets):
            case.awaiting.update(separation.targets)
        else:
            kept.append(separation)
    case.separations = kept


def _with_complaint(case: Case) -> Case:
    """Where torch's words, or Python's, are about a gradient or a history that is missing."""
    absence = absences.find(case)
    if absence is not None:
        case.roots = absences.roots(case, absence)
        if absence.kind == "apart" and not absences.awaits(case, absence):
            case.leaves = [read.node for read in absence.reads]
            search(case)
        case.absence = absences.settle(case, absence)
        return case
    without = complaints.without_history(case)
    if without is not None:
        case.roots = (without,)
        search(case)
    elif _left_without(case):
        search(case)
    elif outputs := checking.outputs_without_history(case):
        case.roots = outputs
        search(case)
    return case


def _left_without(case: Case) -> bool:
    """A scaler met an optimizer without any gradient: what kept the latest pass from it?"""
    complaint = case.question.complaint
    if complaint is None or complaint.message != _NOTHING_TO_UNSCALE or complaint.history is None:
        return False
    passes = [act for act in complaint.history.account.acts if isinstance(act, PassUse)]
    # What another optimizer has stepped with was not meant for this one.
    own = [act for act in passes[-1:] if not act.used_by]
    stacks = {root: act.stack for act in own for root in act.roots}
    case.question.root_stacks = stacks
    case.roots = tuple(stacks)
    case.leaves = [held.node for held in complaint.held if not held.gradient]
    return bool(case.roots and case.leaves)


def _with_lifetime(case: Case, autopsy: Autopsy) -> Case:
    """The question is about what autograd kept: has an earlier pass to do with it?"""
    case.roots = case.question.roots
    case.lifetime = lifetime = Lifetime(case.graph, case.question, autopsy)
    changed = [value.event for value in autopsy.saved if value.event is not None]
    if autopsy.freed and not changed:
        case.meeting = lifetime.meeting_over(autopsy.freed, retained=False)
    elif changed:
        # A graph that was retained and then needed values which have changed since.
        met = lifetime.meeting_over(changed[:1], retained=True)
        if met is None or met.kind == "shared":
            met = lifetime.carried_over(changed[:1])
        case.meeting = met
    return case


def _inside_backward(case: Case) -> Case | None:
    """The complaint is not about the root: a custom backward makes it of what it computes again."""
    case.leaves = [
        info.node
        for info in case.question.parameters
        if info.in_optimizer and info.requires_grad and not info.has_grad
    ]
    if not case.leaves:
        return None
    search(case)
    # The other parameters without a gradient are those that it would have come to later.
    case.separations = [found for found in case.separations if found.first.inside_function]
    return case
