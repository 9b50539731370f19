"""A new tensor built from existing ones: torch.tensor([...]), Variable(x), nn.Parameter(x)."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, story
from whygrad.diagnose.case import Case
from whygrad.diagnose.exits import exit_of, rebuilds
from whygrad.graph.separate import Separation
from whygrad.session import Edit, Finding, Fix
from whygrad.source.arguments import argument_kind
from whygrad.source.edits import rename_callee, replace_call_with_argument
from whygrad.source.spans import Span
from whygrad.source.tree import callee_name

CODE = "rebuilt-tensor"


def diagnose(case: Case) -> Iterator[Finding]:
    yield from complaints.plain(case, CODE)
    for separation in case.separations:
        node = _rebuilt_node(case, separation)
        if node is not None:
            finding = _explain(case, separation, node)
            if finding is not None:
                yield finding


def _rebuilt_node(case: Case, separation: Separation) -> int | None:
    if separation.first.kind == "rebuilt":
        return separation.first.node
    exit_node = exit_of(case, separation)
    return exit_node if exit_node is not None and rebuilds(case, exit_node) else None


def _explain(case: Case, separation: Separation, node: int) -> Finding | None:
    event, source = case.graph.event(node), case.graph.source(node)
    stack = event.stack if event is not None else source.stack if source is not None else 0
    where, library = case.blame(stack, separation.feeder(node))
    if where is None:
        return None
    name = callee_name(where) if library is None else None
    made_by = source.made_by if source is not None else event.op if event is not None else ""
    written = f"{name or made_by}(…)".removeprefix(".")
    return story.cut_finding(
        case,
        separation,
        code=CODE,
        where=where,
        subject=f"`{written}`",
        label="copies the numbers into a new tensor; their history stays behind",
        why=f"`{written}` makes a new tensor from the values of existing ones. The new tensor "
        "is a leaf with no history, so autograd has no edge back to what it was made from.",
        fix=_fix(case, where if library is None else None),
    )


def _fix(case: Case, where: Span | None) -> Fix:
    title = "use the tensors themselves, or join them with torch.stack or torch.cat"
    edits: list[Edit] = []
    kind = argument_kind(where) if where is not None else None
    if where is not None and kind == "sequence":
        title = "join the tensors with torch.stack, which keeps their history"
        edits = rename_callee(where, "torch.stack")
    elif where is not None and kind == "value":
        title, edits = "use the tensor itself", replace_call_with_argument(where)
    return Fix(
        title=title,
        edits=edits,
        safety="changes gradients only; forward values stay equal",
        deliberate="if it is deliberate (a constant target), say so with `.detach()`"
        + (": but then this loss trains nothing." if case.raises else "."),
    )
