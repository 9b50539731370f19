"""`torch.jit.trace` meets something trainable that it cannot take for a parameter."""

from __future__ import annotations

from whygrad.diagnose import complaints, left, unregistered
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding, Related
from whygrad.source.spans import location

MESSAGE = "trace-constant-requires-grad"


def tell(case: Case, said: Said) -> Finding:
    """At the attribute that no module registers, if it is kept in one."""
    wanting = [given for given in said.complaint.given if given.requires_grad]
    for given in wanting:
        info = case.parameter(given.node)
        made = left.made_at(case, given.node)
        if info is None or info.registered or not info.kept_as or not made:
            continue
        attribute = unregistered.attribute_of(info)
        where, store = unregistered.stored(made, attribute)
        return complaints.finding(
            case,
            said,
            where=where,
            title=f"`{attribute}` {unregistered.what(info, 1)}, so it cannot be traced",
            label=unregistered.label(info),
            fix=unregistered.fix(info, attribute, where, store),
            parameters=[info.name],
        )
    related = []
    for given in wanting[:1]:
        span = case.places.node_span(given.node)
        if span is not None and span.line != said.where.line:
            related.append(
                Related("created", location(span), "what asks for gradient is made here")
            )
    return complaints.finding(case, said, related=related)
