"""Gradients without a history of their own, where a loss is made of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from whygrad.diagnose import lives, words
from whygrad.diagnose.case import Case, is_library
from whygrad.record.events import GRAD_ON, Event
from whygrad.record.ops import GRADIENT, display_name
from whygrad.session import Edit, Finding, Fix, Related, Severity
from whygrad.source.edits import add_keyword
from whygrad.source.files import FunctionNode
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, expression_at, function_at
from whygrad.source.written import argument

CODE = "create-graph-missing"

_GRAD = "grad"  # torch.autograd.grad
_SUMS = frozenset(["add", "sub"])
_GATHERS = frozenset(["sum", "mean", "stack", "cat"])  # of terms that were collected
_PASSING = frozenset(["mul", "div", "truediv", "neg", "to", "clone", "view", "squeeze", "reshape"])
# Beyond these it is no longer terms of a loss that are added, but parts of one term.
_INNER = frozenset(["pow", "square", "abs", "norm", "mse_loss", "l1_loss", "smooth_l1_loss"])
_CREATE_GRAPH = "create_graph"


@dataclass(slots=True)
class _Call:
    """The call that should have asked for a graph, and the argument by which it can."""

    where: Span
    keyword: str


# --- what raises ------------------------------------------------------------------------------


def in_the_way(case: Case) -> Iterator[Finding]:
    """A gradient lies between the root and all that requires grad."""
    if not case.roots or case.question.kind == "operation-raised":
        return
    nodes = [s.first.node for s in case.separations if s.first.kind == "gradient"]
    if not nodes and case.unreached:
        nodes = _dead_gradients(case, case.graph.ancestors(case.roots))
    found: dict[tuple[str, int], Finding] = {}
    for node in nodes[:8]:
        call = _call(case, node)
        if call is not None:
            place = call.where.file, call.where.line
            found.setdefault(place, _raising(case, node, call))
    yield from found.values()


def _dead_gradients(case: Case, nodes: set[int]) -> list[int]:
    events = [(node, case.graph.event(node)) for node in sorted(nodes) if node >= 0]
    return [node for node, event in events if event is not None and _is_dead(event)]


def _is_dead(event: Event) -> bool:
    return event.op in (_GRAD, GRADIENT) and not event.live


def _raising(case: Case, node: int, call: _Call) -> Finding:
    name, (way, checked) = _name(case, node), _ways_back(case)
    title = f"{name} was computed without create_graph=True, so it cannot be differentiated"
    return _finding(
        case,
        node,
        call,
        title=title,
        severity="error",
        why=f"without create_graph=True, autograd computes a gradient as plain numbers. {way}",
        checked=checked,
    )


def _ways_back(case: Case) -> tuple[str, list[str]]:
    """(what the root still leads to, what was checked about that)."""
    root = f"`{case.root_name}`"
    if not any(case.graph.live(node) for node in case.roots):
        way = (
            f"{root} is made of them, so no way leads from it back to anything that requires grad."
        )
        return way, [f"behind {root} there is no other way to what requires grad."]
    wanted = words.listed(case.names(case.leaves)) if case.leaves else "what is wanted"
    way = f"In {root} they are constants, so no way leads through them back to {wanted}."
    checked = [f"{root} has a history, and it does not lead to {wanted}."]
    return way, checked if case.leaves else []


# --- what is silent ---------------------------------------------------------------------------


def without_effect(case: Case) -> Iterator[Finding]:
    """A loss has a term made of gradients alone, which changes its value and trains nothing."""
    latest: dict[int, int] = {}
    for root in case.question.roots:
        event = case.graph.event(root)
        if event is not None and event.live:
            latest.setdefault(event.site, root)
    for root in latest.values():
        behind = case.graph.ancestors([root])
        if not _dead_gradients(case, behind):
            continue
        for term, inner in _idle_terms(case, root):
            for node in _gradients_in(case, term):
                wrong = not inner or _has_graphed_sibling(case, node, behind)
                call = _call(case, node) if wrong and _trains(case, node) else None
                if call is not None:
                    yield _silent(case, node, call, root)


def _idle_terms(case: Case, root: int) -> Iterator[tuple[int, bool]]:
    """Terms of a sum that carry no gradient, and whether they lie inside of one of its terms."""
    waiting, seen = [(root, False)], {root}
    while waiting:
        node, inner = waiting.pop()
        event = case.graph.event(node)
        op = display_name(event.op) if event is not None else ""
        inner = inner or op in _INNER
        if op not in _SUMS | _GATHERS | _PASSING | _INNER:
            continue
        for fed in case.graph.inputs(node):
            if fed in seen:
                continue
            seen.add(fed)
            if case.graph.live(fed):
                waiting.append((fed, inner or (op in _GATHERS and case.shape(fed) != [])))
            elif op in _SUMS | _GATHERS | _INNER:
                yield fed, inner


def _gradients_in(case: Case, term: int) -> list[int]:
    """The gradients that a term is computed from, if nobody cut it off on purpose."""
    found, waiting, seen = [], [term], {term}
    while waiting:
        node = waiting.pop()
        event = case.graph.event(node)
        if event is None or event.mode != GRAD_ON:
            continue
        if event.op == _GRAD and not event.live:
            found.append(node)
            continue
        if case.graph.block(node) is None:
            fresh = [fed for fed in case.graph.inputs(node) if fed not in seen]
            seen.update(fresh)
            waiting += fresh
    return sorted(found)


def _has_graphed_sibling(case: Case, node: int, behind: set[int]) -> bool:
    """Whether another gradient of the same function was computed with a graph."""
    mine = _differentiated(case, node)
    for other in behind:
        event = case.graph.event(other)
        if event is None or event.op != _GRAD or not event.live or mine is None:
            continue
        theirs = _differentiated(case, other)
        if theirs is None:
            continue
        related = mine in case.graph.ancestors([theirs]) or theirs in case.graph.ancestors([mine])
        if related:
            return True
    return False


def _differentiated(case: Case, node: int) -> int | None:
    """What a gradient is the derivative of, before it was added up for that."""
    found = next(iter(case.graph.inputs(node)), None)
    event = case.graph.event(found) if found is not None else None
    if event is not None and event.op in ("sum", "mean"):
        return next(iter(event.inputs), found)
    return found


def _trains(case: Case, node: int) -> bool:
    """Whether parameters that an optimizer holds would learn from a gradient."""
    behind = case.graph.ancestors([node])
    held = [i for i in case.question.parameters if i.in_optimizer and i.requires_grad]
    return any(info.node in behind for info in held)


def _silent(case: Case, node: int, call: _Call, root: int) -> Finding:
    stack = case.question.root_stacks.get(root, case.question.stack)
    surface = case.user_span(stack)
    name = _name(case, node)
    title = f"{name} was computed without create_graph=True: its part of the loss trains nothing"
    related = []
    if surface is not None:
        related.append(Related("surfaced", location(surface), "runs, without that part's gradient"))
    return _finding(
        case,
        node,
        call,
        title=title,
        severity="warning",
        why="without create_graph=True, autograd computes a gradient as plain numbers. What is "
        "made of them adds to the value of the loss, but as a constant: its derivative is zero "
        "for every parameter.",
        checked=["this part of the loss has no grad_fn, and nobody detached it."],
        related=related,
        deliberate="if that part is only to be watched, add it to what is printed, not to the "
        "loss, or say so with `.detach()`.",
    )


# --- the call ---------------------------------------------------------------------------------


def _call(case: Case, node: int) -> _Call | None:
    """The call that computed a gradient; its caller, where that decides about the graph."""
    event = case.graph.event(node)
    if event is None:
        return None
    stack = event.stack if event.op == _GRAD else _pass_before(case, node)
    spans = [span for span in case.places.spans(stack) if not is_library(span.file)]
    if not spans:
        return None
    depth, keyword = 0, _CREATE_GRAPH
    while depth + 1 < len(spans):
        handed = _handed_on(spans[depth], keyword)
        if not handed:
            break
        depth, keyword = depth + 1, handed
    if _asks_for(spans[depth], keyword):
        return None  # a gradient that is constant has no history, with a graph or without
    return _Call(spans[depth], keyword)


def _pass_before(case: Case, node: int) -> int:
    """The backward() that filled the `.grad` which is read at a node."""
    earlier = [p for p in case.question.passes if p.call == "backward" and p.time <= node]
    return earlier[-1].stack if earlier else 0


def _handed_on(span: Span, keyword: str) -> str:
    """The parameter of the function around a call that decides about one of its arguments."""
    call, function = expression_at(span), function_at(span)
    if not isinstance(call, ast.Call) or function is None:
        return ""
    for given in call.keywords:
        if given.arg == keyword and isinstance(given.value, ast.Name):
            return given.value.id if _takes(function, given.value.id) else ""
    extra = function.args.kwarg
    passes_all = extra is not None and any(
        given.arg is None and isinstance(given.value, ast.Name) and given.value.id == extra.arg
        for given in call.keywords
    )
    return keyword if passes_all else ""


def _asks_for(span: Span, keyword: str) -> bool:
    call = expression_at(span)
    given = argument(call, 99, keyword) if isinstance(call, ast.Call) else None
    return isinstance(given, ast.Constant) and bool(given.value)


def _takes(function: FunctionNode, name: str) -> bool:
    listed = function.args
    return any(a.arg == name for a in (*listed.posonlyargs, *listed.args, *listed.kwonlyargs))


def _name(case: Case, node: int) -> str:
    """The gradient as the source calls it, in the function that decided about its graph."""
    event = case.graph.event(node)
    call = _call(case, node)
    names = assigned_names(call.where) if call is not None else []
    if event is not None and event.op == GRADIENT:
        return "a gradient from `.grad`"
    return f"`{names[0]}`" if names else "a gradient"


def _finding(
    case: Case,
    node: int,
    call: _Call,
    *,
    title: str,
    severity: Severity,
    why: str,
    checked: list[str],
    related: list[Related] | None = None,
    deliberate: str = "",
) -> Finding:
    event = case.graph.event(node)
    made = case.places.spans(event.stack)[:1] if event is not None else ()
    shown = list(related or [])
    if severity == "error":
        shown += lives.surfaced_here(case, call.where)
        shown += _again(case, call.where)
    lines = {(s.location.file, s.location.line) for s in shown}
    shown += [
        Related("operation", location(span), "the gradient itself")
        for span in made
        if not lives.same_place(span, call.where)
        and not is_library(span.file)
        and (span.file, span.line) not in lines
    ]
    fix = f"add `{call.keyword}=True` here"
    if any(k == "retain_graph" for k in _keywords(call.where)):
        fix += "; retain_graph=True only keeps the old graph for another pass"
    return Finding(
        code=CODE,
        severity=severity,
        symptom="raises" if severity == "error" else "silent",
        title=title,
        message=f"{words.sentence(title)} The call needs create_graph=True.",
        location=location(call.where),
        label="gives numbers without a history",
        related=shown,
        why=why,
        checked=checked,
        fix=Fix(
            title=fix,
            edits=_edits(call),
            safety="values stay equal; the graph of the gradient is kept in memory",
            deliberate=deliberate,
        ),
        first_step=case.question.step,
    )


def _again(case: Case, where: Span) -> list[Related]:
    """Where the same function goes on to differentiate, by way of a helper."""
    spans = [s for s in case.places.spans(case.question.stack) if not is_library(s.file)]
    for span in spans[1:]:
        if (span.file, span.first_line) == (where.file, where.first_line) and span != where:
            return [Related("via", location(span), "differentiated again here")]
    return []


def _keywords(where: Span) -> list[str]:
    call = expression_at(where)
    return [k.arg for k in call.keywords if k.arg] if isinstance(call, ast.Call) else []


def _edits(call: _Call) -> list[Edit]:
    return add_keyword(call.where, f"{call.keyword}=True")
