"""What an optimizer refuses to take: things that are no parameters, or others than it had."""

from __future__ import annotations

from collections.abc import Iterator

from whygrad.diagnose import complaints, words
from whygrad.diagnose.case import Case
from whygrad.diagnose.complaints import Said
from whygrad.session import Edit, Finding, Fix
from whygrad.source.arguments import argument_text
from whygrad.source.edits import replace_text
from whygrad.source.files import load
from whygrad.source.given import argument_at, defined_at
from whygrad.source.spans import Span
from whygrad.source.tree import node_span, receiver_text

_OPTIMIZERS = "torch.optim"
_LONG = 50


def tell(case: Case, said: Said) -> Iterator[Finding]:
    """The finding for a message about what an optimizer was given."""
    if not any(call.startswith(_OPTIMIZERS) for call in said.complaint.calls):
        return  # "is not iterable" is said by many others
    match said.message.id:
        case "optimizer-load-mismatch":
            yield _loaded(case, said)
        case "optimizer-params-single-tensor":
            yield _single(case, said)
        case "optimizer-params-not-iterable":
            thing, instead = _no_collection(said)
            said.words |= {"thing": thing, "instead": instead}
            yield complaints.finding(case, said, fix=_called(said))
        case _:
            yield _no_tensor(case, said)


def _given(said: Said) -> str:
    text = argument_text(said.where, 0, "params") or ""
    return text if len(text) <= _LONG and "\n" not in text else ""


def _single(case: Case, said: Said) -> Finding:
    given = _given(said)
    said.words["given"] = given or "it"
    fix = Fix(title=said.fill(said.message.fix), edits=_instead(said, f"[{given}]"))
    return complaints.finding(case, said, fix=fix if given else None)


def _no_collection(said: Said) -> tuple[str, str]:
    """(what was given, what to give instead)."""
    kind, given = _kind(said), _given(said)
    if kind in ("method", "function"):
        return f"the method `{given or 'parameters'}` itself", f"`{given or 'parameters'}()`"
    shown = f"`{given}` (a `{kind}`)" if given else f"a `{kind}`"
    return shown, f"`{given or 'model'}.parameters()`"


def _kind(said: Said) -> str:
    """The class that a message names, without its module."""
    quoted = said.words.get("g1", "").strip("'<>")
    if quoted.endswith(".parameters"):  # torch's name for what `module.parameters()` returns
        return "generator"
    return quoted.rpartition(".")[2] or "value"


def _called(said: Said) -> Fix:
    kind, given = _kind(said), _given(said)
    new = f"{given}()" if kind in ("method", "function") else f"{given}.parameters()"
    return Fix(title=said.fill(said.message.fix), edits=_instead(said, new) if given else [])


def _instead(said: Said, new: str) -> list[Edit]:
    """The first argument, replaced."""
    argument = argument_at(said.where, 0, "params")
    if argument is None:
        return []
    return replace_text(node_span(load(said.where.file), argument), new)


_INSTEAD = {
    "str": "`parameters()`, not `named_parameters()` or a dictionary's keys",
    "tuple": "`parameters()`, or the second part of each pair of `named_parameters()`",
    "list": "one flat list, `[*a.parameters(), *b.parameters()]`",
    "generator": "one flat list, `[*a.parameters(), *b.parameters()]`",
    "method": "call it, `parameters()`",
    "dict": "dictionaries with the tensors under `params`",
}
_SPOKEN = {
    "tuple": "a tuple, such as a name with its parameter",
    "list": "a list inside of the list",
    "generator": "the `parameters` of a module as a whole",
    "str": "a string",
    "method": "a method that was not called",
    "NoneType": "None",
}


def _no_tensor(case: Case, said: Said) -> Finding:
    kind = _kind(said)
    thing = _SPOKEN.get(kind, f"a `{kind}`")
    said.words |= {
        "thing": thing,
        "Thing": thing[:1].upper() + thing[1:],
        "instead": _INSTEAD.get(kind, "`module.parameters()` in place of the module"),
    }
    where = defined_at(case.places.spans(said.complaint.stack), 0, "params")
    if where is None or where.line == said.where.line:
        return complaints.finding(case, said)
    return complaints.finding(case, said, where=where)


def _loaded(case: Case, said: Said) -> Finding:
    stack = next((m.stack for m in said.complaint.made if m.kind == "optimizer"), 0)
    where: Span | None = case.user_span(stack) if stack else None
    name = receiver_text(said.where)
    said.words |= {
        "optimizer": f"`{name}`" if name and len(name) <= _LONG else "this one",
        "held": words.count(len(said.complaint.held), "parameter"),
    }
    names = case.names([holding.node for holding in said.complaint.held])
    return complaints.finding(case, said, where=where, parameters=names)
