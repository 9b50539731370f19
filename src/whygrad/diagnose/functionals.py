"""What torch.func and torch.autograd.functional say of mistakes that have codes of their own.

A loss that is no number, a vector of the wrong shape, a cut: the rules of these codes ask here
first, since inside a transform the line to change lies in the function that it runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from whygrad.diagnose import complaints, story, transformed
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.graph.flow import BlockKind
from whygrad.graph.links import Linker
from whygrad.record.events import Transform
from whygrad.session import Finding, Fix
from whygrad.source.edits import replace_call_with_argument
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at

UNUSED = "unused-input"
_SIZES = re.compile(r"of size (\[[\d, ]*\])")
_SHAPES = re.compile(r"should be torch\.Size\((\[.*?\])\) but got torch\.Size\((\[.*?\])\)")
_TANGENT = re.compile(r"with shape torch\.Size\((\[.*?\])\)")
_INPUTS = ("inputs", "primals", "args")  # torch's names for what a function is called with
_NUMBERS = ("float", "int", "bool", "complex", "float64", "float32", "ndarray")


def tell(case: Case, code: str) -> Finding | None:
    """The finding for a message that a rule of this code tells, if it is one of these."""
    found = complaints.said(case, code)
    telling = _TELLING.get(found.message.id) if found is not None else None
    if found is None or telling is None:
        return None
    transform = transformed.running(found.complaint)
    found.words |= transformed.mention(case, found, transform)
    return telling(case, found, transform)


def _non_scalar(case: Case, found: Said, transform: Transform | None) -> Finding:
    where = transformed.result_at(case, transform) if transform is not None else None
    if where is None and transform is not None:
        where = transformed.returned_at(case, transform)
    results = transform.results if transform is not None else []
    shape = next((given.shape for given in results), None)
    found.words["shape"] = str(list(shape)) if shape is not None else "more than one number"
    return complaints.finding(case, found, where=where)


def _input_type(case: Case, found: Said, transform: Transform | None) -> Finding:
    """Either the arguments are to blame, or what the function returned."""
    kind = found.words["type"]
    if "outputs of" not in case.question.error_text or transform is None:
        found.words["what"] = "the argument is"
        return complaints.finding(
            case,
            found,
            fix=Fix("pass a tensor, or a tuple of tensors (no list, no number)"),
        )
    found.words["what"] = f"{found.words['function']} returns"
    if kind in _NUMBERS:
        where = transformed.number_at(case, transform)
        edits = replace_call_with_argument(where) if where and _is_cast(where) else []
        fix = Fix(
            "return the tensor itself: a plain number has left torch, and its derivative is lost",
            edits=edits,
        )
    else:
        where = transformed.returned_at(case, transform, ast.Dict, ast.List, ast.Tuple)
        fix = Fix("return a tensor, or a tuple of tensors")
    return complaints.finding(case, found, where=where, fix=fix)


def _is_cast(span: Span) -> bool:
    node = expression_at(span)
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("float", "int")


def _vector(case: Case, found: Said, transform: Transform | None) -> Finding:
    """A vector or a tangent that does not fit: at the call that is given it."""
    name = transform.name if transform is not None else ""
    found.words["counterpart"] = "the output" if name == "vjp" else "the input"
    shapes = _SHAPES.search(case.question.error_text)
    title, where = "", None
    if shapes is not None:
        title = f"`v` has shape {shapes[2]}, and {found.words['counterpart']} has {shapes[1]}"
        where = _made_by_hand(case, found, shapes[2])
    return complaints.finding(case, found, title=title, where=where)


def _tangent(case: Case, found: Said, transform: Transform | None) -> Finding:
    sizes = _SIZES.findall(case.question.error_text)
    found.words |= dict(zip(("primal", "tangent"), sizes, strict=False))
    where = _made_by_hand(case, found, sizes[-1]) if sizes else None
    return complaints.finding(case, found, where=where)


def _linearized(case: Case, found: Said, transform: Transform | None) -> Finding:
    shape = _TANGENT.search(case.question.error_text)
    where = _made_by_hand(case, found, shape[1]) if shape is not None else None
    return complaints.finding(case, found, where=where)


def _made_by_hand(case: Case, found: Said, shape: str) -> Span | None:
    """The line that makes a vector of this shape, if it was made and not computed."""
    for given in found.complaint.given:
        event = case.graph.event(given.node)
        made = event is not None and (not event.inputs or event.op.endswith("_like"))
        if made and given.shape is not None and str(list(given.shape)) == shape:
            return case.user_span(event.stack) if event is not None and event.stack else None
    return None


def _independent(case: Case, found: Said, transform: Transform | None) -> Finding:
    where = transformed.returned_at(case, transform) if transform is not None else None
    return complaints.finding(case, found, where=where)


def _linear(case: Case, found: Said, transform: Transform | None) -> Finding:
    outermost = next(iter(found.complaint.transforms), None)
    where = transformed.called_at(case, outermost) if outermost is not None else None
    return complaints.finding(case, found, where=where)


def _cut(case: Case, found: Said, transform: Transform | None) -> Finding:
    """No derivative comes out of the function: is it cut, or does it not use its input?"""
    cut = _first_cut(case, found, transform) if transform is not None else None
    if cut is None:
        where = transformed.returned_at(case, transform) if transform is not None else None
        return complaints.finding(case, found, where=where, code=UNUSED)
    kind, where = cut
    code, fix = _CUTS[kind]
    return complaints.finding(
        case,
        found,
        where=where,
        code=code,
        label="from here on the input has no part in it",
        fix=Fix(
            fix,
            safety="changes derivatives only; values stay equal" if kind == "detach" else "",
            deliberate="without `strict=True` the derivative comes out as zeros.",
        ),
    )


def _first_cut(
    case: Case, found: Said, transform: Transform
) -> tuple[BlockKind, Span | None] | None:
    """What lies between the function's input and its result, the nearest to the input first."""
    graph = case.graph
    roots = [given.node for given in transform.results]
    given = [g.node for g in found.complaint.given if g.name in _INPUTS]
    inputs = [node for node in given if node not in roots]  # torch checks results by that name too
    linker = Linker(graph, case.places)
    for numbers in (False, True):
        while linker.link(graph.ancestors(roots), numbers=numbers):
            pass
    inside = graph.ancestors(roots) - graph.ancestors(inputs)
    blocks = [block for node in sorted(inside) if (block := graph.block(node)) is not None]
    # What is detached only because numpy wants it so leaves torch there.
    left = {node for block in blocks if block.kind == "exit" for node in graph.inputs(block.node)}
    for block in blocks:
        if block.node in left:
            continue
        if block.kind in _CUTS and graph.inputs(block.node):
            return block.kind, story.cut_span(case, block.node)
    return None


# What cuts, which code that has, and what to do about it.
_CUTS: dict[BlockKind, tuple[str, str]] = {
    "detach": ("detach-call", "delete the detach"),
    "exit": ("left-torch", "stay in torch: compute this with torch operations"),
    "rebuilt": ("rebuilt-tensor", "use the tensor itself instead of making a new one of it"),
    "not-differentiable": (
        "non-differentiable-op",
        "use an operation that has a derivative, or leave this result out",
    ),
    "switch": ("no-grad-block", "take the function out of `no_grad()`"),
}


_TELLING: dict[str, Callable[[Case, Said, Transform | None], Finding]] = {
    "func-grad-non-scalar": _non_scalar,
    "functional-hessian-non-scalar": _non_scalar,
    "functional-input-type": _input_type,
    "functional-v-missing": _vector,
    "functional-v-size": _vector,
    "vjp-structure": _vector,
    "linearize-tangent": _linearized,
    "forward-ad-tangent-size": _tangent,
    "functional-strict-independent": _independent,
    "functional-strict-linear": _linear,
    "jvp-strict-independent": _cut,
    "functional-strict-no-grad-output": _cut,
}
