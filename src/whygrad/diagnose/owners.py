"""Names for outermost modules, and names of parameters that tell them apart."""

from __future__ import annotations

from whygrad.graph.places import Places
from whygrad.record.events import ParameterInfo, Question, Recording
from whygrad.source.tree import callee_name


def settle(question: Question, recording: Recording, places: Places) -> None:
    """Give every outermost module a name of its own; put it before names that are not unique."""
    roots: dict[int, list[ParameterInfo]] = {}
    for info in question.parameters:
        if info.registered:
            roots.setdefault(info.root, []).append(info)
    taken: set[str] = set()
    for members in roots.values():
        name = members[0].owner or _called_as(members, recording, places)
        name = name or members[0].module_types[0]
        while name in taken:
            base, _, number = name.partition("#")
            name = f"{base}#{int(number or 1) + 1}"
        taken.add(name)
        for info in members:
            info.owner = name
    _tell_apart(question.parameters)


def _called_as(members: list[ParameterInfo], recording: Recording, places: Places) -> str:
    """The name in `model(x)`: the call through which the module's forward was entered."""
    for info in members[:4]:
        source = recording.sources.get(info.node)
        spans = places.spans(source.stack) if source is not None else ()
        for depth in reversed(range(len(spans))):
            inner = spans[depth - 1].function if depth else "forward"
            if inner.rsplit(".", 1)[-1] == "forward":
                name = callee_name(spans[depth]) or ""
                return name.removeprefix("self.") if not name.startswith((".", "torch.")) else ""
    return ""


def _tell_apart(parameters: list[ParameterInfo]) -> None:
    """Two outermost modules may both have a `0.weight`: their owners' names come in front."""
    owners: dict[str, set[str]] = {}
    for info in parameters:
        if info.name:
            owners.setdefault(info.name, set()).add(info.owner)
    alike = {owner for group in owners.values() if len(group) > 1 for owner in group}
    for info in parameters:
        if info.name and info.owner and (info.owner in alike or _needs_owner(info)):
            info.name = f"{info.owner}.{info.name}"


def _needs_owner(info: ParameterInfo) -> bool:
    """`0.weight` says little; a class is no owner that would say more."""
    return info.name[0].isdigit() and info.registered and info.owner != info.module_types[0]
