"""Code that torch.func cannot transform: vmap, grad, jacrev and their kin."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from whygrad.diagnose import checking, complaints, escapes, layers, transformed
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Finding, Fix
from whygrad.source.edits import add_keyword, delete_statement
from whygrad.source.transform_calls import definition_line
from whygrad.source.tree import callee_name, expression_at, receiver_text
from whygrad.source.uses import is_value, written_name

CODE = "vmap-related"

_VMAPPING = ("vmap", "chunk_vmap", "jacfwd", "jacrev", "hessian")
_WITH_RANDOMNESS = frozenset({"vmap", "chunk_vmap", "jacfwd"})
_WITH_AUX = ("grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd")
_WITH_ARGNUMS = ("grad", "grad_and_value", "jacrev", "jacfwd", "hessian")
_NUMBERS = ("float", "int", "bool", "complex", "float64", "float32", "ndarray")


def diagnose(case: Case) -> Iterator[Finding]:
    found = complaints.said(case, CODE)
    if found is None:
        return
    transform = transformed.running(found.complaint)
    found.words |= transformed.mention(case, found, transform)
    batching = transformed.running(found.complaint, *_VMAPPING)
    if batching is not None and found.message.id.startswith("vmap-"):
        found.words["transform"] = batching.name
    tell = _TELLING.get(found.message.id, complaints.finding)
    yield tell(case, found)


def _returned(case: Case, found: Said) -> Finding:
    """The function gives back something else than a tensor."""
    transform = transformed.running(found.complaint)
    if transform is None:
        return complaints.finding(case, found)
    kind = found.words["type"]
    where = (
        transformed.number_at(case, transform)
        if kind in _NUMBERS
        else transformed.returned_at(case, transform, ast.Tuple, ast.List, ast.Dict)
    )
    aux = kind == "tuple"
    made = transformed.made(case, transform) if aux else None
    place = where or found.where
    if kind in _NUMBERS:
        fix = Fix("return the tensor itself: take the number out of it after the transform")
    elif aux:
        fix = Fix(
            "let the transform know that more than the result is returned: `has_aux=True`",
            safety="the call then returns a pair as well: what it returned so far, and the rest",
            deliberate=f"if only one of them is wanted, return that one from "
            f"{found.words['function']}.",
        )
    else:
        fix = Fix("return one tensor")
    return complaints.finding(
        case,
        found,
        where=place,
        label=f"what {found.words['function']} returns",
        fix=fix,
        related=transformed.related(made, place, "`has_aux=True` would go here"),
    )


def _has_aux(case: Case, found: Said) -> Finding:
    transform = transformed.running(found.complaint, *_WITH_AUX)
    if transform is None:
        return complaints.finding(case, found)
    value = transformed.returned_at(case, transform, ast.List, ast.Dict)
    written = isinstance(expression_at(value), (ast.List, ast.Dict)) if value is not None else False
    made = transformed.made(case, transform)
    place = (value if written else made) or found.where
    other = made if written else value
    label = "a pair is asked for here" if written else "what the function returns"
    return complaints.finding(
        case, found, where=place, related=transformed.related(other, place, label)
    )


def _non_float(case: Case, found: Said) -> Finding:
    transform = transformed.running(found.complaint)
    where = None
    if transform is not None:
        where = transformed.result_at(case, transform, non_floating=True)
        where = where or transformed.returned_at(case, transform)
        dtypes = [given.dtype for given in transform.results]
        found.words["dtype"] = next((d for d in dtypes if not d.startswith("float")), "integer")
    return complaints.finding(case, found, where=where)


def _argnums(case: Case, found: Said) -> Finding:
    transform = transformed.running(found.complaint, *_WITH_ARGNUMS)
    if transform is None:
        return complaints.finding(case, found)
    called = transformed.called_at(case, transform) or found.where
    node = expression_at(called)
    if isinstance(node, ast.Call) and node.keywords:
        return complaints.finding(
            case,
            found,
            where=called,
            label="arguments by name are not counted",
            fix=Fix("pass the argument to differentiate by its position, not by its name"),
        )
    return complaints.finding(case, found, where=transformed.made(case, transform))


def _input(case: Case, found: Said) -> Finding:
    transform = found.complaint.transforms[-1] if found.complaint.transforms else None
    where = transformed.called_at(case, transform) if transform is not None else None
    return complaints.finding(case, found, where=where)


def _randomness(case: Case, found: Said) -> Finding:
    transform = transformed.running(found.complaint, *_VMAPPING)
    where = transformed.made(case, transform) if transform is not None else None
    place = where or found.where
    layer = found.complaint.layer
    drawn = layers.spoken(layer) if layer is not None else f"`{found.words['call']}`"
    found.words["drawn"] = drawn
    name = (callee_name(place) or "").rpartition(".")[2]
    edits = add_keyword(place, 'randomness="different"') if name in _WITH_RANDOMNESS else []
    return complaints.finding(
        case,
        found,
        where=place,
        fix=Fix(
            'say how to draw: `randomness="different"` for each sample, or "same" for all alike',
            edits=edits,
            safety="values as in a loop over the samples, up to the random numbers themselves",
            deliberate="if nothing should be random here, put the model into eval() mode before.",
        ),
    )


def _captured(case: Case, found: Said) -> Finding:
    layer = found.complaint.layer
    if layer is not None and layers.keeps_statistics(layer):
        return layers.statistics(case, found, layer)
    name = written_name(found.where) or receiver_text(found.where)
    found.words["written"] = f"`{name}`" if name else "a tensor from outside"
    return complaints.finding(case, found)


def _batch_norm(case: Case, found: Said) -> Finding:
    layer = found.complaint.layer
    if layer is None:
        return complaints.finding(case, found)
    return layers.statistics(case, found, layer)


def _number_inside(case: Case, found: Said) -> Finding:
    """One text of torch's for two things: taking a number out, and branching on a value."""
    name = (callee_name(found.where) or "").rpartition(".")[2]
    if name in ("item", "tolist", "float", "int", "bool", "numpy"):
        spoken = f"`{name}()`" if name in ("float", "int", "bool") else f"`.{name}()`"
        return complaints.finding(
            case,
            found,
            title=f"{spoken} takes a number out of a tensor inside `{found.words['transform']}`",
            label="another number for each sample",
            fix=Fix("stay in torch: compute with the tensor itself, and take numbers out after"),
        )
    return complaints.finding(
        case,
        found,
        title=f"a decision on the value of a tensor inside `{found.words['transform']}`",
        label="this is true for some samples and false for others",
        why="vmap runs the function once for all samples together. A decision in Python would "
        "have to go one way for all of them, but the value differs from sample to sample.",
        fix=Fix("choose with `torch.where(condition, a, b)`, which chooses for each sample"),
    )


