"""backward() or autograd.grad() was given something that it does not take."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from whygrad.diagnose import complaints
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding, Fix, Related
from whygrad.source.files import load
from whygrad.source.spans import Span, location
from whygrad.source.tree import full_name, text_of
from whygrad.source.written import Written, argument_written

CODE = "autograd-arguments"

_BACKWARD = "backward-raised"
# Message -> where backward() and grad() take what it is about.
_PLACES = {
    "backward-inputs-empty": ((4, "inputs"), (1, "inputs")),
    "backward-inputs-mapping": ((4, "inputs"), (1, "inputs")),
    "grad-inputs-not-tensors": ((4, "inputs"), (1, "inputs")),
    "grad-outputs-not-tensors": ((0, "tensors"), (0, "outputs")),
    "backward-grad-wrong-type": ((0, "gradient"), (2, "grad_outputs")),
}
_SEQUENCES = (ast.List, ast.Tuple, ast.Dict, ast.Set)
_BUILT = (*_SEQUENCES, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.Call)
_GENERATORS = ("parameters", "named_parameters", "buffers", "children", "modules")
_ONCE = ("filter", "map", "zip", "iter", "reversed")


@dataclass(slots=True)
class _Listing:
    """Where the refused argument was put together, and what is wrong with it there."""

    where: Span
    label: str = ""
    fix: str = ""


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    listing = _listing(case, said)
    if listing is None:
        yield complaints.finding(case, said)
        return
    related = []
    if listing.where.line != said.where.line or listing.where.file != said.where.file:
        related.append(Related("used", location(said.where), "handed over here"))
    yield complaints.finding(
        case,
        said,
        where=listing.where,
        label=listing.label,
        fix=Fix(title=listing.fix) if listing.fix else None,
        related=related,
    )


def _listing(case: Case, said: Said) -> _Listing | None:
    places = _PLACES.get(said.message.id)
    if places is None or said.library is not None:
        return None
    index, keyword = places[0 if case.question.kind == _BACKWARD else 1]
    spans = [s for s in case.places.spans(said.complaint.stack) if not is_library(s.file)]
    written = argument_written(spans, index, keyword)
    if written is None or not isinstance(written.node, _BUILT):
        return None
    if said.message.id == "backward-inputs-empty":
        return _emptied(written)
    if isinstance(written.node, _SEQUENCES):
        wrong = _number_in(written.node)
        if wrong is not None:
            text = text_of(wrong, written.span.file)
            return _Listing(written.span, f"`{text}` is a number, not a tensor")
    return None


def _emptied(written: Written) -> _Listing:
    """Why a list of inputs is empty, as far as its own expression tells."""
    source, node = load(written.span.file), written.node
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
        conditions = [test for loop in node.generators for test in loop.ifs]
        if conditions:
            test = text_of(conditions[0], written.span.file)
            return _Listing(
                written.span,
                f"nothing is left: `{test}` holds for none of them",
                f"check `{test}`: it leaves no input to differentiate",
            )
        return _Listing(written.span, "there is nothing to go through", "")
    if isinstance(node, ast.Call):
        name = (full_name(source, node.func) or "").rpartition(".")[2]
        if name in _GENERATORS or name in _ONCE:
            return _Listing(
                written.span,
                "can be gone through only once, and then is empty",
                f"keep them in a list: `list({text_of(node, written.span.file)})`",
            )
    return _Listing(written.span, "empty when it is used", "")


def _number_in(node: ast.expr) -> ast.expr | None:
    """A plain number among the parts of a list that is written out."""
    parts = node.values if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    return next((part for part in parts if _is_number(part)), None)


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))
