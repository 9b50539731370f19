"""backward() is called on something that is not a tensor: where did it stop being one?"""

from __future__ import annotations

import ast

from whygrad.diagnose import complaints, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.graph.links import Linker
from whygrad.record.ops import EXITS
from whygrad.session import Edit, Finding, Fix
from whygrad.source.arguments import argument_text
from whygrad.source.bindings import names_of
from whygrad.source.edits import remove_method_call
from whygrad.source.files import load
from whygrad.source.reaching import origins
from whygrad.source.spans import Span
from whygrad.source.tree import expression_at, node_span, receiver_text, statement_at

_SCALED = "amp-scale-non-tensor"
MESSAGES = ("loss-is-not-a-tensor", _SCALED)

_NUMBERS = ("float", "int", "complex", "bool")
_LONG = 40


def tell(case: Case, said: Said) -> Finding:
    kind = said.words.get("g1", "")
    name = _name(said.where)
    if said.message.id == _SCALED:
        given = said.complaint.texts.get("outputs", "")
        kind = "float" if "." in given else "int" if given.isdigit() else "value"
        name = argument_text(said.where, 0, "outputs") or name
    exit_node = _exit(case, said) if _is_number(kind) else None
    if exit_node is not None:
        return _left(case, said, name, kind, exit_node)
    where = _assigned(said.where)
    return complaints.finding(
        case,
        said,
        where=where or said.where,
        title=f"`{name}` is a {kind}, not a tensor, so it has no backward()",
        label=_LABELS.get(kind, f"gives a {kind}"),
        why=_WHYS.get(kind)
        or "backward() belongs to tensors: it follows the history of one back to the parameters. "
        f"A {kind} has no history.",
        fix=Fix(title=_FIXES.get(kind, "call backward() on the tensor that the loss is in")),
    )


_LABELS = {
    "NoneType": "gives None",
    "tuple": "gives a tuple",
    "list": "gives a list",
    "dict": "gives a dictionary",
}
_WHYS = {
    "NoneType": "what is assigned here is None: the function called has no `return` on the way "
    "that it took, or works in place.",
    "int": "a plain number is there in place of a loss: no tensor was added to it, as in a sum "
    "over nothing, or the loss was computed without torch.",
}
_FIXES = {
    "NoneType": "return the loss from the function",
    "tuple": "take the loss out of the tuple: `loss, ... = ...`",
    "list": "add the losses up first: `sum(losses)`",
    "dict": "add the losses up first: `sum(losses.values())`",
}


def _left(case: Case, said: Said, name: str, kind: str, exit_node: int) -> Finding:
    event = case.graph.event(exit_node)
    spans = case.places.spans(event.stack) if event is not None else ()
    where = case.user_span(event.stack) if event is not None else None
    op = event.op if event is not None else ""
    spoken = f".{op}()" if not op.startswith("__") else f"{op.strip('_')}()"
    value = receiver_text(where) if where is not None else None
    shown = f"`{value}`" if value and len(value) <= _LONG else "the value"
    direct = where is not None and bool(spans) and where == spans[0]
    return complaints.finding(
        case,
        said,
        where=where,
        title=f"`{name}` is a plain {kind}: `{spoken}` has taken it out of torch",
        label=f"{shown} leaves torch here, without its history",
        why=f"`{spoken}` hands plain numbers to Python. Autograd does not follow them, and a "
        f"{kind} has no history to go back through.",
        fix=Fix(
            title="keep the tensor for backward(), and take the number only where it is shown",
            edits=_edits(where, op) if direct and where is not None else [],
            safety="forward values stay equal",
        ),
        inferred=[f"the number comes from {words.at(where)}."] if where is not None else [],
    )


def _edits(where: Span, op: str) -> list[Edit]:
    """Only where the whole of what is assigned is the number."""
    statement, node = statement_at(where), expression_at(where)
    whole = isinstance(statement, ast.Assign) and statement.value is node
    return remove_method_call(where) if whole and op == "item" else []


def _is_number(kind: str) -> bool:
    return kind in _NUMBERS or kind.startswith(("numpy.", "ndarray"))


def _exit(case: Case, said: Said) -> int | None:
    """Where the value left torch: the latest way out that flows into the call."""
    found = Linker(case.graph, case.places).exits_into(case.places.spans(said.complaint.stack))
    events = {node: case.graph.event(node) for node in found}
    flowing = next((n for n, event in events.items() if event and event.op in EXITS), None)
    return flowing if flowing is not None else _only_exit(case)


def _only_exit(case: Case) -> int | None:
    """Where the source does not tell the way: the one line at which values have left at all."""
    exits = case.graph.recording.exits
    sites = {event.site for node in exits if (event := case.graph.event(node)) is not None}
    return exits[-1] if len(sites) == 1 else None


def _name(where: Span) -> str:
    text = receiver_text(where) or "loss"
    return text if len(text) <= _LONG and "\n" not in text else "loss"


def _assigned(where: Span) -> Span | None:
    """The line that gave the name its value, if there is just one."""
    source = load(where.file)
    names, node = names_of(source), expression_at(where)
    base = node.value if isinstance(node, ast.Attribute) else None
    if names is None or not isinstance(base, ast.Name):
        return None
    found = origins(names, base.id, base)
    lines = {definition.statement for definition in found.definitions}
    if len(lines) != 1 or found.parameter_of is not None:
        return None
    statement = lines.pop()
    value = getattr(statement, "value", None)
    return node_span(source, value) if isinstance(value, ast.expr) else None
