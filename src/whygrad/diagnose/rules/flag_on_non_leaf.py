"""requires_grad is set on the result of an operation, whose history already decides that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whygrad.diagnose import complaints, results, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.results import Result
from whygrad.session import Finding, Fix, Related
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, receiver_text, statement_at, text_of

CODE = "flag-on-non-leaf"

_LONG = 40
_ADVICE = "use a computed variable"  # torch adds it where the flag is switched off


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is None:
        return
    given = next((g for g in said.complaint.given if not g.leaf), None)
    found = results.result(case, given.node) if given is not None else None
    name = _name(said.where)
    originals = _originals(case, given.node, name) if given is not None else []
    quoted = f"`{name}`" if name else "the tensor"
    off = _ADVICE in case.question.error_text
    computed = f", the result of `{found.operation}`" if found is not None else ""
    computed = f", computed from {words.listed(originals)}" if originals else computed
    action = "switched off" if off else "set"
    yield complaints.finding(
        case,
        said,
        title=f"requires_grad is {action} on {quoted}{computed}",
        label="not a leaf: its history says whether it requires grad",
        why="only a leaf, a tensor that was made and not computed, has a flag of its own. A "
        "result requires grad because something that it was computed from does"
        + (f"; {quoted} is one." if name else "."),
        fix=_on_originals(name, originals, off) if originals else _fix(name, off),
        related=_related(case, said, found),
        parameters=originals or ([name] if name else []),
        checked=["the tensor has a history, so it is not a leaf."] if given is not None else [],
    )


def _name(where: Span) -> str:
    """The tensor as the line calls it."""
    statement = statement_at(where)
    text = receiver_text(where) or ""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
        text = text_of(statement.targets[0].value, where.file)
    return text if len(text) <= _LONG and "\n" not in text else ""


def _originals(case: Case, node: int, name: str) -> list[str]:
    """The parameters from which a module computes what it offers under an attribute's name.

    A parametrization keeps them as `parametrizations.weight.original`, the older wrappers as
    `weight_orig`, or `weight_g` and `weight_v`.
    """
    _, dot, attribute = name.rpartition(".")
    if not dot or not attribute.isidentifier():
        return []
    names = case.names(_leaves(case, node))
    return names if all(_relative(each, attribute) for each in names) else []


def _leaves(case: Case, node: int) -> list[int]:
    """The leaves that a result has its history from, not what these once were made from."""
    found, waiting, seen = list[int](), [node], {node}
    while waiting:
        for fed in case.graph.inputs(waiting.pop()):
            if fed in seen or not case.graph.live(fed):
                continue
            seen.add(fed)
            (waiting if case.graph.event(fed) is not None else found).append(fed)
    return found


def _relative(parameter: str, attribute: str) -> str:
    """An original's name within its module; empty if it is not one of this attribute's."""
    _, kept, rest = parameter.rpartition(f"parametrizations.{attribute}.")
    last = parameter.rpartition(".")[2]
    return kept + rest if kept else last if last.startswith(f"{attribute}_") else ""


def _on_originals(name: str, originals: list[str], off: bool) -> Fix:
    module, _, attribute = name.rpartition(".")
    paths = [f"{module}.{_relative(each, attribute)}" for each in originals]
    return Fix(
        title=f"set the flag on what it is computed from: {words.listed(paths)}",
        deliberate=f"if it is meant for the whole module: `{module}.requires_grad_({not off})`.",
    )


def _fix(name: str, off: bool) -> Fix:
    named = bool(name) and "(" not in name  # what can stand on the left of an assignment
    shown = f"{name} = {name}" if named else name
    if off:
        return Fix(
            title=f"take it out of the history: `{shown}.detach()`",
            safety="forward values stay equal; gradient stops there",
            deliberate="if what computed it should not train, freeze those parameters, before "
            "the forward pass.",
        )
    return Fix(
        title=f"make a leaf of it first: `{shown}.detach().requires_grad_()`",
        safety="forward values stay equal; gradient stops at the new leaf",
        deliberate=f"if gradient should go on to what it was computed from, it needs no flag: "
        f"`{name}.retain_grad()` keeps its own.",
    )


def _related(case: Case, said: Said, found: Result | None) -> list[Related]:
    """The operation that computed it, and what made the leaf behind it ask for gradients."""
    shown: list[Related] = []
    if found is None:
        return shown
    if found.where.line != said.where.line:
        names = assigned_names(found.where)
        made = f"`{names[0]}` is computed here" if names else "computed here"
        shown.append(Related("operation", location(found.where), made))
    source = case.graph.source(found.leaf) if found.leaf is not None else None
    flagged = case.user_span(source.flag_stack) if source is not None else None
    flagged = flagged if source is not None and source.flag_stack else None
    leaf = flagged or found.made
    if leaf is not None and leaf.line not in (said.where.line, found.where.line):
        label = "the flag was set here" if flagged is not None else "the leaf behind it"
        shown.append(Related("created", location(leaf), label))
    return shown
