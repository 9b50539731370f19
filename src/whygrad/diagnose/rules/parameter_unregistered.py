"""Parameters that their module does not know: in a list, bare, converted, or made in forward."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, lives, refused_parameters, unregistered, words
from whygrad.diagnose import left as leaving
from whygrad.diagnose.case import Case
from whygrad.diagnose.left import Left, Remade
from whygrad.graph.consumers import Consumers
from whygrad.record.events import ParameterInfo
from whygrad.session import Finding, Fix, Related
from whygrad.source.attributes import filling, statement_span
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, callee_name
from whygrad.source.uses import callee_text

CODE = "parameter-unregistered"


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        yield refused_parameters.tell(case, said)
    if case.question.kind == "backward-raised":
        yield from _raised(case)
    left = leaving.behind(case)
    if left is None:
        return
    yield from _kept(left)
    for remade in left.remade:
        if not remade.read or any(leaving.is_forward(span) for span in remade.where):
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
            key = (info.keeper, unregistered.attribute_of(info), info.keeps_in)
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
    asked = left.consumers.differentiated if left.consumers is not None else ()
    return left.touched[info.node] > 1 and info.node not in asked


def _kept_finding(left: Left, attribute: str, infos: list[ParameterInfo]) -> Finding | None:
    case, first = left.case, infos[0]
    made = leaving.made_at(case, first.node)
    if not made:
        return None
    where, store = unregistered.stored(made, attribute)
    names = leaving.names_of(infos)
    title = f"`{attribute}` of `{first.keeper}` {unregistered.what(first, len(infos))}"
    return Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} No optimizer moves {words.listed(names, 8)}.",
        location=location(where),
        label=unregistered.label(first),
        related=[*_filled(made, attribute, where), *_optimizer(left, first)],
        parameters=names,
        why=unregistered.why(first, attribute),
        checked=[_checked(left, infos)],
        fix=unregistered.fix(first, attribute, where, store),
        first_step=case.question.step,
    )


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
    optimizer = left.optimizer_of(same, {info.node})
    span = left.case.user_span(optimizer.stack) if optimizer is not None else None
    if optimizer is None or span is None:
        return []
    label = f"gets {words.count(len(optimizer.nodes), 'parameter')}, and nothing of this"
    return [Related("optimizer", location(span), label)]


def _checked(left: Left, infos: list[ParameterInfo]) -> str:
    passes = max((left.touched[info.node] for info in infos), default=0)
    seen = f" in {passes} backward passes" if passes > 1 else ""
    return (
        f"{words.count(len(infos), 'tensor')} got a gradient{seen}; no optimizer holds "
        f"{'it' if len(infos) == 1 else 'them'}, and nothing else changed "
        f"{'its' if len(infos) == 1 else 'their'} values."
    )


# --- computed once, from a parameter: the second pass cannot go through that again -------------


def _raised(case: Case) -> Iterator[Finding]:
    autopsy = case.question.autopsy
    infos = [info for info in case.question.parameters if info.keeps_in == "result"]
    if not infos or autopsy is None or not autopsy.freed or not autopsy.passes:
        return
    consumers = Consumers(case.graph.recording)
    shared = case.graph.ancestors(case.roots) & case.graph.ancestors(autopsy.passes[-1].roots)
    for info in infos:
        made = leaving.made_at(case, info.node)
        if made and consumers.results([info.node]) & shared & autopsy.freed:
            yield _raised_finding(case, info, made)


def _raised_finding(case: Case, info: ParameterInfo, made: tuple[Span, ...]) -> Finding:
    attribute = unregistered.attribute_of(info)
    where, store = unregistered.stored(made, attribute)
    title = f"`{attribute}` of `{info.keeper}` {unregistered.what(info, 1)}"
    return Finding(
        code=CODE,
        severity="error",
        symptom="raises",
        title=title,
        message=f"{words.sentence(title)} The first backward() frees what it was computed with.",
        location=location(where),
        label=unregistered.label(info),
        related=lives.surfaced_here(case, where),
        parameters=[info.name],
        why=f"{unregistered.why(info, attribute)} The operation ran once, when the module was "
        "made: the first backward() frees what it kept, and the second finds nothing.",
        checked=["this operation is part of both passes, and its values are gone."],
        fix=unregistered.fix(info, attribute, where, store),
        first_step=case.question.step,
    )


# --- made in every pass -----------------------------------------------------------------------


def _making(spans: tuple[Span, ...]) -> Span:
    """The line of the innermost forward, unless a function does the making for it."""
    inside = next(
        (depth for depth, span in enumerate(spans) if leaving.is_forward(span)), len(spans)
    )
    return leaving.maker(spans[: inside + 1]) or spans[0]


def _made_each_time(left: Left, remade: Remade) -> Finding:
    case = left.case
    where = _making(remade.where)
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
