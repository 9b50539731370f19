"""Outermost modules with all that lies below them, registered or not.

The attributes of modules are read as they are: no code of the program's own runs.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

from torch.nn import Module

from whygrad.record.keeping import Kept, Search


@dataclass(slots=True)
class Place:
    """A module in the tree of an outermost one."""

    module: Any
    path: str
    types: tuple[str, ...]  # classes from the outermost module down to this one
    kept: Keeping | None = None  # on the way to it lies a module that is not registered


@dataclass(slots=True)
class Keeping:
    """How something that no module registers is kept."""

    path: str  # below the module with the attribute
    keeper: str
    within: str
    training: bool = True


@dataclass(slots=True)
class Root:
    module: Any
    places: list[Place]
    owner: str = ""


@dataclass(slots=True)
class Hidden:
    """What modules keep without registering it, by the id of the keeper."""

    modules: dict[int, list[Kept]]
    tensors: dict[int, list[Kept]]


def hidden(modules: list[Any], held: dict[int, int]) -> Hidden:
    """Modules that are in no tree but in a list or the like of another, and loose tensors.

    What an optimizer holds is no part of the module that happens to keep it.
    """
    inner = _inner(modules)
    found = Hidden({}, {})
    search, claimed = Search(), set()
    for module in modules:
        for kept in search.kept_by(module):
            thing = kept.thing
            if Module not in type(thing).__mro__:
                if thing.requires_grad:
                    found.tensors.setdefault(id(module), []).append(kept)
            elif id(thing) not in inner and id(thing) not in claimed:
                inside = _tree(thing, Hidden({}, {}))
                if any(place.module is module for place in inside):
                    continue  # a way back to what it is a part of
                if not any(
                    id(p) in held for place in inside for _, p in own_parameters(place.module)
                ):
                    claimed.add(id(thing))
                    found.modules.setdefault(id(module), []).append(kept)
    return found


def _inner(modules: list[Any]) -> set[int]:
    """The ids of modules that another module has registered."""
    return {
        id(child)
        for module in modules
        for child in vars(module).get("_modules", {}).values()
        if child is not None
    }


def outermost(modules: list[Any], hidden: Hidden) -> list[Root]:
    """Modules that no other module holds, each with all modules below it."""
    inner = _inner(modules)
    kept = {id(k.thing) for inside in hidden.modules.values() for k in inside}
    outer = [m for m in modules if id(m) not in inner]
    roots = [Root(m, _tree(m, hidden)) for m in outer if id(m) not in kept]
    placed = {id(place.module) for root in roots for place in root.places}
    # Two that keep each other are reached from nowhere else.
    rest = [m for m in outer if id(m) in kept and id(m) not in placed]
    return roots + [Root(m, _tree(m, Hidden({}, {}))) for m in rest]


def _tree(root: Any, hidden: Hidden) -> list[Place]:
    """Like named_modules(), with what is not registered, and without running the program's code."""
    found: list[Place] = []
    seen: set[int] = set()
    waiting = [Place(root, "", (type(root).__name__,))]
    while waiting:
        place = waiting.pop()
        module = place.module
        if id(module) in seen:
            continue
        seen.add(id(module))
        found.append(place)
        below = [
            _below(place, child, name, deeper(place.kept, name))
            for name, child in vars(module).get("_modules", {}).items()
            if child is not None
        ]
        for kept in hidden.modules.get(id(module), ()):
            training = bool(vars(kept.thing).get("training", True))
            keeping = Keeping(kept.where, type(module).__name__, kept.within, training)
            below.append(_below(place, kept.thing, kept.where, keeping))
        waiting += reversed(below)
    return found


def _below(place: Place, child: Any, name: str, kept: Keeping | None) -> Place:
    return Place(child, join(place.path, name), (*place.types, type(child).__name__), kept)


def deeper(kept: Keeping | None, name: str) -> Keeping | None:
    if kept is None:
        return None
    return Keeping(join(kept.path, name), kept.keeper, kept.within, kept.training)


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def own_parameters(module: Any) -> list[tuple[str, Any]]:
    """The parameters that a module itself has registered."""
    parameters = vars(module).get("_parameters", {})
    return [(name, value) for name, value in parameters.items() if value is not None]


def name_owners(roots: list[Root], modules: list[Any]) -> None:
    """The attribute or global variable that holds each outermost module."""
    if not roots:
        return
    wanted = {id(root.module): root for root in roots}
    ours = {id(modules), id(roots)}
    for holder in gc.get_referrers(*(root.module for root in roots)):
        if id(holder) in ours or type(holder) is Root:
            continue
        namespace = holder if type(holder) is dict else getattr(holder, "__dict__", None)
        if type(namespace) is not dict:
            continue
        for name, value in list(namespace.items()):
            root = wanted.get(id(value))
            if root is not None and type(name) is str and name.isidentifier():
                root.owner = root.owner or name
