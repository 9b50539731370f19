"""What autograd.grad() was asked to differentiate by, and how the output came to lack it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import Literal

from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.rules import (
    create_graph_missing,
    detach_call,
    left_torch,
    no_grad_block,
    non_differentiable_op,
    rebuilt_tensor,
)
from whygrad.diagnose.searching import search as search_ways
from whygrad.graph.separate import paths_to
from whygrad.record.ops import GRADIENT, display_name
from whygrad.session import Finding
from whygrad.source.spans import Span
from whygrad.source.tree import assigned_names, expression_at, statement_at, text_of
from whygrad.source.uses import values_used
from whygrad.source.written import argument

Relation = Literal["cut", "late", "constant", "replaced", "copied", "forgotten", "unused"]

_CUTS = (
    detach_call,
    no_grad_block,
    left_torch,
    rebuilt_tensor,
    non_differentiable_op,
    create_graph_missing,
)
_MAX_HOPS = 50
_INDEX = re.compile(r"(?:at index|element) (\d+)")
# Operations after which a tensor still has values of the one that it was made from.
_COPIES = frozenset(
    """
    clone detach data to float double half bfloat16 cpu cuda type type_as contiguous view reshape
    flatten unflatten squeeze unsqueeze expand expand_as index narrow select chunk split unbind
    transpose permute swapaxes movedim T mT t requires_grad_ __deepcopy__ deepcopy cat stack
    index_select take gather repeat tile view_as reshape_as Variable as_tensor asarray ravel
    """.split()
)


@dataclass(slots=True)
class Lost:
    """Why an output does not depend on an input: what there is between the two."""

    relation: Relation
    where: Span  # the line to change
    used: int | None = None  # what the output was computed from, in the input's place
    made: Span | None = None  # where the input was made, if that is another line
    cut: Finding | None = None


def wanted(case: Case) -> int | None:
    """The input that a refused grad() is about."""
    targets, tracked = case.question.targets, "not have been used" in case.question.error_text
    found = _INDEX.search(case.question.error_text)
    if found is not None and int(found.group(1)) < len(targets):
        return targets[int(found.group(1))]
    if tracked:
        behind = case.graph.ancestors(case.question.roots)
        return next((node for node in targets if node not in behind), next(iter(targets), None))
    return next((node for node in targets if not tracks(case, node)), None)


def tracks(case: Case, node: int) -> bool:
    """Whether a tensor required grad at the time of the question."""
    complaint = case.question.complaint
    for given in complaint.given if complaint is not None else ():
        if given.node == node:
            return given.requires_grad
    info = case.parameter(node)
    if info is not None:
        return info.requires_grad
    flagged = case.graph.recording.flags.get(node)
    return flagged.value if flagged is not None else case.graph.live(node)


def spoken(case: Case, node: int) -> str:
    """An input as the call names it; as a parameter is known, if that is what it is."""
    info = case.parameter(node)
    if info is not None and info.name:
        return info.name
    surface = case.user_span(case.question.stack)
    call = expression_at(surface) if surface is not None else None
    given = argument(call, 1, "inputs") if isinstance(call, ast.Call) else None
    targets = case.question.targets
    if isinstance(given, (ast.List, ast.Tuple)) and len(given.elts) == len(targets):
        given = given.elts[targets.index(node)] if node in targets else None
    elif len(targets) != 1:
        given = None
    text = text_of(given, surface.file) if given is not None and surface is not None else ""
    if text and len(text) <= 40 and "\n" not in text:
        return text
    return case.name(node)


# --- the relation between the two -------------------------------------------------------------


def lost(case: Case, node: int) -> Lost | None:
    """How an input and the outputs of the failing call lie to each other."""
    surface = case.user_span(case.question.stack)
    if surface is None:
        return None
    behind = case.graph.ancestors(case.question.roots)
    if node not in behind:
        search(case, [node])  # links values that left torch and came back
        behind = case.graph.ancestors(case.question.roots)
    if node in behind:
        return _reached(case, node, surface)
    used = _used_instead(case, node, behind)
    if used is None:
        return _left_out(case, node, surface)
    return _derived(case, node, used, surface)


def search(case: Case, leaves: list[int]) -> Case:
    """A case of its own about the ways from some leaves to the outputs."""
    inner = replace(case, roots=case.question.roots, leaves=list(leaves), separations=[])
    search_ways(inner)
    return inner


def cut_finding(case: Case) -> Finding | None:
    """What the rules on cuts say about a case."""
    return next((found for rule in _CUTS for found in rule.diagnose(case)), None)


def _reached(case: Case, node: int, surface: Span) -> Lost:
    """Values do flow from the input to the output; gradient does not flow back."""
    inner = search(case, [node])
    cut = cut_finding(inner) if inner.separations else None
    if cut is not None:
        return Lost("cut", surface, cut=cut)
    late = _marked_late(case, node)
    if late is not None:
        return Lost("late", late, made=_first_use(case, node, surface))
    return Lost("constant", surface)


def _marked_late(case: Case, node: int) -> Span | None:
    """Where a tensor was marked with requires_grad, if it had been used before."""
    flagged = case.graph.recording.flags.get(node)
    if flagged is None or not flagged.value:
        return None
    for root in case.question.roots:
        path = paths_to(case.graph, root, [node]).get(node)
        if path is not None and len(path.nodes) > 1 and path.nodes[1] < flagged.time:
            return case.user_span(flagged.stack)
    return None


def _used_instead(case: Case, node: int, behind: set[int]) -> int | None:
    """The nearest value that the input was made from and the output depends on."""
    seen, waiting = {node}, [node]
    for current in waiting:
        for fed in case.graph.inputs(current):
            if fed in behind:
                return fed
            if fed not in seen:
                seen.add(fed)
                waiting.append(fed)
    return None


def _derived(case: Case, node: int, used: int, surface: Span) -> Lost:
    """The input was made from something; the output was computed from that instead."""
    made = own_span(case, node)
    if made is not None and set(assigned_names(made)) & set(values_used(made)):
        return Lost("replaced", made, used, made)  # x = x.to(device): the old one has no name
    computed = _computed(case, surface)
    after = case.graph.event(node) is not None and node > max(case.question.roots, default=0)
    copied = _is_copy(case, node, used) and tracks(case, used)
    if not after and not copied and computed is not None:
        return Lost("forgotten", computed, used, made)
    return Lost("copied", surface, used, made)


def _is_copy(case: Case, node: int, used: int) -> bool:
    """Whether nothing but copies and views lies between two values."""
    while node != used:
        event = case.graph.event(node)
        fed = next(iter(case.graph.inputs(node)), None)
        if event is None or fed is None or display_name(event.op) not in _COPIES:
            return False
        node = fed
    return True


def _left_out(case: Case, node: int, surface: Span) -> Lost:
    """Nothing connects the two: of parameters the list is at fault, else the computation."""
    source = case.graph.source(node)
    if case.parameter(node) is not None or (source is not None and source.parameter):
        return Lost("unused", surface, made=own_span(case, node))
    return Lost("unused", _computed(case, surface) or surface, made=own_span(case, node))


def _computed(case: Case, surface: Span) -> Span | None:
    """The statement before the failing one, in its function or around it, for the output."""
    node = next(iter(case.question.roots), None)
    for _ in range(_MAX_HOPS):
        event = case.graph.event(node) if node is not None else None
        if node is None or event is None or event.op in ("grad", GRADIENT):
            return None
        span = shared_span(case, node)
        if span is not None and statement_at(span) is not statement_at(surface):
            return span
        node = max((i for i in case.graph.inputs(node) if case.graph.live(i)), default=None)
    return None


def _first_use(case: Case, node: int, surface: Span) -> Span | None:
    behind = sorted(n for n in case.graph.ancestors(case.question.roots) if n >= 0)
    users = (n for n in behind if node in case.graph.inputs(n))
    return next((span for n in users if (span := shared_span(case, n)) is not None), None)


# --- places -----------------------------------------------------------------------------------


def own_span(case: Case, node: int) -> Span | None:
    """The program's own line that made a node."""
    spans = case.places.node_spans(node)
    return next((span for span in spans if not is_library(span.file)), None)


def shared_span(case: Case, node: int) -> Span | None:
    """The call that led to a node, in the innermost function that the failing call is in too."""
    surfaces = case.places.spans(case.question.stack)
    functions = {(span.file, span.first_line) for span in surfaces}
    spans = [span for span in case.places.node_spans(node) if not is_library(span.file)]
    return next((s for s in spans if (s.file, s.first_line) in functions), None)
