"""Two dtypes that meet where they cannot: in an in-place write, or in the backward of a loss."""

from __future__ import annotations

from whygrad.diagnose import complaints, failing, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.ops import IN_PLACE_DUNDERS
from whygrad.session import Finding, Fix, Related
from whygrad.source.inplace_edits import out_of_place
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, statement_at
from whygrad.source.uses import written_name

MESSAGES = ("inplace-cannot-cast", "dtype-mismatch-in-backward")

# Torch's own words -> the name that a program uses.
DTYPES = {
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Float": "float32",
    "Double": "float64",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Byte": "uint8",
    "Char": "int8",
    "Bool": "bool",
    "ComplexHalf": "complex32",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_MAKERS = frozenset(
    """
    zeros ones full empty tensor arange eye randint zeros_like ones_like full_like empty_like
    new_zeros new_ones new_full new_empty as_tensor from_numpy to long int bool byte short
    """.split()
)


def tell(case: Case, said: Said) -> Finding:
    if said.message.id == "inplace-cannot-cast":
        return _cannot_cast(case, said)
    return _in_backward(case, said)


def _cannot_cast(case: Case, said: Said) -> Finding:
    """A running sum that was made of integers is to be changed where it is made."""
    result, kind = (DTYPES.get(said.words.get(group, ""), "a dtype") for group in ("g1", "g2"))
    given = [g for g in said.complaint.given if g.dtype == kind]
    into = next((g for g in given if g.name == "out"), given[0] if given else None)
    op = said.complaint.calls[-1].rpartition(".")[2] if said.complaint.calls else ""
    writes = op.endswith("_") or op in IN_PLACE_DUNDERS or any(g.name == "out" for g in given)
    maker = failing.maker_of_dtype(case, into.node, kind) if into is not None else None
    made = failing.span(case, maker)
    event = case.graph.event(maker) if maker is not None else None
    created = made is not None and event is not None and event.op in _MAKERS
    name = written_name(said.where, op) or next(iter(assigned_names(made) if made else []), "")
    shown = f"`{name}`" if name and writes else "a tensor"
    where = made if writes and created else said.where
    if writes:
        title = f"{shown} holds {kind}, and cannot take in a result of {result}"
        fix = Fix(
            title=f"make {shown} floating point" if created else "write into a new tensor",
            edits=[] if created else out_of_place(said.where),
            deliberate="if it is to stay as it is, compute a new tensor instead.",
        )
    else:
        title = f"{result} and {kind} go into one operation that needs a single dtype"
        fix = Fix(title="cast the labels to the dtype of the prediction: `.float()`")
    return complaints.finding(
        case,
        said,
        where=where,
        title=title,
        label=f"{kind} since here" if where is made else "",
        fix=fix,
        related=_made(made, kind, where or said.where),
    )


def _in_backward(case: Case, said: Said) -> Finding:
    """The operation whose inputs have two dtypes, and where the odd one comes from."""
    wrong, right = (DTYPES.get(said.words.get(group, ""), "") for group in ("g1", "g2"))
    live = [n for n in case.graph.ancestors(case.question.roots) if n >= 0 and case.graph.live(n)]
    mixed = [n for n in live if {wrong, right} <= _dtypes(case, n)]
    failed = said.complaint.failed
    node = failed if failed in mixed else max(mixed, default=failed)
    where = failing.span(case, node) or said.where
    odd = [n for n in case.graph.inputs(node) if failing.dtype(case, n) == wrong] if node else []
    maker = failing.maker_of_dtype(case, odd[0], wrong) if odd else None
    made = failing.span(case, maker)
    name = next(iter(assigned_names(made) if made is not None else []), "")
    shown = f"`{name}`" if name else "one of its inputs"
    return complaints.finding(
        case,
        said,
        where=where,
        title=f"{shown} is {wrong} where {failing.shown(case, node)} computes in {right}"
        if node is not None
        else f"{wrong} and {right} meet, and the derivative cannot do with both",
        label=f"{right} and {wrong} meet here",
        fix=Fix(
            title=f"cast the data to {right}: `{name or 'target'}"
            f"{'.float()' if right == 'float32' else f'.to(torch.{right})'}`",
            safety="the loss stays equal up to rounding",
        ),
        related=_made(made, wrong, where),
        checked=[f"of the inputs at {words.at(where)} one is {wrong} and one {right}."]
        if node in mixed
        else [],
    )


def _dtypes(case: Case, node: int) -> set[str]:
    return {failing.dtype(case, n) for n in case.graph.inputs(node)}


def _made(made: Span | None, kind: str, where: Span) -> list[Related]:
    if made is None or statement_at(made) is statement_at(where):
        return []
    return [Related("created", location(made), f"{kind} since here")]
