"""Turns a separation into a finding: everything that does not depend on the kind of cut."""

from __future__ import annotations

import ast
from itertools import pairwise

from whygrad.diagnose import words
from whygrad.diagnose.case import Case
from whygrad.diagnose.exits import further_cuts
from whygrad.graph.flow import Block
from whygrad.graph.separate import Separation, paths_to, reached
from whygrad.record.ops import display_name
from whygrad.session import Finding, Fix, FlowState, PathStep, Related, Severity
from whygrad.source.spans import Span, location
from whygrad.source.tree import expression_at, shorten, statement_at, text_of

_TEXT_WIDTH = 60


def cut_finding(
    case: Case,
    separation: Separation,
    *,
    code: str,
    where: Span,
    subject: str,
    label: str,
    why: str,
    fix: Fix,
    related: list[Related] | None = None,
    inferred: list[str] | None = None,
    function: str = "",
) -> Finding:
    """The finding for a cut: title, path, what was checked, where it surfaced."""
    names = case.names(separation.targets)
    place = location(where)
    if function:
        place.function = function
    title = _title(case, separation, subject, names)
    path, hidden = flow_path(case, separation)
    return Finding(
        code=code,
        severity=_severity(case, separation),
        symptom="raises" if case.raises else "silent",
        title=title,
        message=f"{words.sentence(title)} Affected: {words.listed(names, 8)}.",
        location=place,
        label=label,
        related=[
            *surfaced(case, separation, where),
            *(related or []),
            *_further_cuts(case, separation, where),
        ],
        parameters=names,
        path=path,
        hidden_operations=hidden,
        why=why,
        checked=_checked(case, separation),
        inferred=(inferred or []) + _inferred_links(case, separation),
        fix=fix,
        first_step=case.question.step,
    )


def _title(case: Case, separation: Separation, subject: str, names: list[str]) -> str:
    behind, total = len(separation.targets), len(case.leaves)
    root = f"`{case.root_name}`"
    if case.raises or case.question.kind == "asked":
        if behind < total:
            return f"{subject} cuts {root} off from {behind} of {total} parameters"
        if total == 1:
            return f"{subject} cuts {root} off from `{names[0]}`"
        return f"{subject} cuts {root} off from every parameter ({behind} of {total})"
    if len(names) <= 2:
        return f"{subject} keeps {words.listed(names)} from getting a gradient"
    owner = _owner(case, separation)
    of = f" of `{owner}`" if owner else ""
    total_of_owner = sum(1 for info in case.question.parameters if info.owner == owner)
    if owner and behind == total_of_owner:
        return f"{subject} keeps every parameter{of} ({behind}) from getting a gradient"
    return f"{subject} keeps {behind} parameters{of} from getting a gradient"


def _owner(case: Case, separation: Separation) -> str:
    owners = {
        info.owner for node in separation.targets if (info := case.parameter(node)) is not None
    }
    return owners.pop() if len(owners) == 1 else ""


def _severity(case: Case, separation: Separation) -> Severity:
    """A raised error is one; so is an optimizer none of whose parameters can move."""
    if case.raises:
        return "error"
    owner = _owner(case, separation)
    held = [i for i in case.question.parameters if i.in_optimizer and i.requires_grad]
    mine = [info for info in held if info.owner == owner] if owner else held
    return "error" if mine and len(separation.targets) >= len(mine) else "warning"


# --- where it surfaced ------------------------------------------------------------------------


def surfaced(case: Case, separation: Separation | None, where: Span) -> list[Related]:
    """The line where the program noticed, and the calls between it and the cut."""
    question = case.question
    surface = case.surface
    if surface is None or surface == where:
        return []
    if question.kind == "no-gradient":
        missing = len(separation.targets) if separation is not None else 0
        label = f"runs, and leaves {words.count(missing, 'parameter')} without a gradient"
    elif question.error_text:
        label = f"{question.error_type}: {words.first_line(question.error_text)}"
    else:
        label = "asked here"
    found = [Related("surfaced", location(surface), label)]
    via = _via(case, separation, surface)
    return [*found, via] if via is not None else found


def _via(case: Case, separation: Separation | None, surface: Span) -> Related | None:
    """The call in the surface's own function from which the cut was reached."""
    if separation is None:
        return None
    event = case.graph.event(separation.first.node)
    spans = case.places.spans(event.stack) if event is not None else ()
    for depth, span in enumerate(spans):
        if (span.file, span.first_line) == (surface.file, surface.first_line) and depth:
            calls = [inner.function.rsplit(".", 1)[-1] for inner in reversed(spans[:depth])]
            shown = calls if len(calls) <= 5 else [*calls[:2], "…", *calls[-2:]]
            return Related("via", location(span), "via " + " > ".join(shown))
    return None


def _further_cuts(case: Case, separation: Separation, where: Span) -> list[Related]:
    found = []
    for cut in further_cuts(case, separation):
        span = cut_span(case, cut.node)
        if span is not None and span != where:
            found.append(Related("cut", location(span), "gradient is cut here as well"))
    return found


def cut_span(case: Case, node: int) -> Span | None:
    """The user's line at which a node cuts."""
    event = case.graph.event(node)
    if event is None:
        return case.places.node_span(node)
    return case.blame(event.stack, next(iter(case.graph.inputs(node)), None))[0]


