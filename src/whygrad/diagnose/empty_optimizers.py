"""An optimizer that is given no parameter at all: where did they go?"""

from __future__ import annotations

import ast

from whygrad.diagnose import complaints, unregistered, words
from whygrad.diagnose.case import Case, is_library
from whygrad.diagnose.complaints import Said
from whygrad.record.events import ParameterInfo
from whygrad.session import Finding, Fix, Related
from whygrad.source.attributes import statement_span
from whygrad.source.bindings import dotted_name, names_of
from whygrad.source.files import load
from whygrad.source.given import argument_at, defined_at
from whygrad.source.reaching import origins
from whygrad.source.spans import Span, location
from whygrad.source.tree import assigned_names, expression_at, statement_at

MESSAGE = "optimizer-empty"

_FROZEN = "frozen-parameters"
_WALKS = ("parameters", "named_parameters")


def tell(case: Case, said: Said) -> Finding:
    spans = case.places.spans(said.complaint.stack)
    origin = defined_at(spans, 0, "params")
    given = origin or _argument(said.where)
    return (
        _used_up(case, said, origin)
        or _frozen(case, said, given)
        or _kept(case, said)
        or _gone(case, said, given)
        or complaints.finding(case, said)
    )


def _argument(where: Span) -> Span | None:
    argument = argument_at(where, 0, "params")
    from_file = load(where.file)
    if argument is None:
        return None
    extent = from_file.extent(argument)
    return Span(where.file, *extent, where.function, where.first_line)


def _used_up(case: Case, said: Said, origin: Span | None) -> Finding | None:
    """`params = model.parameters()`, gone through once before."""
    if origin is None or not _is_walk(expression_at(origin)):
        return None
    if not any(i.registered and i.requires_grad for i in case.question.parameters):
        return None
    return complaints.finding(
        case,
        said,
        where=origin,
        title="the optimizer gets an iterator of parameters that is used up",
        label="an iterator, which gives its parameters once",
        why="`parameters()` gives an iterator, and an iterator can be gone through once. Something "
        "else has done that before the optimizer, which finds nothing in it.",
        fix=Fix(title="keep a list: `list(model.parameters())`"),
    )


def _is_walk(node: ast.expr | None) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _WALKS
        case ast.Call(func=ast.Name(id="filter" | "map" | "iter")) | ast.GeneratorExp():
            return True
    return False


def _frozen(case: Case, said: Said, given: Span | None) -> Finding | None:
    """Everything is frozen, and what is frozen is left out."""
    chosen = ast.unparse(node) if given and (node := expression_at(given)) is not None else ""
    infos = [info for info in case.question.parameters if info.registered]
    if "requires_grad" not in chosen or not infos or any(i.requires_grad for i in infos):
        return None
    stacks = [s.flag_stack for i in infos if (s := case.graph.source(i.node)) is not None]
    where = next((case.user_span(stack) for stack in stacks if stack), None)
    names = [info.name for info in infos]
    return complaints.finding(
        case,
        said,
        where=where,
        code=_FROZEN,
        title=f"all {words.count(len(names), 'parameter')} are frozen, and the optimizer is given "
        "those that are not",
        label="freezes them",
        why="`requires_grad` is False for every parameter, and the optimizer gets just those for "
        "which it is True.",
        parameters=names,
        fix=Fix(title="unfreeze what should train before the optimizer is made"),
    )


def _kept(case: Case, said: Said) -> Finding | None:
    """Parameters that a living module keeps without registering them."""
    infos = [info for info in case.question.parameters if info.kept_as and not info.registered]
    return _unregistered(case, said, infos) if infos else None


def _unregistered(case: Case, said: Said, infos: list[ParameterInfo]) -> Finding | None:
    first = infos[0]
    made = tuple(s for s in case.places.node_spans(first.node) if not is_library(s.file))
    if not made:
        return None
    attribute = unregistered.attribute_of(first)
    where, store = unregistered.stored(made, attribute)
    return complaints.finding(
        case,
        said,
        where=where,
        title=f"`{attribute}` of `{first.keeper}` {unregistered.what(first, len(infos))}, so the "
        "optimizer gets nothing",
        label=unregistered.label(first),
        why=unregistered.why(first, attribute),
        parameters=[info.name for info in infos],
        fix=unregistered.fix(first, attribute, where, store),
    )


def _gone(case: Case, said: Said, given: Span | None) -> Finding | None:
    """The module is gone by now; what was made in its constructor is still known."""
    owner, recording = _class_given(given), case.graph.recording
    if not owner:
        return None
    sources = [node for node, source in recording.sources.items() if source.parameter]
    tensors = range(recording.base, recording.base + len(recording.events))
    for node in (*sources, *tensors):
        plain = node >= 0
        if plain and not (case.graph.live(node) and not case.graph.inputs(node)):
            continue
        where = _made_in(case, node, owner)
        if where is not None:
            return _in_constructor(case, said, where, owner, plain)
    return None


def _class_given(given: Span | None) -> str:
    """The class whose parameters are asked for: `Net` for `Net().parameters()`."""
    node = expression_at(given) if given is not None else None
    source = load(given.file) if given is not None else None
    names = names_of(source) if source is not None else None
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=func), attr=name)) if name in _WALKS:
            return dotted_name(func) or ""
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in _WALKS and names:
            found = origins(names, dotted_name(owner) or "", owner).definitions
            made = [value for definition in found for value in definition.values]
            if len(made) == 1 and isinstance(made[0], ast.Call):
                return dotted_name(made[0].func) or ""
    return ""


def _made_in(case: Case, node: int, owner: str) -> Span | None:
    spans = [span for span in case.places.node_spans(node) if not is_library(span.file)]
    own = f"{owner.rpartition('.')[2]}.__init__"
    return next((span for span in spans if span.function.endswith(own)), None)


def _in_constructor(case: Case, said: Said, made: Span, owner: str, tensor: bool) -> Finding:
    statement, names = statement_at(made), assigned_names(made)
    where = statement_span(made, statement) if statement is not None else made
    listed = isinstance(getattr(statement, "value", None), (ast.List, ast.ListComp, ast.Tuple))
    held = f"`{names[0]}`" if names else "what is made here"
    kind = "a plain list" if listed else "kept where the module does not see it"
    if tensor and not listed:
        return complaints.finding(
            case,
            said,
            where=where,
            title=f"{held} of `{owner}` is a plain tensor, so the optimizer gets nothing",
            label="a tensor that requires grad, and that no module registers",
            why="a module registers `nn.Parameter`s. A plain tensor is none, so `parameters()` "
            "does not list it.",
            fix=Fix(title=f"make {held} an `nn.Parameter`"),
        )
    return complaints.finding(
        case,
        said,
        where=where,
        title=f"{held} of `{owner}` is {kind}, so the optimizer gets nothing",
        label=f"`{owner}` does not look into this",
        why="a module registers the modules and parameters that are assigned to its attributes. "
        "It does not look into lists and dictionaries, so `parameters()` does not list what is "
        "in them.",
        fix=Fix(title="keep them in an `nn.ModuleList` (`nn.ModuleDict`, `nn.ParameterList`)"),
        related=[Related("optimizer", location(said.where), "gets no parameter")]
        if where.line != said.where.line
        else [],
    )
