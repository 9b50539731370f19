"""How parameters are kept that no module registers, in words, and what to do about it."""

from __future__ import annotations

import ast
import re

from whygrad.record.events import ParameterInfo
from whygrad.session import Edit, Fix
from whygrad.source.attributes import statement_span, store_of
from whygrad.source.registering import as_parameter, converted_first, in_container
from whygrad.source.spans import Span

_ATTRIBUTE = re.compile(r"\w+")


def attribute_of(info: ParameterInfo) -> str:
    """The attribute through which it is kept: `hids` for `hids[0][0].weight`."""
    name = _ATTRIBUTE.match(info.kept_as)
    return name[0] if name is not None else info.kept_as


def stored(made: tuple[Span, ...], attribute: str) -> tuple[Span, ast.stmt | None]:
    """The statement that gives the attribute its value, else the line that makes what is in it."""
    for span in made:
        store = store_of([span], attribute)
        if store is not None:
            return statement_span(span, store), store
    return made[0], None


def what(info: ParameterInfo, count: int) -> str:
    """What is true of the attribute, said after its name."""
    those = "the parameter" if count == 1 else f"the {count} parameters"
    match info.keeps_in:
        case "":
            return "is a plain tensor, not a parameter"
        case "result":
            return "is computed from a parameter and is none itself"
        case "buffer":
            return "is a buffer, and no optimizer gets buffers"
        case "class":
            return f"belongs to the class: {those} of it {_is(count)} not registered"
        case "object":
            return f"is no module: {those} in it {_is(count)} not registered"
        case "function" | "partial":
            return f"is a function: {those} inside {_is(count)} not registered"
    return f"is a plain {info.keeps_in}: {those} in it {_is(count)} not registered"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def label(info: ParameterInfo) -> str:
    match info.keeps_in:
        case "":
            return "a tensor that requires grad, and that no module registers"
        case "result":
            return "what is stored is the result, and the parameter itself is lost"
        case "buffer":
            return "stored with the buffers, which `parameters()` leaves out"
    return f"`{info.keeper}` does not look into this"


def why(info: ParameterInfo, attribute: str) -> str:
    unknown = "so `parameters()` does not list it, and neither does `state_dict()`"
    match info.keeps_in:
        case "":
            return f"a module registers `nn.Parameter`s. A plain tensor is none, {unknown}."
        case "result":
            return (
                "an operation on a parameter gives a tensor with a history, not a parameter, "
                f"{unknown}. Gradient goes on to the parameter behind it, which nobody holds."
            )
        case "buffer":
            return (
                "`parameters()` lists parameters only. A buffer moves and is saved with its "
                "module, and no optimizer gets it."
            )
    return (
        "a module registers the modules and parameters that are assigned to its attributes. It "
        f"does not look into `{attribute}`, so `parameters()` does not list what is in it, and "
        "neither does `state_dict()`."
    )


def fix(info: ParameterInfo, attribute: str, where: Span, store: ast.stmt | None) -> Fix:
    title, edits = _change(info, attribute, where, store)
    return Fix(
        title=title,
        edits=edits,
        safety="forward values stay equal; what is registered will train, and is saved and moved "
        "with the module",
        deliberate="if it should stay as it is, say so: `requires_grad_(False)` on it also saves "
        "the work for a gradient that nobody uses.",
    )


def _change(
    info: ParameterInfo, attribute: str, where: Span, store: ast.stmt | None
) -> tuple[str, list[Edit]]:
    file = where.file
    match info.keeps_in:
        case "":
            return f"make `{attribute}` an `nn.Parameter`", as_parameter(file, store)
        case "result":
            title = "convert first, and wrap the result: `nn.Parameter(x.to(...))`"
            return title, converted_first(file, store)
        case "buffer":
            return f"make `{attribute}` a parameter: `self.{attribute} = nn.Parameter(...)`", []
        case "class":
            return f"make `{attribute}` in `__init__`: `self.{attribute} = ...`", []
        case "object":
            return f"make the class of `{attribute}` a subclass of `nn.Module`", []
        case "function" | "partial":
            return "keep the module itself as an attribute of its own, beside the function", []
    nested = info.kept_as.count("[") > 1
    kind = "Module" if not re.search(r"\]$", info.kept_as) else "Parameter"
    container = f"{kind}{'Dict' if info.keeps_in == 'dict' else 'List'}"
    edits = [] if nested else in_container(file, store, container)
    inner = f", and what is in it an `nn.{kind}List` or `nn.Sequential` too" if nested else ""
    return f"make `{attribute}` an `nn.{container}`{inner}", edits
