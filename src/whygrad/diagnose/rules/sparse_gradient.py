"""A sparse gradient where only dense ones work, or the other way round."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.diagnose import complaints, words
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.graph.consumers import Consumers
from whygrad.record.ops import display_name
from whygrad.session import Finding, Related
from whygrad.source.spans import Span, location
from whygrad.source.tree import expression_at

CODE = "sparse-gradient"

_LOOKUPS = ("embedding", "embedding_bag")
_SPARSE = ("sparse_coo", "sparse_csr")
# The option of the optimizer is what is easily left out; the embedding may be meant as it is.
_AT_OPTIMIZER = (
    "adagrad-weight-decay-sparse",
    "sgd-weight-decay-sparse",
    "fused-optimizer-sparse",
    "sparse-adam-dense",
)


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    if said.message.id == "embedding-scale-freq-sparse":
        yield _both_options(case, said)
        return
    dense = said.message.id == "sparse-adam-dense"
    nodes = [h.node for h in said.complaint.held if h.gradient and (h.gradient in _SPARSE) != dense]
    shapes = [] if nodes else _gradients_given(case, said)
    if shapes:
        alike = [i.node for i in case.question.parameters if i.has_grad and i.shape in shapes]
        nodes = alike if len(alike) == 1 else []
    if nodes or shapes:
        yield _finding(case, said, nodes, dense)


def _both_options(case: Case, said: Said) -> Finding:
    """The lookup whose derivative failed leads to its table, and that to where it was made."""
    graph, failed = case.graph, said.complaint.failed
    lookups = [] if failed is None else [failed]
    lookups += sorted(graph.ancestors(case.question.roots), reverse=True)
    events = [event for node in lookups if (event := graph.event(node)) is not None]
    fed = [n for event in events if display_name(event.op) in _LOOKUPS for n in event.inputs]
    tables = {node: _choice(case, node) for node in fed if graph.trainable_leaf(node)}
    for node, where in tables.items():
        if where is not None and _mentions(where, "scale_grad_by_freq"):
            return complaints.finding(case, said, where=where, parameters=case.names([node]))
    known = next(iter(tables.values()), None) if len(tables) == 1 else None
    return complaints.finding(case, said, where=known, parameters=case.names([*tables][:1]))


def _gradients_given(case: Case, said: Said) -> list[tuple[int, ...]]:
    """The shapes of the sparse gradients that the program itself handed to the failing call."""
    sparse = [given.node for given in said.complaint.given if given.layout in _SPARSE]
    events = [case.graph.event(node) for node in sparse]
    return [e.shape for e in events if e is not None and e.op == ".grad" and e.shape is not None]


def _finding(case: Case, said: Said, nodes: list[int], dense: bool) -> Finding:
    names = case.names(nodes)
    one = len(names) == 1
    made = next((m for m in said.complaint.made if m.kind == "optimizer"), None)
    maker = case.user_span(made.stack) if made is not None and made.stack else None
    said.words |= {
        "parameters": words.listed(names, 2) if names else "a parameter",
        "have": "has" if one else "have",
        "optimizer": made.type if made is not None else "the optimizer",
    }
    choice = _choice(case, nodes[0]) if nodes else None
    if said.message.id in _AT_OPTIMIZER:
        where, other = maker, choice
        label = f"makes {words.listed(names, 1)}" if dense else "asks for a sparse gradient"
    else:
        where, other = choice, maker
        label = "made with parameters that get sparse gradients"
    return complaints.finding(
        case,
        said,
        where=where,
        related=_related(other, where or said.where, label),
        parameters=names,
        checked=[_seen(said, len(nodes), dense)] if nodes else [],
    )


def _seen(said: Said, count: int, dense: bool) -> str:
    held = [h for h in said.complaint.held if h.gradient]
    kind = "dense" if dense else "sparse"
    if not held:
        return f"the gradient is {kind}."
    return (
        f"{count} of {words.count(len(held), 'gradient')} {'is' if count == 1 else 'are'} {kind}."
    )


def _related(span: Span | None, where: Span, label: str) -> list[Related]:
    if span is None or (span.file, span.line) == (where.file, where.line):
        return []
    return [Related("created", location(span), label)]


def _choice(case: Case, node: int) -> Span | None:
    """The line that asked for sparse gradients: of the table, or of the lookup in it."""
    source = case.graph.source(node)
    made = [s for s in case.places.spans(source.stack) if not is_library(s.file)] if source else []
    users = Consumers(case.graph.recording).users(node)
    used = [span for user in users[:1] for span in case.places.node_spans(user)[:1]]
    for span in (*made, *used):
        if _mentions(span, "sparse"):
            return span
    return next(iter([*made[:1], *used]), None)


def _mentions(span: Span, option: str) -> bool:
    """Whether the call at a span is given an option, or is one that is named like it."""
    call = expression_at(span)
    if not isinstance(call, ast.Call):
        return False
    named = any(keyword.arg == option for keyword in call.keywords)
    return named or option in ast.unparse(call.func)
