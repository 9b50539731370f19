"""Shapes that must be equal and are not: output and gradient, prediction and target."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from itertools import combinations

from whygrad.diagnose import complaints, functionals
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Given
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.edits import replace_text
from whygrad.source.files import load
from whygrad.source.spans import Span, location
from whygrad.source.tree import expression_at, node_span, text_of
from whygrad.source.written import argument

CODE = "grad-shape-mismatch"

_LOSSES = ("loss-target-size-broadcast", "loss-target-size-error")
_GRADIENTS = (
    "backward-grad-shape",
    "backward-grad-batched-shape",
    "backward-grad-complex-mismatch",
)
_SIZES = re.compile(r"torch\.Size\(\[([^\]]*)\]\)")
# Constructors by which a gradient to start with is made by hand.
_MAKERS = frozenset(
    """
    ones zeros full tensor rand randn eye empty normal scalar_tensor ones_like zeros_like
    full_like rand_like randn_like new_ones new_zeros new_full new_tensor as_tensor
    """.split()
)
# Those of them whose values say nothing but "every element counts alike".
_ONES = frozenset(["ones", "ones_like", "new_ones"])
Shape = tuple[int, ...]


def diagnose(case: Case) -> Iterator[Finding]:
    told = functionals.tell(case, CODE)
    if told is not None:
        yield told
        return
    said = complaints.said(case, CODE)
    if said is None:
        return
    if said.message.id in _LOSSES:
        yield _loss(case, said)
    elif said.message.id in _GRADIENTS:
        yield _gradient(case, said)
    else:
        yield _assigned(case, said)


def _assigned(case: Case, said: Said) -> Finding:
    """A gradient was put into `.grad`; the tensor is named as its model knows it."""
    given, title = next(iter(said.complaint.given), None), said.fill(said.message.title)
    info = case.parameter(given.node) if given is not None else None
    here = said.words["receiver"]
    if info is None or not info.name:
        return complaints.finding(case, said)
    if not here.endswith(info.name):
        title = title.replace(f"`{here}`", f"`{info.name}` (`{here}` here)", 1)
    return complaints.finding(case, said, title=title, parameters=[info.name])


def _shapes(case: Case) -> list[Shape]:
    """The shapes that the message names, in its order."""
    found = _SIZES.findall(case.question.error_text)
    return [tuple(int(size) for size in text.split(",") if size.strip()) for text in found]


# --- a gradient that was handed over ----------------------------------------------------------


def _gradient(case: Case, said: Said) -> Finding:
    output, shapes = case.root_name, _shapes(case)
    said.words["output"] = f"`{output}`"
    if len(shapes) == 2:
        said.words |= {"given": str(list(shapes[0])), "expected": str(list(shapes[1]))}
    given = _handed_over(case, said, shapes)
    made = _made_by_hand(case, given) if given is not None else None
    batched = said.message.id == "backward-grad-batched-shape"
    alike = f"torch.ones_like({output})"
    fix = Fix(title=f"make it like the output: `{alike}`", deliberate=_deliberate(shapes))
    if given is not None and len(shapes) == 2 and not _says_alike(case, given):
        deliberate = f"if every element should count alike: `{alike}`."
        fix = Fix(title=_in_shape(shapes, output), deliberate=deliberate)
    return complaints.finding(
        case,
        said,
        where=made,
        fix=None if batched else fix,
        related=_output_made(case, made or said.where),
    )


def _says_alike(case: Case, given: Given) -> bool:
    """Whether a gradient is ones, or one number for everything; others are weights."""
    event = case.graph.event(given.node)
    number = given.shape is not None and math.prod(given.shape) == 1
    return event is not None and (event.op in _ONES or (number and event.op in _MAKERS))


def _in_shape(shapes: list[Shape], output: str) -> str:
    """How weights get the shape of the output, where there is just one way."""
    given, wanted = shapes
    if math.prod(given) == math.prod(wanted):
        sizes = ", ".join(map(str, wanted))
        return f"bring its values into the output's shape: `.reshape({sizes})`"
    places = _placed(given, wanted)
    if len(places) == 1:
        sizes = ", ".join(map(str, places.pop()))
        view = "" if len(given) == len(wanted) else f".reshape({sizes})"
        return f"bring the weights into the output's shape: `{view}.expand_as({output})`"
    return (
        f"bring the weights into the output's shape, {list(wanted)}, or reduce `{output}` to "
        f"theirs, {list(given)}"
    )


def _placed(given: Shape, wanted: Shape) -> set[Shape]:
    """The shapes, with ones put in, in which weights can be spread over an output."""
    found = set()
    for chosen in combinations(range(len(wanted)), len(given)):
        sizes = dict(zip(chosen, given, strict=True))
        if all(size in (1, wanted[dim]) for dim, size in sizes.items()):
            found.add(tuple(sizes.get(dim, 1) for dim in range(len(wanted))))
    return found


def _handed_over(case: Case, said: Said, shapes: list[Shape]) -> Given | None:
    """The gradient that does not fit, among what the call was given."""
    known = {*case.question.roots, *case.question.targets}
    others = [g for g in said.complaint.given if g.node not in known]
    exact = [g for g in others if shapes and g.shape == shapes[0]]
    return next(iter(exact or others), None)


def _made_by_hand(case: Case, given: Given) -> Span | None:
    """The line of the program that makes a gradient; None if it was computed."""
    event = case.graph.event(given.node)
    if event is None or event.op not in _MAKERS:
        return None
    spans = case.places.node_spans(given.node)
    return next((span for span in spans if not is_library(span.file)), None)


def _output_made(case: Case, where: Span) -> list[Related]:
    """The operation that gave the output its shape."""
    root = next(iter(case.question.roots), None)
    span = case.places.node_span(root) if root is not None else None
    if root is None or span is None or case.graph.event(root) is None:
        return []
    if (span.file, span.line) == (where.file, where.line):
        return []
    return [Related("created", location(span), f"gives the output its shape, {case.shape(root)}")]


def _deliberate(shapes: list[Shape]) -> str:
    if len(shapes) == 2 and math.prod(shapes[0]) == math.prod(shapes[1]):
        return (
            f"if its values are meant, give it the output's shape: "
            f"`.reshape({', '.join(map(str, shapes[1]))})`."
        )
    return ""


# --- prediction and target --------------------------------------------------------------------


def _loss(case: Case, said: Said) -> Finding:
    shapes = _shapes(case)
    if len(shapes) == 2:
        target, given = shapes
        said.words |= {"target": str(list(target)), "input": str(list(given))}
        both = _broadcast(target, given)
        said.words["both"] = str(list(both)) if both is not None else "each other"
    return complaints.finding(
        case, said, fix=_loss_fix(said, shapes), related=_shapes_made(case, said, shapes)
    )


def _loss_fix(said: Said, shapes: list[Shape]) -> Fix:
    """Take away the dimension that one of the two has more, if that is all there is to it."""
    if len(shapes) == 2:
        target, given = shapes
        for shape, other, place, keyword in (
            (given, target, 0, "input"),
            (target, given, 1, "target"),
        ):
            dim = _extra(shape, other)
            if dim is not None:
                text, edits = _squeezed(said, place, keyword, dim)
                return Fix(
                    title=f"take the extra dimension away: `{text}.squeeze({dim})`",
                    edits=edits,
                    safety="pairs each prediction with its own target",
                )
    return Fix(title=said.fill(said.message.fix))


def _extra(shape: Shape, other: Shape) -> int | None:
    """The dimension of size one that a shape has in addition to another."""
    if shape == (*other, 1):
        return -1
    for dim, size in enumerate(shape):
        if size == 1 and shape[:dim] + shape[dim + 1 :] == other:
            return dim
    return None


def _squeezed(said: Said, place: int, keyword: str, dim: int) -> tuple[str, list[Edit]]:
    call = expression_at(said.where)
    given = argument(call, place, keyword) if isinstance(call, ast.Call) else None
    if given is None or said.library is not None:
        return keyword, []
    text = text_of(given, said.where.file)
    if not isinstance(given, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return keyword, []
    span = node_span(load(said.where.file), given)
    shown = text if len(text) <= 40 and "\n" not in text else keyword
    return shown, replace_text(span, f"{text}.squeeze({dim})")


def _broadcast(one: Shape, other: Shape) -> Shape | None:
    rank = max(len(one), len(other))
    pairs = zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True)
    sizes = [(a, b) for a, b in pairs]
    if any(a != b and 1 not in (a, b) for a, b in sizes):
        return None
    return tuple(max(a, b) for a, b in sizes)


def _shapes_made(case: Case, said: Said, shapes: list[Shape]) -> list[Related]:
    """Where prediction and target got their shapes."""
    found: dict[str, Related] = {}
    for given in said.complaint.given:
        if given.shape not in shapes or case.graph.event(given.node) is None:
            continue
        what = "target" if given.shape == shapes[0] else "prediction"
        span = case.places.node_span(given.node)
        if span is not None and (span.file, span.line) != (said.where.file, said.where.line):
            label = f"the {what} gets shape {list(given.shape or ())}"
            found.setdefault(what, Related("created", location(span), label))
    return list(found.values())
