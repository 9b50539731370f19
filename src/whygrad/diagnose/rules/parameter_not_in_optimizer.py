"""Parameters with a gradient that no optimizer was given."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from whygrad.diagnose import complaints, missing, refused_lists, words
from whygrad.diagnose import left as leaving
from whygrad.diagnose.case import Case
from whygrad.diagnose.left import Left
from whygrad.diagnose.replaced import replacements
from whygrad.graph.order import Order, order
from whygrad.record.events import ParameterInfo
from whygrad.session import Finding, Fix, Related, Severity
from whygrad.source.arguments import argument_text
from whygrad.source.registering import in_optimizer
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names

CODE = "parameter-not-in-optimizer"

# Constants as first values are for what is learned; an input is data, or drawn at random.
_CONSTANTS = frozenset("zeros ones full empty zeros_like ones_like full_like".split())
_SUMS = frozenset("add __add__ __radd__ __iadd__ add_ stack cat sum".split())
_MOSTLY = 1.5  # times as many left out as trained: then training few of them is what is meant
_PROMPT = 2  # parameters in front of a network that is left as it is
_MAX_WIDTH = 50


@dataclass(slots=True)
class _Group:
    """The parameters of one outermost module that are left out."""

    members: list[ParameterInfo]
    beside: list[ParameterInfo]  # of the same module, and trained
    trained: list[ParameterInfo]  # all that took part in the same passes and are trained
    order: Order
    late: bool  # registered after the optimizer was made

    @property
    def owner(self) -> str:
        return self.members[0].owner


def diagnose(case: Case) -> Iterator[Finding]:
    said = complaints.said(case, CODE)
    if said is not None:
        yield from refused_lists.tell(case, said)
    left = leaving.behind(case)
    if left is None:
        return
    known = {info.node: info for info in case.question.parameters}
    trained = [known[node] for node in left.held if node in known]
    # An image, or a latent code, that is optimized through a network: its weights stay.
    if not any(info.registered for info in trained):
        return
    replaced = {info.node for found in replacements(left) for info in found.new}
    for group in _groups(left, replaced, trained):
        severity = _severity(left, group)
        finding = _finding(left, group, severity)
        if finding is not None:
            yield finding
    loose = [node for node in left.loose if _is_learned(left, node)]
    if loose:
        yield from _loose(left, loose)


def _groups(left: Left, replaced: set[int], trained: list[ParameterInfo]) -> Iterator[_Group]:
    roots: dict[int, list[ParameterInfo]] = {}
    for info in left.infos:
        if info.registered and info.node not in replaced:
            roots.setdefault(info.root, []).append(info)
    registered = {n for entry in left.account.registrations for n in entry.nodes}
    for root, members in roots.items():
        nodes = {info.node for info in members}
        act = next((act for act in reversed(left.passes) if act.touched & nodes), None)
        if act is None:
            continue
        with_them = [info for info in trained if info.node in act.touched]
        yield _Group(
            members,
            [info for info in trained if info.root == root and info.registered],
            with_them,
            order(left.case.graph, act.roots, nodes, {info.node for info in with_them}),
            nodes <= registered,
        )


def _severity(left: Left, group: _Group) -> Severity:
    """Whether it looks like an oversight: a warning; or like a choice."""
    members = group.members
    if group.late:
        return "warning"
    if not any(info.training for info in members):
        return "info"
    if sum(info.loaded for info in members) * 2 > len(members):
        return "info"
    if _unfrozen(left, members):
        return "warning"
    if group.beside:
        return _severity_of_part(group)
    few = len(members) < _MOSTLY * len(group.trained)
    if group.order.upstream:
        return "warning" if few else "info"
    prompt = len(group.trained) <= _PROMPT and not few
    return "info" if prompt else "warning"


def _severity_of_part(group: _Group) -> Severity:
    if group.order.upstream:  # a frozen backbone, unless it is just a small part of it
        return "warning" if 2 * len(group.members) <= len(group.beside) else "info"
    if group.order.interleaved:  # only biases, or only adapters, are trained
        return "warning" if _size(group.members) < _size(group.beside) else "info"
    few = len(group.members) < _MOSTLY * len(group.beside)
    return "warning" if few else "info"


def _size(infos: list[ParameterInfo]) -> int:
    return sum(math.prod(info.shape) for info in infos)


def _unfrozen(left: Left, infos: list[ParameterInfo]) -> bool:
    """Whether somebody said that they should train: `p.requires_grad_(True)`."""
    sources = [left.case.graph.source(info.node) for info in infos]
    return all(source is not None and source.flag_stack for source in sources)


# --- words ------------------------------------------------------------------------------------


def _finding(left: Left, group: _Group, severity: Severity) -> Finding | None:
    case, members = left.case, group.members
    near = [info.node for info in group.beside or group.trained]
    optimizer = left.optimizer_of(near, {info.node for info in members})
    where = case.user_span(optimizer.stack) if optimizer is not None and optimizer.stack else None
    if optimizer is None or where is None:
        return None
    names = leaving.names_of(members)
    whole, one = not group.beside, len(names) == 1
    count = words.count(len(names), "parameter")
    paths = [part.path for part in missing.parts(members, case.question.parameters)]
    subject = f"`{group.owner}`" if whole else words.listed(paths)
    title = (
        f"`{group.owner}` is in no optimizer: its {count} get{'s' if one else ''} a gradient and "
        f"never change{'s' if one else ''}"
        if whole
        else f"{subject}{leaving.part_of(group.owner, paths)} {_is(paths)} in no optimizer and "
        f"never change{'s' if len(paths) == 1 else ''}"
    )
    thing = group.owner if whole and group.owner != members[0].module_types[0] else ""
    edits = in_optimizer(where, thing) if thing else []
    given = f"`{thing}.parameters()`" if thing else words.listed(names)
    return Finding(
        code=CODE,
        severity=severity,
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} Left out: {words.listed(names, 8)}.",
        location=location(where),
        label=_label(where, subject),
        related=_made(left, group, where),
        parameters=names,
        why=_why(group, where),
        checked=[
            f"{count} got a gradient in {_passes(left, members)}; no optimizer holds "
            f"{'it' if one else 'them'}, and nothing else changed {'its' if one else 'their'} "
            "values."
        ],
        fix=Fix(
            title=f"give the optimizer {given} as well",
            edits=edits,
            safety="these parameters will change from the first step on",
            deliberate="if they should stay as they are, say so: `requires_grad_(False)` also "
            "saves the work for gradients that nobody uses.",
        ),
        first_step=case.question.step,
        at_end=whole and group.order.upstream,
    )


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _it(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _passes(left: Left, infos: list[ParameterInfo]) -> str:
    passes = max((left.touched[info.node] for info in infos), default=0)
    return f"{passes} backward {'pass' if passes == 1 else 'passes'}"


def _given(where: Span) -> str:
    """What the optimizer is made from, as it is written."""
    text = argument_text(where, 0, "params") or ""
    return text if len(text) <= _MAX_WIDTH and "\n" not in text else ""


def _label(where: Span, subject: str) -> str:
    given = _given(where)
    return f"`{given}` leaves out {subject}" if given else f"gets parameters, without {subject}"


def _why(group: _Group, where: Span) -> str:
    known = "an optimizer changes the parameters that it was given when it was made, and no others."
    given = _given(where)
    if group.late:
        return f"{known} These were added to the model later."
    if not group.beside and given.endswith(".parameters()"):
        return (
            f"{known} `{group.owner}` is a module of its own: `{given}` does not list what is "
            "in it."
        )
    return known


def _made(left: Left, group: _Group, where: Span) -> list[Related]:
    first = group.members[0]
    spans = leaving.made_at(left.case, first.node)
    classes = first.module_types if not group.beside else ()
    span = leaving.maker(spans, classes) if spans else None
    if span is None or (span.file, span.line) == (where.file, where.line):
        return []
    label = "made here, after the optimizer" if group.late else "made here"
    return [Related("created", location(span), label)]


# --- tensors of no module ---------------------------------------------------------------------


def _is_learned(left: Left, node: int) -> bool:
    """Whether a tensor looks like one that is meant to change, and not like data or a zero."""
    source, event = left.case.graph.source(node), left.case.graph.event(node)
    if source is not None:
        return source.parameter
    if event is None or event.op not in _CONSTANTS:
        return False
    users = left.consumers.users(node) if left.consumers is not None else []
    summed = all((u := left.case.graph.event(n)) is None or u.op in _SUMS for n in users)
    return math.prod(event.shape or ()) > 1 or not summed  # sums have to begin with something


def _loose(left: Left, nodes: list[int]) -> Iterator[Finding]:
    """Leaves that the program keeps beside its modules."""
    case = left.case
    optimizer = left.optimizer_of(left.held, set(nodes))
    where = case.user_span(optimizer.stack) if optimizer is not None and optimizer.stack else None
    if where is None:
        return
    names = case.names(nodes)
    spans = [case.places.node_span(node) for node in nodes]
    made = [span for span in spans if span is not None and assigned_names(span)]
    if len(made) < len(nodes):
        return  # nobody could tell what is meant
    passes = max(left.touched[node] for node in nodes)
    verb = "changes" if len(names) == 1 else "change"
    title = f"{words.listed(names)} {_is(names)} in no optimizer and never {verb}"
    yield Finding(
        code=CODE,
        severity="warning",
        symptom="silent",
        title=title,
        message=f"{words.sentence(title)} {'It gets' if len(names) == 1 else 'They get'} a "
        "gradient in every backward pass.",
        location=location(where),
        label=_label(where, words.listed(names)),
        related=[Related("created", location(span), "asks for a gradient") for span in made[:3]],
        parameters=names,
        why="an optimizer changes the tensors that it was given when it was made, and no others.",
        checked=[
            f"the same {words.count(len(names), 'tensor')} got a gradient in {passes} backward "
            f"passes; no optimizer holds {_it(names)}, nothing changed {_it(names)}, and nobody "
            "read the gradient."
        ],
        fix=Fix(
            title=f"give the optimizer {words.listed(names)} as well",
            safety=f"from the first step on this changes {_it(names)}",
            deliberate=f"if nothing should change {_it(names)}, do not ask for a gradient.",
        ),
        first_step=case.question.step,
    )
