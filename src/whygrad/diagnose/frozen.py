"""Frozen parts of a module tree, and whether they look like an oversight."""

from __future__ import annotations

from dataclasses import dataclass

from whygrad.record.events import ParameterInfo


@dataclass(slots=True)
class Part:
    """A largest module, or else a single parameter, all of which is frozen."""

    path: str
    kind: str  # the class of the module, or class.name of the parameter
    members: list[ParameterInfo]
    alike: int  # other parts of the same kind
    lonely: bool  # all its neighbours train, and so do all others of its kind

    def passes(self, trained_through: set[int]) -> bool:
        """Whether gradient passes through it, on its way to something that trains."""
        return any(info.node in trained_through for info in self.members)


def frozen_parts(parameters: list[ParameterInfo]) -> list[Part]:
    """The frozen parts of all outermost modules."""
    owners: dict[str, list[ParameterInfo]] = {}
    for info in parameters:
        if info.registered:
            owners.setdefault(info.owner, []).append(info)
    return [part for group in owners.values() for part in _parts_of(group)]


def _parts_of(group: list[ParameterInfo]) -> list[Part]:
    found: dict[str, Part] = {}
    for info in group:
        if info.requires_grad:
            continue
        path = _largest_frozen(info, group)
        if path not in found:
            found[path] = _part(path, info, group)
    return list(found.values())


def _largest_frozen(info: ParameterInfo, group: list[ParameterInfo]) -> str:
    """The path of the largest frozen module around a parameter, or the parameter itself."""
    pieces = info.module.split(".") if info.module else []
    for depth in range(1, len(pieces) + 1):
        path = ".".join(pieces[:depth])
        if not any(other.requires_grad for other in group if _inside(other, path)):
            return path
    return f"{info.module}.{_own_name(info)}" if info.module else _own_name(info)


def _part(path: str, info: ParameterInfo, group: list[ParameterInfo]) -> Part:
    parent = path.rpartition(".")[0]
    whole = any(_inside(other, path) for other in group)
    members = [i for i in group if (_inside(i, path) if whole else i is info)]
    near = [i for i in group if i not in members and (not parent or _inside(i, parent))]
    kind = _kind(path, info, whole)
    alike: dict[str, list[ParameterInfo]] = {}
    for other in group:
        if other in members:
            continue
        for place, other_kind in _places(other, whole):
            if other_kind == kind:
                alike.setdefault(place, []).append(other)
    return Part(
        path=path,
        kind=kind,
        members=members,
        alike=len(alike),
        lonely=len(near) > 0
        and all(i.requires_grad for i in near)
        and bool(alike)
        and all(i.requires_grad for infos in alike.values() for i in infos),
    )


def _places(info: ParameterInfo, whole: bool) -> list[tuple[str, str]]:
    """(path, kind) of the modules around a parameter, or of the parameter itself."""
    if not whole:
        return [(info.name, f"{info.module_types[-1]}.{_own_name(info)}")]
    pieces = info.module.split(".") if info.module else []
    return [
        (".".join(pieces[:depth]), info.module_types[depth]) for depth in range(1, len(pieces) + 1)
    ]


def _kind(path: str, info: ParameterInfo, whole: bool) -> str:
    if not whole:
        return f"{info.module_types[-1]}.{_own_name(info)}"
    return info.module_types[path.count(".") + 1]


def _inside(info: ParameterInfo, path: str) -> bool:
    return info.module == path or info.module.startswith(f"{path}.")


def _own_name(info: ParameterInfo) -> str:
    return info.name.rpartition(".")[2]
