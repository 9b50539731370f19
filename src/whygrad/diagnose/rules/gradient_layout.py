"""A gradient whose memory layout is not that of its parameter."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case
from whygrad.session import Finding

CODE = "gradient-layout"

_SIZES = re.compile(r"(?:param|grad)\.sizes\(\) = \[([\d, ]*)\]")
_BUCKETS = "ddp-grad-strides"


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    history, sizes = said.complaint.history, _SIZES.search(case.question.error_text)
    shape = [int(n) for n in sizes[1].split(",") if n.strip()] if sizes else None
    laid_out = history.account.laid_out if history is not None else {}
    if said.message.id == _BUCKETS and history is not None:
        # Torch reserves memory when the model is wrapped: in whose layout has changed since?
        laid_out = history.converted
    nodes = [node for node in laid_out if shape is None or case.shape(node) == shape]
    where = case.user_span(laid_out[nodes[-1]]) if nodes else None
    yield complaints.finding(case, said, where=where, parameters=case.names(nodes[-1:]))
