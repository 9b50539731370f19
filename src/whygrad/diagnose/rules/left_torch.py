"""Values that leave torch (`.item()`, `.numpy()`, float(), ...) and come back as a new tensor."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import story, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.exits import exit_of, rebuilds
from whygrad.graph.separate import Separation
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.edits import remove_method_call, replace_call_with_argument
from whygrad.source.spans import Span, location
from whygrad.source.tree import receiver_text

CODE = "left-torch"

_SPOKEN = {
    "item": ".item()",
    "tolist": ".tolist()",
    "numpy": ".numpy()",
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "int()",
    "__complex__": "complex()",
    "__array__": "numpy",
    "__dlpack__": "dlpack",
}


def diagnose(case: Case) -> Iterator[Finding]:
    for separation in case.separations:
        exit_node = exit_of(case, separation)
        if exit_node is not None and not rebuilds(case, exit_node):
            finding = _explain(case, separation, exit_node)
            if finding is not None:
                yield finding


def _explain(case: Case, separation: Separation, exit_node: int) -> Finding | None:
    event = case.graph.event(exit_node)
    if event is None:
        return None
    where, library = case.blame(event.stack, next(iter(event.inputs), None))
    if where is None:
        return None
    written = _SPOKEN.get(event.op, event.op)
    back = _return_span(case, separation, exit_node)
    related = []
    if back is not None and back != where:
        related.append(Related("return", location(back), "here they come back as a new tensor"))
    value = receiver_text(where) if library is None else None
    leaves = f"the numbers of `{value}`" if value and len(value) <= 40 else "the numbers"
    return story.cut_finding(
        case,
        separation,
        code=CODE,
        where=where,
        subject=f"leaving torch through `{written}`",
        label=f"{leaves} leave torch here, without their history",
        why=f"`{written}` hands plain numbers to Python or numpy. Autograd does not follow them, "
        "and a tensor made from them afterwards begins a new history"
        + (f" (at {words.at(back)})." if back is not None else "."),
        fix=Fix(
            title="stay in torch: compute this with torch operations on the tensor itself",
            edits=_edits(event.op, where, back) if library is None else [],
            safety="forward values stay equal up to rounding (numpy computes in float64)",
            deliberate="if it is deliberate (a constant, a reward, a target), no gradient can "
            "reach these parameters this way: give them a term of their own.",
        ),
        related=related,
    )


def _return_span(case: Case, separation: Separation, exit_node: int) -> Span | None:
    nodes = separation.path.nodes
    index = nodes.index(exit_node) + 1 if exit_node in nodes else len(nodes)
    return story.cut_span(case, nodes[index]) if index < len(nodes) else None


def _edits(op: str, where: Span, back: Span | None) -> list[Edit]:
    """Only a number used as it is can simply stay a tensor; numpy code has to be rewritten."""
    if back is None or (back.file, back.line) == (where.file, where.line):
        return []
    if op in ("item", "tolist"):
        return remove_method_call(where)
    if op in ("__float__", "__int__"):
        return replace_call_with_argument(where)
    return []
