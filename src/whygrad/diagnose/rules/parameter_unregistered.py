"""Parameters that their module does not know: in a list, bare, converted, or made in forward."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from whygrad.diagnose import left as leaving
from whygrad.diagnose import words
from whygrad.diagnose.case import Case
from whygrad.diagnose.left import Left, Remade
from whygrad.record.events import ParameterInfo
from whygrad.session import Edit, Finding, Fix, Related
from whygrad.source.attributes import filling, statement_span, store_of
from whygrad.source.registering import as_parameter, converted_first, in_container
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, callee_name
from whygrad.source.uses import callee_text

CODE = "parameter-unregistered"

_ATTRIBUTE = re.compile(r"\w+")
_LISTS = ("list", "tuple", "set", "frozenset", "deque")


def diagnose(case: Case) -> Iterator[Finding]:
    left = leaving.behind(case)
    if left is None:
        return
    yield from _kept(left)
    for remade in left.remade:
        if not remade.read or any(_is_forward(span) for span in remade.where):
            yield _made_each_time(left, remade)


# --- kept by a module, which does not know ----------------------------------------------------


def _kept(left: Left) -> Iterator[Finding]:
    groups: dict[tuple[str, str, str], list[ParameterInfo]] = {}
    trained = {info.root for info in left.case.question.parameters if info.node in left.held}
    registered = {i.root for i in left.case.question.parameters if i.registered and i.requires_grad}
    for info in left.infos:
        if not info.kept_as or not info.training or info.loaded:
            continue
        # Where the module's own parameters are not trained either, that is a choice.
        if info.root not in trained and info.root in registered:
            continue
        if _is_shared(left, info):
            name = _ATTRIBUTE.match(info.kept_as)
            key = (info.keeper, name[0] if name else info.kept_as, info.keeps_in)
            groups.setdefault(key, []).append(info)
    for (_, attribute, _), infos in groups.items():
        finding = _kept_finding(left, attribute, infos)
        if finding is not None:
            yield finding


def _is_shared(left: Left, info: ParameterInfo) -> bool:
    """Whether the same object takes part again and again: an input comes anew each time."""
    source = left.case.graph.source(info.node)
    if source is not None and source.parameter:
        return True
    return left.touched[info.node] > 1 and info.node not in left.differentiated


def _kept_finding(left: Left, attribute: str, infos: list[ParameterInfo]) -> Finding | None:
    case, first = left.case, infos[0]
    made = leaving.made_at(case, first.node)
    if not made:
        return None
    where, store = _stored(made, attribute)
    names = leaving.names_of(infos)
    title = f"`{attribute}` of `{first.keeper}` {_what(first, len(infos))}"
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} No optimizer moves {words.listed(names, 8)}.",
        location=location(where),
        label=_label(first),
        related=[*_filled(made, attribute, where), *_optimizer(left, first)],
        parameters=names,
        why=_why(first, attribute),
        checked=[_checked(left, infos)],
        fix=_fix(first, attribute, where, store),
        first_step=case.question.step,
    )


def _stored(made: tuple[Span, ...], attribute: str) -> tuple[Span, ast.stmt | None]:
    """The statement that gives the attribute its value, else the line that makes what is in it."""
    for span in made:
        store = store_of([span], attribute)
        if store is not None:
            return statement_span(span, store), store
    return made[0], None


def _what(info: ParameterInfo, count: int) -> str:
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


def _label(info: ParameterInfo) -> str:
    match info.keeps_in:
        case "":
            return "a tensor that requires grad, and that no module registers"
        case "result":
            return "what is stored is the result, and the parameter itself is lost"
        case "buffer":
            return "stored with the buffers, which `parameters()` leaves out"
    return f"`{info.keeper}` does not look into this"


def _filled(made: tuple[Span, ...], attribute: str, where: Span) -> list[Related]:
    """Where the parameters are made, if that is another line."""
    for span in made:
        statement = filling([span], attribute)
        if statement is not None:
            made = (statement_span(span, statement),)
            break
    if (made[0].file, made[0].line) == (where.file, where.line):
        return []
    return [Related("created", location(made[0]), "made here, and put into it")]


def _optimizer(left: Left, info: ParameterInfo) -> list[Related]:
    same = [i.node for i in left.case.question.parameters if i.root == info.root]
    optimizer = left.optimizer_of(same)
    span = left.case.user_span(optimizer.stack) if optimizer is not None else None
    if optimizer is None or span is None:
        return []
    total = len(optimizer.nodes)
    label = f"gets {words.count(total, 'parameter')}, and none of these"
    return [Related("optimizer", location(span), label)]


def _why(info: ParameterInfo, attribute: str) -> str:
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


def _checked(left: Left, infos: list[ParameterInfo]) -> str:
    passes = max((left.touched[info.node] for info in infos), default=0)
    seen = f" in {passes} backward passes" if passes > 1 else ""
    return (
        f"{words.count(len(infos), 'tensor')} got a gradient{seen}; no optimizer holds "
        f"{'it' if len(infos) == 1 else 'them'}, and nothing else changed "
        f"{'its' if len(infos) == 1 else 'their'} values."
    )


def _fix(info: ParameterInfo, attribute: str, where: Span, store: ast.stmt | None) -> Fix:
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
            return (
                f"register `{attribute}` as a parameter: `self.{attribute} = nn.Parameter(...)`",
                [],
            )
        case "class":
            return f"make `{attribute}` in `__init__`: `self.{attribute} = ...`", []
        case "object":
            return f"make the class of `{attribute}` a subclass of `nn.Module`", []
        case "function" | "partial":
            title = (
                "keep the module itself as an attribute, or make the function a module's forward"
            )
            return title, []
    nested = info.kept_as.count("[") > 1
    kind = "Module" if not re.search(r"\]$", info.kept_as) else "Parameter"
    container = f"{kind}{'Dict' if info.keeps_in == 'dict' else 'List'}"
    edits = [] if nested else in_container(file, store, container)
    inner = f", and what is in it an `nn.{kind}List` or `nn.Sequential` too" if nested else ""
    return f"make `{attribute}` an `nn.{container}`{inner}", edits


# --- made in every pass -----------------------------------------------------------------------


def _is_forward(span: Span) -> bool:
    return span.function.rpartition(".")[2] in ("forward", "__call__")


def _made_each_time(left: Left, remade: Remade) -> Finding:
    case = left.case
    where = leaving.maker(remade.where) or remade.where[0]
    names = assigned_names(where)
    made = (callee_text(where) or callee_name(where) or "nn.Parameter").removeprefix(".")
    thing = f"`{names[0]}`" if names else f"`{made}(...)`"
    count = len(remade.nodes) // remade.passes
    title = f"{thing} is made anew in every pass, so it never trains"
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} {words.count(len(remade.nodes), 'parameter')} so far.",
        location=location(where),
        label=f"makes {words.count(count, 'new parameter')} each time it runs",
        related=[],
        parameters=names[:1] or [made],
        why="what is made here gets new values in every pass. Its gradient belongs to a "
        "parameter that is gone before the next one, and that no optimizer knows.",
        checked=[
            f"{words.count(len(remade.nodes), 'different parameter')} from this line got a "
            f"gradient in {remade.passes} backward passes, each in one of them; no optimizer "
            "holds any."
        ],
        fix=Fix(
            title="make it once, in `__init__`, and keep it as an attribute of the module",
            safety="its values will be the same in every pass, and train",
            deliberate="if new random values are wanted in each pass, use a plain tensor: "
            "`torch.randn(...)` without `nn.Parameter`.",
        ),
        first_step=case.question.step,
    )
