"""Puts a question to the graph, asks every rule, ranks and merges what they say."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache

from whygrad.diagnose import missing, owners, replaced, rules
from whygrad.diagnose.case import Case
from whygrad.graph.consumers import Consumers
from whygrad.graph.flow import FlowGraph
from whygrad.graph.lifetime import Lifetime
from whygrad.graph.links import Linker
from whygrad.graph.places import Places
from whygrad.graph.separate import separations
from whygrad.record.events import Autopsy, Question, Recording
from whygrad.session import Finding

Rule = Callable[[Case], Iterator[Finding]]

_NO_GRAPH = re.compile(r"element (\d+) of (?:the )?(?:tensors|variables) does not require grad")
_INPUT_WITHOUT_GRAD = re.compile(r"One of the differentiated Tensors does not require grad")

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
_SEVERITY = {"error": 0, "warning": 1, "info": 2}


@cache
def all_rules() -> dict[str, Rule]:
    """Code -> rule, one per module of the rules package."""
    found: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(rules.__path__):
        rule = importlib.import_module(f"{rules.__name__}.{module.name}")
        found[rule.CODE] = rule.diagnose
    return found


def diagnose(recording: Recording, question: Question) -> tuple[list[Finding], Case | None]:
    """The findings that answer a question, most important first, and the case they rest on.

    No findings: nothing is certain. No case: no rule can answer such a question.
    """
    case = build_case(recording, question)
    if case is None:
        return [], None
    return rank([finding for rule in all_rules().values() for finding in rule(case)]), case


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
    return list(merged.values())


def _weight(finding: Finding) -> tuple[int, int, int]:
    raises = finding.symptom == "raises"
    return _SEVERITY[finding.severity], 0 if raises else 1, _ORDER.get(finding.code, 1)


def build_case(recording: Recording, question: Question) -> Case | None:
    """Read the question on the graph; None if it is one that no rule can answer."""
    graph = FlowGraph(recording)
    case = Case(question, graph, Places(recording))
    owners.settle(question, recording, case.places)
    if question.kind in ("operation-raised", "call-raised", "warned", "kept-alive"):
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
            _search(case)
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
    elif question.kind == "grad-raised" and _INPUT_WITHOUT_GRAD.search(question.error_text):
        # The inputs take the loss's part: why do *they* not require grad?
        case.roots = tuple(node for node in question.targets if not graph.live(node))[:1]
    else:
        case.roots = question.roots
        return case if question.complaint is not None else None
    _search(case)
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
    _search(case)
    # The other parameters without a gradient are those that it would have come to later.
    case.separations = [found for found in case.separations if found.first.inside_function]
    return case


def _search(case: Case) -> None:
    """Find leaves and separations; look outside torch only as far as that is needed."""
    graph = case.graph
    linker = Linker(graph, case.places)
    fixed = bool(case.leaves)
    for numbers in (False, True):
        while linker.link(graph.ancestors(case.roots), numbers=numbers):
            pass
        if not fixed:
            case.leaves = _leaves(case)
        if case.leaves:
            case.separations = separations(graph, case.roots, case.leaves)
        explained = {target for found in case.separations for target in found.targets}
        if explained and explained.issuperset(case.leaves):
            break
    case.unreached = not case.leaves


def _leaves(case: Case) -> list[int]:
    """Trainable leaves behind the root: those an optimizer holds, or all if it holds none."""
    behind = case.graph.ancestors(case.roots)
    leaves = sorted((n for n in behind if case.graph.trainable_leaf(n)), reverse=True)
    leaves = [n for n in leaves if n not in case.roots]
    held = {info.node for info in case.question.parameters if info.in_optimizer}
    return [node for node in leaves if node in held] or leaves
