"""Values that leave torch (`.item()`, `.numpy()`, float(), ...) and come back as a new tensor."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, departures, functionals, lost_losses, story, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.exits import exit_of, rebuilds
from whygrad.graph.separate import Separation
from whygrad.record.events import Event
from whygrad.record.ops import REBUILDING
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.arguments import inside_call
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
    told = functionals.tell(case, CODE)
    if told is not None:
        yield told
        return
    said = complaints.said(case, CODE)
    if said is not None:
        lost = said.message.id in lost_losses.MESSAGES
        yield lost_losses.tell(case, said) if lost else departures.tell(case, said)
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
    where, library = case.blame(event.stack, separation.feeder(exit_node))
    if where is None:
        return None
    written = _SPOKEN.get(event.op, event.op)
    back_node = _return_node(separation, exit_node)
    back = story.cut_span(case, back_node) if back_node is not None else None
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
            edits=_edits(case, event, where, back_node) if library is None else [],
            safety="forward values stay equal up to rounding",
            deliberate="if it is deliberate (a constant, a reward, a target), no gradient can "
            "reach these parameters this way: give them a term of their own.",
        ),
        related=related,
    )


def _return_node(separation: Separation, exit_node: int) -> int | None:
    """The node of the path through which the values came back."""
    nodes = separation.path.nodes
    index = nodes.index(exit_node) + 1 if exit_node in nodes else len(nodes)
    return nodes[index] if index < len(nodes) else None


def _edits(case: Case, event: Event, where: Span, back_node: int | None) -> list[Edit]:
    """Only a number that enters an operation as it is can simply stay a tensor."""
    back = case.graph.event(back_node) if back_node is not None else None
    if back is None or back.op in REBUILDING or inside_call(where):
        return []
    if event.op == "item":
        return remove_method_call(where)
    return replace_call_with_argument(where) if event.op == "__float__" else []
