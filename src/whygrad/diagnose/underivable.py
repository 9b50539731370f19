"""What torch says of operations without a derivative: the operation's line, and what to do."""

from __future__ import annotations

from whygrad.diagnose import complaints, failing, operations
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.derivatives import named_in, squashed
from whygrad.record.ops import COLLECTIVES, display_name
from whygrad.session import Finding, Fix, Related
from whygrad.source.handing import argument, making_call
from whygrad.source.spans import Span, location
from whygrad.source.tree import callee_name, statement_at

_MISSING = ("derivative-not-implemented-named", "derivative-not-implemented-op")
_DECOMPOSITIONS = ("svd-gauge-complex", "eigh-gauge-complex", "qr-complete", "qr-mode-r")

# Operation -> what has a second derivative and gives the same.
_TWICE = {
    "cdist": "compute the distances from differences: `(a[:, None] - b[None]).norm(dim=-1)`",
    "pdist": "compute the distances from differences, and take those above the diagonal",
    "scaled_dot_product_attention": "use the plain kernel here: `with torch.nn.attention."
    "sdpa_kernel(torch.nn.attention.SDPBackend.MATH):`",
    "multi_head_attention_forward": "use the plain kernel here: `with torch.nn.attention."
    "sdpa_kernel(torch.nn.attention.SDPBackend.MATH):`",
    "embedding_bag": "look the rows up with `embedding`, and sum or average them",
    "lstm": "switch CuDNN off here: `with torch.backends.cudnn.flags(enabled=False):`",
    "gru": "switch CuDNN off here: `with torch.backends.cudnn.flags(enabled=False):`",
}


def tell(case: Case, found: Said) -> Finding:
    match found.message.id:
        case name if name in _MISSING:
            return _missing(case, found)
        case name if name in _DECOMPOSITIONS:
            return _decomposition(case, found)
        case "argument-not-differentiable":
            return _argument(case, found)
        case "collective-not-differentiable":
            where = failing.span(case, _collective(case, found))
            if where is not None:
                found.words["call"] = callee_name(where) or found.words["call"]
            return complaints.finding(case, found, where=where)
        case "collective-not-differentiable":
            where = failing.span(case, failing.operation(case, found.complaint))
            if where is not None:
                found.words["call"] = callee_name(where) or found.words["call"]
            return complaints.finding(case, found, where=where)
        case "complex-not-supported":
            return complaints.finding(case, found, related=complex_since(case, found))
    return complaints.finding(case, found)


def _collective(case: Case, found: Said) -> int | None:
    """The operation that torch names, or else a collective, behind what backward() began at."""
    given = [each.node for each in found.complaint.given if each.requires_grad]
    behind = sorted((n for n in case.graph.ancestors(given) if n >= 0), reverse=True)
    ops = {node: event.op for node in behind if (event := case.graph.event(node)) is not None}
    wanted = squashed(found.words.get("g1", "").rpartition("::")[2])
    same = [node for node, op in ops.items() if squashed(op) == wanted]
    return next(iter(same or [node for node, op in ops.items() if op in COLLECTIVES]), None)


def _missing(case: Case, found: Said) -> Finding:
    node = failing.operation(case, found.complaint)
    where = failing.span(case, node)
    torchs = named_in(case.question.error_text).strip("_")
    twice = "backward" in torchs
    op = _operation(case, node)
    shown = f"`{op or torchs}`"
    if where is None:
        return complaints.finding(case, found, title=f"{shown} has no derivative in torch")
    if twice:
        return complaints.finding(
            case,
            found,
            where=where,
            title=f"{shown} has no second derivative in torch",
            label="its gradient can be computed, but not be differentiated again",
            why=f"torch computes the gradient of {shown} in one piece, and that piece has no "
            "derivative of its own. A gradient that was computed with `create_graph=True` leads "
            "back into it.",
            related=_grad_calls(case, where),
            fix=Fix(
                title=_TWICE.get(op, "build it from operations that have a second derivative"),
                safety="forward values stay equal up to rounding",
                deliberate="if no second derivative is wanted, leave `create_graph=True` out.",
            ),
        )
    gives, instead = operations.consequence(op)
    known = instead != operations.consequence("")[1]
    return complaints.finding(
        case,
        found,
        where=where,
        title=f"{shown} has no derivative in torch, and the loss depends on it",
        label="its output asks for gradient, and none can pass",
        why=f"{shown} has no derivative{f': {gives}' if known else ''}. Torch records the call "
        "all the same, and only backward() finds that nothing is known about it.",
        fix=Fix(
            title=instead if known else "use operations that have a derivative here",
            deliberate="if it is to be a constant, call it on `.detach()`: then backward() does "
            "not come to it.",
        ),
    )


def _operation(case: Case, node: int | None) -> str:
    event = case.graph.event(node) if node is not None else None
    shown = display_name(event.op) if event is not None else ""
    return {"floordiv": "floor_divide"}.get(shown, shown)


def _grad_calls(case: Case, where: Span) -> list[Related]:
    """Where the first gradient was computed, with its own history."""
    for node in sorted(case.graph.ancestors(case.question.roots), reverse=True):
        event = case.graph.event(node)
        span = case.places.node_span(node) if event is not None and event.op == "grad" else None
        if span is not None and span.line != where.line:
            return [Related("operation", location(span), "its gradient is computed here")]
    return []


def _decomposition(case: Case, found: Said) -> Finding:
    node = failing.operation(case, found.complaint)
    where = failing.span(case, node)
    return complaints.finding(case, found, where=where, related=_uses(case, node, where))


def _uses(case: Case, node: int | None, where: Span | None) -> list[Related]:
    """The first operation on the way to the loss that works on the factors."""
    if node is None or where is None:
        return []
    behind = sorted(case.graph.ancestors(case.question.roots))
    for user in behind:
        span = case.places.node_span(user) if node in case.graph.inputs(user) else None
        if span is not None and statement_at(span) is not statement_at(where):
            return [Related("used", location(span), "what it gave goes into the loss here")]
    return []


def _argument(case: Case, found: Said) -> Finding:
    """A loss module is given its weights where it is made, not where it is called."""
    name = found.words.get("g2", "")
    made = making_call(found.where) if argument(found.where, name) is None else None
    handed = argument(made, name) if made is not None else None
    where = made if made is not None and handed is not None else found.where
    calls = found.complaint.calls
    found.words["function"] = calls[0].rpartition(".")[2] if calls else "the function"
    given = [g for g in found.complaint.given if g.requires_grad]
    chosen = next((g for g in given if g.name == name), given[-1] if given else None)
    known = case.parameter(chosen.node) if chosen is not None else None
    span = case.places.node_span(chosen.node) if chosen is not None else None
    related = []
    if span is not None and span.line not in (where.line, found.where.line):
        related.append(Related("created", location(span), "what asks for gradient comes from here"))
    return complaints.finding(
        case,
        found,
        where=where,
        related=related,
        parameters=[known.name] if known is not None and known.name else [],
    )


def complex_since(case: Case, found: Said) -> list[Related]:
    """Where values became complex."""
    given = next((g for g in found.complaint.given if g.dtype.startswith("complex")), None)
    if given is None:
        return []
    span = failing.span(case, failing.maker_of_dtype(case, given.node, given.dtype))
    if span is None or span.line == found.where.line:
        return []
    return [Related("created", location(span), f"{given.dtype} since here")]
