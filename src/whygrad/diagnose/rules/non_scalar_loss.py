"""backward() or grad() starts from something that is not one real number."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from whygrad.diagnose import complaints, functionals, lives, unreduced
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.diagnose.unreduced import Unreduced
from whygrad.record.ops import display_name
from whygrad.session import Finding, Fix, Related
from whygrad.source.files import load
from whygrad.source.reductions import Passed, passed_by
from whygrad.source.spans import Span, location
from whygrad.source.tree import expression_at, node_span
from whygrad.source.written import argument, origin_of

CODE = "non-scalar-loss"

_COMPLEX = "backward-complex-scalar"
_WHY = (
    "a gradient is the derivative of one number. From a tensor with more elements, torch must be "
    "told how much each of them counts, and it does not guess."
)


def diagnose(case: Case) -> Iterator[Finding]:
    told = functionals.tell(case, CODE)
    if told is not None:
        yield told
        return
    said = complaints.said(case, CODE)
    if said is None:
        return
    said.words["root"] = f"`{case.root_name}`"
    if said.message.id == _COMPLEX:
        yield _complex(case, said)
        return
    roots = [node for node in case.question.roots if case.shape(node) is not None]
    found = next(filter(None, (unreduced.find(case, root) for root in roots)), None)
    if found is None:
        yield complaints.finding(case, said)
        return
    said.words["shape"] = str(found.shape)
    yield _told(case, said, found)


def _told(case: Case, said: Said, found: Unreduced) -> Finding:
    passed = passed_by(found.where) if found.kind == "loss" else None
    call = "grad()" if case.question.kind == "grad-raised" else "backward()"
    checked = [f"{call} was started from shape {found.shape} and given no gradient to start with."]
    return complaints.finding(
        case,
        said,
        where=passed.where if passed is not None else found.where,
        title=_title(case, found, call),
        label=_label(case, found) if passed is None else "returned as it is, and not reduced",
        why=_WHY,
        fix=_fix(case, found) if passed is None else _fix_setting(case, passed),
        related=made_unreduced(found) if passed is None else _setting(passed),
        checked=checked,
    )


def _title(case: Case, found: Unreduced, call: str) -> str:
    root = f"`{case.root_name}`"
    if found.kind == "output":
        return f"{call} starts from {root}, an output of shape {found.shape}, not from a loss"
    if found.kind == "input":
        return f"{root} has shape {found.shape}, and {call} is not told how to add it up"
    return f"{root} has shape {found.shape}: nothing reduces it to one number"


def _label(case: Case, found: Unreduced) -> str:
    if found.kind == "loss":
        event = case.graph.event(found.node)
        made = f"`{display_name(event.op)}`" if event is not None else "this"
        return f"{made} gives {found.shape}, and nothing after it takes the mean or the sum"
    return lives.error_label(case)


def _fix(case: Case, found: Unreduced) -> Fix:
    root = case.root_name
    if found.kind == "input":
        return Fix(
            title=f"add `grad_outputs=torch.ones_like({root})`, or differentiate `{root}.sum()`",
            safety="gives each element's own derivative where elements do not depend on each "
            "other's inputs; else the sum of the derivatives",
        )
    if found.kind == "output":
        return Fix(
            title="compute a loss from the output and call backward() on that",
            deliberate=f"if the derivative of the output itself is wanted, say of what: "
            f"`{root}.sum().backward()`.",
        )
    return Fix(
        title="reduce it to one number: `.mean()`, or `.sum()` if every element should count"
        + (", or leave `reduction='none'` out" if _unreduced_by(found) is not None else ""),
        deliberate="if each element is meant to have a weight of its own, hand the weights over: "
        f"`{root}.backward(weights)`.",
    )


def _setting(passed: Passed) -> list[Related]:
    values = " nor ".join(passed.choices)
    label = f"`{passed.setting}` is {'neither ' if len(passed.choices) > 1 else 'not '}{values}"
    return [Related("operation", location(passed.first), label)]


def _fix_setting(case: Case, passed: Passed) -> Fix:
    return Fix(
        title=f"set `{passed.setting}` to {' or '.join(passed.choices)}",
        deliberate="if each element is meant to be had, reduce it where it is used: "
        f"`{case.root_name}.mean()`.",
    )


def made_unreduced(found: Unreduced) -> list[Related]:
    """Where a loss was told not to reduce, if that is another line."""
    span = _unreduced_by(found)
    if span is None or (span.file, span.line) == (found.where.file, found.where.line):
        return []
    return [Related("created", location(span), "made not to reduce")]


def _unreduced_by(found: Unreduced) -> Span | None:
    """The call that has reduction='none': the loss function, or what makes the criterion."""
    if found.kind != "loss":
        return None
    call, source = expression_at(found.where), load(found.where.file)
    if isinstance(call, ast.Call) and not _says_none(call):
        call = origin_of(call.func, found.where.file)
    if isinstance(call, ast.Call) and _says_none(call):
        return node_span(source, call)
    return None


def _says_none(call: ast.Call) -> bool:
    for keyword, off in (("reduction", "none"), ("reduce", False)):
        given = argument(call, 99, keyword)
        if isinstance(given, ast.Constant) and given.value == off and given.value is not None:
            return True
    return False


# --- complex numbers --------------------------------------------------------------------------


def _complex(case: Case, said: Said) -> Finding:
    root = next(iter(case.question.roots), None)
    if root is None:
        return complaints.finding(case, said)
    made, inverse = _made_complex(case, root)
    where = _own_span(case, made) or said.where
    event = case.graph.event(made)
    op = display_name(event.op).removeprefix("fft_") if event is not None else "this"
    fix = Fix(title=f"take the real part of what `{op}` gives: `.real`") if inverse else None
    return complaints.finding(
        case,
        said,
        where=where,
        label=f"`{op}` gives {'complex numbers' if inverse else 'a complex number'}"
        if event is not None
        else "",
        fix=fix,
    )


def _made_complex(case: Case, root: int) -> tuple[int, bool]:
    """(the operation at which values should have been made real, whether it is an inverse).

    An inverse transform leads back to real signals. Else it is the operation that makes one
    number of many, or the first that gives a complex number.
    """
    sources = _sources(case, root)
    if sources and all(_is_inverse(case, node) for node in sources):
        return max(sources), True
    node = root
    while len(fed := _complex_inputs(case, node)) == 1 and _elements(case, node) == 1:
        if _elements(case, fed[0]) != 1:
            break
        node = fed[0]
    return node, False


def _sources(case: Case, root: int) -> list[int]:
    """What a root is complex from: the latest inverse transforms, else where it was real before.

    Only values count that were complex all the way to the root.
    """
    found, seen, waiting = [], {root}, [root]
    while waiting:
        node = waiting.pop()
        fed = _complex_inputs(case, node)
        if not fed or _is_inverse(case, node):
            found.append(node)
            continue
        waiting += [n for n in fed if n not in seen]
        seen.update(fed)
    return found


def _is_inverse(case: Case, node: int) -> bool:
    event = case.graph.event(node)
    return event is not None and "ifft" in event.op


def _complex_inputs(case: Case, node: int) -> list[int]:
    return [fed for fed in case.graph.inputs(node) if _is_complex(case, fed)]


def _elements(case: Case, node: int) -> int:
    shape = case.shape(node)
    return -1 if shape is None else math.prod(shape)


def _is_complex(case: Case, node: int) -> bool:
    held = case.graph.event(node) or case.graph.source(node)
    return bool(getattr(getattr(held, "dtype", None), "is_complex", False))


def _own_span(case: Case, node: int) -> Span | None:
    spans = case.places.node_spans(node)
    return next((span for span in spans if not is_library(span.file)), None)
