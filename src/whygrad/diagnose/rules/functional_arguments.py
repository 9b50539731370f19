"""Arguments of torch.autograd.functional that do not go together, or a function it cannot take."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.diagnose import complaints, transformed
from whygrad.diagnose.case import Case
from whygrad.session import Edit, Finding, Fix
from whygrad.source.edits import add_keyword
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at

CODE = "functional-arguments"


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        return
    transform = transformed.running(found.complaint)
    found.words |= transformed.mention(case, found, transform)
    if found.message.id == "functional-hessian-tuple" and transform is not None:
        where = transformed.returned_at(case, transform, ast.Tuple)
        yield complaints.finding(case, found, where=where)
        return
    fix = Fix(found.fill(found.message.fix), edits=_vectorized(case, found.where))
    yield complaints.finding(case, found, fix=fix)


def _vectorized(case: Case, where: Span) -> list[Edit]:
    """Where only `vectorize=True` is missing, and nothing stands against it."""
    node = expression_at(where)
    given = {k.arg for k in node.keywords} if isinstance(node, ast.Call) else {None}
    if "vectorize=True" not in case.question.error_text or given & {"create_graph", "strict", None}:
        return []
    return add_keyword(where, "vectorize=True")