# --- what was checked -------------------------------------------------------------------------


def _checked(case: Case, separation: Separation) -> list[str]:
    graph, root = case.graph, f"`{case.root_name}`"
    total = len(separation.targets)
    if case.raises and len(case.separations) == 1:
        total = len(case.leaves)
    further = further_cuts(case, separation)
    if not further:
        freed = separation.freed_together
        restored = (
            f"Restoring this one edge in the recorded graph lets {freed} of {total} "
            f"parameters reach {root}."
        )
        others = _other_keys(case, separation)
        around = reached(graph, separation.root, others, separation.targets)
        if around:
            return [f"{restored[:1].lower()}{restored[1:]} Other paths between them are cut too."]
        return [f"it is the only cut. {restored}"]
    places = [cut_span(case, cut.node) for cut in further]
    lines = ", ".join(dict.fromkeys(words.at(span) for span in places if span is not None))
    return [
        f"restoring this edge alone is not enough: {words.count(len(further), 'more cut')} "
        f"({lines}) lie{'s' if len(further) == 1 else ''} between it and {root}. Restoring all "
        f"of them lets {separation.freed_together} of {total} parameters reach {root}."
    ]


def _other_keys(case: Case, separation: Separation) -> set[tuple[object, ...]]:
    keys = {
        block.key
        for node in case.graph.ancestors([separation.root])
        if (block := case.graph.block(node)) is not None
    }
    return keys - {cut.key for cut in separation.cuts}


def _inferred_links(case: Case, separation: Separation) -> list[str]:
    """Which edges of the path were not seen but followed through the source."""
    notes = []
    nodes = separation.path.nodes
    for feeder, node in pairwise(nodes):
        exit_span, back = case.places.node_span(feeder), case.places.node_span(node)
        if exit_span is None or back is None or not case.graph.is_exit(feeder):
            continue
        event = case.graph.event(node)
        between = f"the values that leave at {words.at(exit_span)} come back at {words.at(back)}"
        if feeder in case.graph.links.get(node, ()):
            notes.append(f"{between}: the source between the two lines passes them on.")
        elif event is not None and event.evidence == "equal values":
            notes.append(f"{between}: the numbers are equal.")
    return notes


# --- the path ---------------------------------------------------------------------------------


def flow_path(case: Case, separation: Separation) -> tuple[list[PathStep], int]:
    """The rows from parameters to loss, and how many operations beside them are left out."""
    graph = case.graph
    cut_nodes = {cut.node for cut in _cut_starts(case, separation)}
    steps = [
        PathStep(
            kind="parameter",
            name=case.name(node),
            state="live" if graph.live(node) else "off",
            shape=case.shape(node),
        )
        for node in _in_order(case, separation.targets)
    ]
    below = False
    for node in separation.path.nodes[1:]:
        cut = node in cut_nodes
        below = below or cut
        steps.append(_step(case, node, "cut" if cut else "values" if below else "live"))
    shown = {node for node in separation.path.nodes if node >= 0}
    beside = {n for n in graph.ancestors([separation.root]) if n >= 0} - shown
    return steps, len(beside)


def leaf_path(case: Case, node: int) -> list[PathStep]:
    """The rows from one leaf that wants no gradient to the root."""
    found = paths_to(case.graph, case.roots[0], [node]) if case.roots else {}
    rest = found[node].nodes[1:] if node in found else []
    made = case.graph.event(node)
    first = (
        _step(case, node, "off")
        if made is not None
        else PathStep(kind="parameter", name=case.name(node), state="off", shape=case.shape(node))
    )
    return [first, *(_step(case, n, "live" if case.graph.live(n) else "values") for n in rest)]


def _cut_starts(case: Case, separation: Separation) -> list[Block]:
    """For each cut, the node of the path at which it begins, seen from the parameters."""
    starts, left = [], {cut.key for cut in separation.cuts}
    for node in separation.path.nodes[1:]:
        block = case.graph.block(node)
        if block is not None and block.key in left:
            left.discard(block.key)
            starts.append(block)
    return starts


def _in_order(case: Case, nodes: list[int]) -> list[int]:
    order = {info.node: place for place, info in enumerate(case.question.parameters)}
    return sorted(nodes, key=lambda node: (order.get(node, len(order)), -node))


def _step(case: Case, node: int, state: FlowState) -> PathStep:
    event = case.graph.event(node)
    span = case.places.node_span(node)
    return PathStep(
        kind="op",
        name=display_name(event.op) if event is not None else "new tensor",
        state=state,
        shape=case.shape(node),
        file=span.file if span is not None else "",
        line=span.line if span is not None else 0,
        text=source_text(span) if span is not None else "",
    )


def source_text(span: Span) -> str:
    """The statement if it is just this expression with a name for it, else the expression."""
    expression, statement = expression_at(span), statement_at(span)
    whole = isinstance(statement, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)) and (
        getattr(statement, "value", None) is expression or isinstance(statement, ast.AugAssign)
    )
    chosen = statement if whole and statement is not None else expression
    if chosen is None:
        return location(span).text
    return shorten(text_of(chosen, span.file), _TEXT_WIDTH)