def _function_class(case: Case, found: Said) -> Finding:
    """At the custom Function that is not made for transforms."""
    function = next(iter(found.complaint.functions), None)
    if function is None:
        return complaints.finding(case, found)
    found.words["class"] = function.name
    old_style = found.message.id == "func-custom-function-old-style"
    file, line = function.methods.get("forward") or next(iter(function.methods.values()))
    where = definition_line(file, line, of_class=not old_style)
    return complaints.finding(case, found, where=where)


def _frozen(case: Case, found: Said) -> Finding:
    """Models of an ensemble of which only some are frozen: where one of them was."""
    name = found.words.get("g1", "")
    for info in case.question.parameters:
        source = case.graph.source(info.node)
        same = info.name == name or info.name.endswith(f".{name}")
        if same and not info.requires_grad and source is not None and source.flag_stack:
            where = case.user_span(source.flag_stack)
            return complaints.finding(case, found, where=where, parameters=[info.name])
    return complaints.finding(case, found, label="not all alike", parameters=[name])


def _leftover(case: Case, found: Said) -> Finding:
    """A call that is of no use inside a transform, and can go if nothing uses its result."""
    edits = [] if is_value(found.where) or found.library else delete_statement(found.where)
    return complaints.finding(
        case,
        found,
        fix=Fix(found.fill(found.message.fix), edits=edits, safety="values stay equal"),
    )


_TELLING: dict[str, Callable[[Case, Said], Finding]] = {
    "func-grad-non-tensor": _returned,
    "func-output-type": _returned,
    "func-has-aux": _has_aux,
    "vjp-non-float-output": _non_float,
    "func-argnums": _argnums,
    "func-input-not-tensor": _input,
    "vmap-randomness": _randomness,
    "func-captured-inplace": _captured,
    "vmap-batch-norm": _batch_norm,
    "vmap-item": _number_inside,
    "gradcheck-batched": checking.not_for_batches,
    "vmap-control-flow": _number_inside,
    "func-custom-function-old-style": _function_class,
    "vmap-custom-function": _function_class,
    "vmap-escaped-tensor": escapes.tell,
    "func-stack-requires-grad": _frozen,
    "func-retain-grad-inside": _leftover,
}
