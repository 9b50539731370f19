"""What torch says when values are to leave it: for numpy, another library, another process."""

from __future__ import annotations

import re

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding, Related
from whygrad.source.handing import making_call
from whygrad.source.spans import Span, line_span, location
from whygrad.source.tree import callee_name, statement_at

_SCRIPT_LINE = re.compile(r'File "([^"]+)", line (\d+), in ')
_REBUILT = "rebuilt-tensor"
_CONSTRUCTORS = ("tensor", "Tensor", "as_tensor", "asarray", "new_tensor", "FloatTensor")


def tell(case: Case, found: Said) -> Finding:
    """At the line that lets them leave, with the line that computed them."""
    where, code = found.where, ""
    if found.message.id == "script-scalar-requires-grad":
        where = _in_script(case.question.error_text) or where
    elif found.message.id == "multiprocessing-non-leaf":
        where = _handed_over(where)
    elif (callee_name(where) or "").rpartition(".")[2] in _CONSTRUCTORS:
        code = _REBUILT if _REBUILT in found.message.codes else ""
    return complaints.finding(case, found, where=where, code=code, related=computed(case, found))


def computed(case: Case, found: Said, where: Span | None = None) -> list[Related]:
    """Where the tensor that is to leave was computed, if that is another line."""
    given = next((g for g in found.complaint.given if g.requires_grad), None)
    span = case.places.node_span(given.node) if given is not None and not given.leaf else None
    if span is None or statement_at(span) is statement_at(where or found.where):
        return []
    return [Related("created", location(span), "what carries the history is computed here")]


def _in_script(text: str) -> Span | None:
    """The innermost line of TorchScript's own traceback."""
    lines = _SCRIPT_LINE.findall(text)
    return line_span(lines[-1][0], int(lines[-1][1])) if lines else None


def _handed_over(where: Span) -> Span:
    """A process is given its arguments where it is made, not where it is started."""
    name = (callee_name(where) or "").rpartition(".")[2]
    return (making_call(where) or where) if name == "start" else where
