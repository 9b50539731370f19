"""A parameter of a lazy module is used before the first forward pass has given it a shape."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding, Related
from whygrad.source.spans import Span, location
from whygrad.source.tree import callee_name

CODE = "lazy-parameter"


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    made = _made(case, said)
    where = _before(case, said, made)
    lazy = next((name for span in made if "Lazy" in (name := callee_name(span) or "")), "")
    said.words["module"] = f"`{lazy.rpartition('.')[2]}`" if lazy else "a lazy module"
    names = [name for g in said.complaint.given if (name := _name(case, g.node))]
    related = [Related("created", location(span), "the lazy module") for span in made[:1]]
    yield complaints.finding(
        case,
        said,
        where=where,
        related=[r for r in related if r.location.line != where.line],
        parameters=names[:1],
    )


def _name(case: Case, node: int) -> str:
    info = case.parameter(node)
    return info.name if info is not None else ""


def _made(case: Case, said: Said) -> list[Span]:
    """The program's own lines that made the lazy module, innermost first."""
    nodes = [g.node for g in said.complaint.given if g.shape is None]
    nodes += [info.node for info in case.question.parameters if not nodes and not info.shape]
    spans = case.places.node_spans(nodes[0]) if nodes else ()
    return [span for span in spans if not is_library(span.file)]


def _before(case: Case, said: Said, made: list[Span]) -> Span:
    """The line before which a forward pass belongs: in the function that has made the model.

    A helper that counts or initialises parameters is right; it is called too early.
    """
    homes = {(span.file, span.first_line) for span in made}
    for span in case.places.spans(said.complaint.stack):
        if (span.file, span.first_line) in homes:
            return span
    return said.outer or said.where
