"""An optimizer is given parameters twice, parameters it cannot train, or no closure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from whygrad.diagnose import complaints, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding
from whygrad.source.given import defined_at
from whygrad.source.spans import Span
from whygrad.source.tree import callee_name

CODE = "optimizer-arguments"

_REPEATED = ("optimizer-duplicate-params", "optimizer-params-in-two-groups")


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    if said.message.id == "lbfgs-no-closure":
        yield complaints.finding(case, said)
        return
    nodes = _concerned(case, said)
    names = case.names(nodes)
    said.words["parameters"] = words.listed(names, 3) if names else "a parameter"
    said.words["are"] = "is" if len(names) < 2 else "are"
    where = _list(case, said) if said.message.id in _REPEATED else None
    if where is not None and where.line == said.where.line:
        where = None
    yield complaints.finding(case, said, where=where, parameters=names)


def _concerned(case: Case, said: Said) -> list[int]:
    """The parameters that are there twice, or of the wrong shape."""
    nodes = [holding.node for holding in said.complaint.held]
    if said.message.id in _REPEATED:
        return [node for node, count in Counter(nodes).items() if count > 1]
    return [node for node in nodes if len(case.shape(node) or ()) != 2]


def _list(case: Case, said: Said) -> Span | None:
    """The list of parameters, where it was written down before."""
    if (callee_name(said.where) or "").endswith("add_param_group"):
        return None
    return defined_at(case.places.spans(said.complaint.stack), 0, "params")
