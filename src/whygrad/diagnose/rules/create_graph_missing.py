"""Gradients that are to be differentiated again were computed without a graph of their own."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, custom, functionals, ungraphed
from whygrad.diagnose.case import Case
from whygrad.session import Finding

CODE = "create-graph-missing"


def diagnose(case: Case) -> Iterator[Finding]:
    told = functionals.tell(case, CODE) or custom.differentiable_once(case, CODE)
    yield from complaints.plain(case, CODE) if told is None else [told]
    if case.question.kind == "health":
        yield from ungraphed.without_effect(case)
    elif case.question.kind != "no-gradient":
        yield from ungraphed.in_the_way(case)
