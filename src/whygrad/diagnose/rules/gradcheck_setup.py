"""gradcheck() is given something that it cannot check."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import checking, complaints, custom
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.record.events import Given
from whygrad.session import Finding, Fix, Related
from whygrad.source import contexts, methods
from whygrad.source.edits import add_keyword
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, callee_name

CODE = "gradcheck-setup"

_MAKERS = frozenset("randn rand zeros ones full empty tensor linspace arange eye".split())
_RANDOM = frozenset(
    """
    rand randn randint rand_like randn_like randint_like bernoulli dropout normal normal_ uniform_
    bernoulli_ multinomial randperm
    """.split()
)


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        return
    match found.message.id:
        case "gradcheck-not-double":
            yield _input(case, found, checking.imprecise(found))
        case "gradcheck-overlapping":
            yield _input(case, found, checking.inputs(found))
        case "gradcheck-nondeterministic":
            yield _random(case, found)
        case _:
            yield _output(case, found)


def _input(case: Case, found: Said, given: list[Given]) -> Finding:
    """The line that made the input which does not do."""
    index = int(found.words.get("g1", 0))
    overlapping = found.message.id == "gradcheck-overlapping"
    if overlapping and len(checking.inputs(found)) > index:
        given = checking.inputs(found)[index : index + 1]
    where = checking.made_at(case, given[0]) if given else None
    if where is None:
        return complaints.finding(case, found)
    names = assigned_names(where)
    found.words |= {
        "input": f"`{names[0]}`" if len(names) == 1 else "an input",
        "dtype": given[0].dtype,
    }
    fix = None
    if not overlapping and (callee_name(where) or "").rpartition(".")[2] in _MAKERS:
        edits = add_keyword(where, "dtype=torch.float64")
        fix = Fix(title="make it with `dtype=torch.float64`", edits=edits)
    return complaints.finding(case, found, where=where, fix=fix)


def _random(case: Case, found: Said) -> Finding:
    """The random call in a backward, or in what was checked."""
    owners = [o for o in checking.definitions(found) if custom.derivative(o) is not None]
    for owner in owners:
        place = custom.derivative(owner)
        calls = contexts.calls_named(place, _RANDOM) if place is not None else []
        span = calls[0] if calls else custom.head(owner)
        if calls or len(owners) == 1:
            where = custom.own_line(case, found, owner, span)
            return complaints.finding(case, found, where=where)
    return complaints.finding(case, found, where=_checked_head(case, found))


def _checked_head(case: Case, found: Said) -> Span:
    function = checking.checked_function(found)
    place = None if function is None else next(iter(function.methods.values()))
    span = methods.head_span(place) if place is not None else None
    return custom.own_line(case, found, None, span)


def _output(case: Case, found: Said) -> Finding:
    """The operation that made an output of the wrong layout."""
    odd = [given for given in checking.outputs(found) if given.layout != "strided"]
    where = checking.made_at(case, odd[0]) if odd else None
    if where is None:
        return complaints.finding(case, found)
    found.words["layout"] = odd[0].layout
    related = [Related("surfaced", location(found.where), "checked here")]
    same = (where.file, where.line) == (found.where.file, found.where.line)
    return complaints.finding(case, found, where=where, related=[] if same else related)
