"""What gradcheck() was given, and what may be wrong where no custom Function is to blame."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whygrad.diagnose import complaints, custom
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.graph.flow import BlockKind
from whygrad.record.events import CHECKED, Definition, Given
from whygrad.session import Finding, Fix
from whygrad.source import contexts, methods
from whygrad.source.spans import Span

_NUMBER = re.compile(r"-?\d+\.\d*(?:e[-+]\d+)?")
_NUMBERS = frozenset("item float int bool tolist numpy".split())
_UNCONNECTED = "gradcheck-zero-expected"
_OUTPUTS = ("func_out", "outputs", "output")  # as gradcheck()'s own functions call them
_DOUBLE = ("float64", "complex128")
# Where gradient ends although the values go on: the code that tells of such a place.
_CUTS: dict[BlockKind, str] = {
    "detach": "detach-call",
    "switch": "no-grad-block",
    "exit": "left-torch",
    "rebuilt": "rebuilt-tensor",
    "not-differentiable": "non-differentiable-op",
}


def definitions(found: Said) -> list[Definition]:
    """The custom Functions behind what was checked, the program's own before a library's."""
    known = [d for d in found.complaint.functions if d.autograd_name]
    return sorted(known, key=lambda d: all(is_library(file) for file, _ in d.methods.values()))


def checked_function(found: Said) -> Definition | None:
    """The function that was checked, if the program wrote it."""
    return next((d for d in found.complaint.functions if CHECKED in d.methods), None)


def is_checked_directly(found: Said, owner: Definition) -> bool:
    """Whether gradcheck() was given `Function.apply` itself: then its inputs are forward's."""
    return checked_function(found) is None and len(definitions(found)) == 1 and bool(owner.methods)


def inputs(found: Said) -> list[Given]:
    """The tensors that were checked."""
    given = [g for g in found.complaint.given if g.name in ("inputs", "tupled_inputs")]
    return given or [g for g in found.complaint.given if g.name == "inp"]


def outputs(found: Said) -> list[Given]:
    return [g for g in found.complaint.given if g.name in _OUTPUTS]


def outputs_without_history(case: Case) -> tuple[int, ...]:
    """What gradcheck() got, where it says that autograd does not connect it with the input."""
    complaint = case.question.complaint
    if complaint is None or complaint.message != _UNCONNECTED:
        return ()
    given = [g for g in complaint.given if g.name in _OUTPUTS and not g.requires_grad]
    return tuple(dict.fromkeys(g.node for g in given))


def imprecise(found: Said) -> list[Given]:
    """Inputs for which finite differences are too coarse."""
    return [g for g in inputs(found) if g.requires_grad and g.dtype not in _DOUBLE]


def made_at(case: Case, given: Given) -> Span | None:
    """The line that made an input."""
    spans = [span for span in case.places.node_spans(given.node) if not is_library(span.file)]
    return spans[0] if spans else None


def doubts(found: Said, owners: list[Definition]) -> list[str]:
    """What else could make the numbers differ."""
    notes = []
    if len(owners) > 1:
        notes.append(f"{len(owners)} custom Functions take part; the last one is shown.")
    if imprecise(found):
        notes.append("an input is not float64, which alone can make the check fail.")
    return notes


def largest_difference(text: str) -> list[str]:
    """The two numbers of gradcheck()'s matrices that are furthest apart, in words."""
    matrices = [_NUMBER.findall(part) for part in re.split(r"numerical:|analytical:", text)[1:3]]
    if len(matrices) != 2 or not matrices[0] or len(matrices[0]) != len(matrices[1]):
        return []
    pairs = [(float(n), float(a)) for n, a in zip(*matrices, strict=True)]
    numerical, analytical = max(pairs, key=lambda pair: abs(pair[0] - pair[1]))
    return [
        f"where the two are furthest apart, backward gives {analytical:.4g}, and moving the input "
        f"gives {numerical:.4g}."
    ]


def without_function(case: Case, found: Said) -> Iterator[Finding]:
    """No custom backward takes part: then it is the precision, or a part of the graph is cut."""
    coarse = imprecise(found)
    where = made_at(case, coarse[0]) if coarse else None
    if where is not None:
        yield complaints.finding(
            case,
            found,
            where=where,
            code="gradcheck-setup",
            title=f"gradcheck() compares finite differences in {coarse[0].dtype}",
            label=f"made as {coarse[0].dtype}",
            why=f"a numerical derivative moves each input by 1e-6. {coarse[0].dtype} cannot "
            "resolve such a step, so the two derivatives differ even where both are right.",
            fix=Fix(title="make the inputs with `dtype=torch.float64`"),
        )
        return
    cut = _cut(case, found)
    if cut is not None:
        kind, span = cut
        yield complaints.finding(
            case,
            found,
            where=span,
            code=_CUTS[kind],
            title="a part of what the checked function computes carries no gradient",
            label="gradient ends here, the values go on",
            why="the values that pass here change with the input, and autograd does not see how. "
            "So its derivative lacks a part that the numerical one has.",
            fix=Fix(title="keep the history of these values"),
        )
        return
    function = checked_function(found)
    head = methods.head_span(function.methods[CHECKED]) if function is not None else None
    yield complaints.finding(case, found, where=custom.own_line(case, found, None, head))


def _cut(case: Case, found: Said) -> tuple[BlockKind, Span] | None:
    """The last place behind the outputs where values of an input go on without gradient."""
    graph = case.graph
    sources = {given.node for given in inputs(found)}
    behind = graph.ancestors([given.node for given in outputs(found)])
    for node in sorted(behind, reverse=True):
        block = graph.block(node)
        if block is None or block.kind not in _CUTS or block.inside_function:
            continue
        span = case.places.node_span(node)
        if span is not None and sources & graph.ancestors([node]):
            return block.kind, span
    return None


def not_for_batches(case: Case, found: Said) -> Finding:
    """The line of a backward that needs one number where a batch of them is."""
    owners = [d for d in definitions(found) if custom.derivative(d) is not None]
    for owner in owners:
        place = custom.derivative(owner)
        calls = contexts.calls_named(place, _NUMBERS) if place is not None else []
        if calls:
            where = custom.own_line(case, found, owner, calls[0])
            return complaints.finding(case, found, where=where)
    head = custom.head(owners[0]) if owners else None
    where = custom.own_line(case, found, owners[0] if owners else None, head)
    return complaints.finding(case, found, where=where)
