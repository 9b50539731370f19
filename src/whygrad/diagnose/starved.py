"""Parameters without a gradient because a custom backward hands `None` on to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from whygrad.diagnose.case import Case, is_library
from whygrad.record.accounts import Trace, TraceNode
from whygrad.record.events import INSIDE_FUNCTION
from whygrad.source import contexts, methods
from whygrad.source.methods import Place, Return
from whygrad.source.spans import Span

_SUFFIX = "Backward"  # autograd's own derivatives end in a number


@dataclass(slots=True)
class Starved:
    """An argument of a custom Function for which its backward returned `None`."""

    function: str
    argument: str  # quoted, or "an argument"
    where: Span  # the return, or the `def` of a backward that ends without one
    unreturned: str  # "ends", "may end" without a `return`; empty if there is one to blame
    applied: Span | None
    targets: list[int]  # parameters behind it, none of which has a gradient


def inputs(case: Case) -> Iterator[Starved]:
    """What the followed passes show, for parameters that are known to have no gradient."""
    if case.question.kind != "no-gradient":
        return
    cut = {target for separation in case.separations for target in separation.targets}
    waiting = {target for target in case.leaves if target not in cut}
    for trace in case.question.traces:
        for node in trace.nodes:
            if node.incoming is None or not node.function.endswith(_SUFFIX):
                continue
            for edge, (sent, fed) in enumerate(zip(node.outgoing, node.feeds, strict=True)):
                targets = _leaves(trace, fed) & waiting if sent is None and fed >= 0 else set()
                found = _starved(case, node, edge, sorted(targets)) if targets else None
                if found is not None:
                    waiting -= targets
                    yield found


def _leaves(trace: Trace, start: int) -> set[int]:
    """The parameters that a gradient would come to from here."""
    seen, waiting = {start}, [start]
    found = set()
    while waiting:
        node = trace.nodes[waiting.pop()]
        if node.leaf is not None:
            found.add(node.leaf)
        for following in node.feeds:
            if following >= 0 and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found


def _starved(case: Case, node: TraceNode, edge: int, targets: list[int]) -> Starved | None:
    name = node.function.removesuffix(_SUFFIX)
    forward = _forward(case, node.event, name)
    backward = methods.sibling(forward, "backward", "vjp") if forward is not None else None
    written = methods.returns_of(backward) if backward is not None else []
    end = methods.end_of(backward) if backward is not None else None
    returns = written if end is None else [*written, end]
    if forward is None or not returns or is_library(returns[0].span.file):
        return None
    skipped = 0 if methods.sibling(forward, "setup_context") is not None else 1
    names = methods.argument_names(forward, skipped)
    places = _places(returns, len(node.feeds), edge, names, forward)
    if not places:
        return None
    known = [names[place] for place in places if place < len(names)]
    chosen = next((r for r in returns if methods.is_none(r, places[0])), returns[0])
    unreturned = ("may end" if written else "ends") if chosen is end else ""
    return Starved(
        name,
        f"`{known[0]}`" if len(known) == 1 else "an argument",
        chosen.span,
        unreturned,
        case.places.node_span(node.event) if node.event is not None else None,
        targets,
    )


def _places(
    returns: list[Return], edges: int, edge: int, names: list[str], forward: Place
) -> list[int]:
    """Which of the returned values it may be: written as `None`, for what forward computes with."""
    count = max(len(found.values or ()) for found in returns)
    if edges == count or not count:
        return [edge]
    empty = [p for p in range(count) if all(methods.is_none(found, p) for found in returns)]
    return [p for p in empty if p >= len(names) or contexts.computes_with(forward, [names[p]])]


def _forward(case: Case, event: int | None, name: str) -> Place | None:
    """Where the forward of a Function is, from what was seen to run inside of it."""
    recording = case.graph.recording
    for fed in case.graph.inputs(event) if event is not None else ():
        inner = case.graph.event(fed)
        if inner is None or inner.mode != INSIDE_FUNCTION:
            continue
        for site in recording.stacks[inner.stack]:
            code = recording.sites[site].code
            if f".{code.co_qualname}".endswith(f".{name}.forward"):
                return code.co_filename, code.co_firstlineno
    return None
