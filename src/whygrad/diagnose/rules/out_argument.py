"""An operation is to write into an existing tensor while gradients are being recorded."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, words
from whygrad.diagnose.case import Case
from whygrad.session import Finding, Fix
from whygrad.source.inplace_edits import out_of_place

CODE = "out-argument"


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    wanting = [given for given in said.complaint.given if given.requires_grad]
    names = [info.name for given in wanting if (info := case.parameter(given.node))]
    buffer = any(given.name == "out" for given in wanting)
    said.words["which"] = "the tensor given as `out`" if buffer else "an input"
    yield complaints.finding(
        case,
        said,
        parameters=names,
        checked=[
            f"{words.count(len(wanting), 'tensor')} of this call's "
            f"{len(said.complaint.given)} required grad, and gradients were being recorded."
        ]
        if wanting
        else [],
        fix=Fix(
            title=said.fill(said.message.fix),
            edits=out_of_place(said.where) if said.library is None else [],
            safety="forward values stay equal",
            deliberate=said.fill(said.message.deliberate),
        ),
    )
