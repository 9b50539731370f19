"""Parameters by the names their owner knows, found without keeping a book while it runs.

Naming needs the outermost modules and the optimizers. Both are found by a walk over Python's
own list of living objects, at the moment of a question: the running program pays nothing.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from whygrad.record import torch_api
from whygrad.record.events import ParameterInfo
from whygrad.record.recorder import Recorder


@dataclass(slots=True)
class _Root:
    module: Any
    owner: str = ""


def take(recorder: Recorder) -> list[ParameterInfo]:
    """Every parameter of the outermost modules that took part, and of every optimizer."""
    with torch_api.without_torch_function():
        modules, optimizers = _living()
        groups = [
            group.get("params", ())
            for optimizer in optimizers
            for group in getattr(optimizer, "param_groups", ())
        ]
        held = {id(parameter): parameter for group in groups for parameter in group}
        found: dict[int, ParameterInfo] = {}
        for number, root in enumerate(_outermost(modules, recorder)):
            _parameters_of(number, root, recorder, held, found)
        for key, parameter in held.items():
            if key not in found:
                found[key] = _info(recorder, parameter, "", -1, "", "", (), True, registered=False)
        for group in groups:
            if not any(parameter.requires_grad for parameter in group):
                for parameter in group:
                    found[id(parameter)].group_frozen = True
        return [info for info in found.values() if info.node != _UNSEEN]


def optimizers(recorder: Recorder) -> list[frozenset[int]]:
    """For each living optimizer, the nodes of the parameters that it holds."""
    return [frozenset(nodes_of(recorder, optimizer)) for optimizer in _living()[1]]


def nodes_of(recorder: Recorder, optimizer: Any) -> set[int]:
    """The nodes of an optimizer's parameters."""
    known = (
        recorder.node_of(parameter)
        for group in getattr(optimizer, "param_groups", ())
        for parameter in group.get("params", ())
    )
    return {node for node in known if node is not None}


_UNSEEN = 1 << 60  # a parameter that no recorded call has touched


def _living() -> tuple[list[Any], list[Any]]:
    # type() and not isinstance(): proxies answer isinstance() by running code of their own.
    kinds: dict[type, int] = {}
    modules, optimizers = [], []
    for thing in gc.get_objects():
        kind = type(thing)
        verdict = kinds.get(kind)
        if verdict is None:
            mro = kind.__mro__
            verdict = kinds[kind] = 1 if Module in mro else 2 if Optimizer in mro else 0
        if verdict == 1:
            modules.append(thing)
        elif verdict == 2:
            optimizers.append(thing)
    return modules, optimizers


def _outermost(modules: list[Any], recorder: Recorder) -> list[_Root]:
    """Modules that no other module holds and of which some parameter took part."""
    inner = {
        id(child)
        for module in modules
        for child in vars(module).get("_modules", {}).values()
        if child is not None
    }
    roots = [_Root(m) for m in modules if id(m) not in inner and _took_part(m, recorder)]
    _name_owners(roots, modules)
    return roots


def _took_part(root: Any, recorder: Recorder) -> bool:
    return any(
        recorder.node_of(parameter) is not None
        for module in _submodules(root).values()
        for parameter in vars(module).get("_parameters", {}).values()
        if parameter is not None
    )


def _submodules(root: Any) -> dict[str, Any]:
    """Dotted path -> module, like named_modules() but without running the program's code."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    waiting = [("", root)]
    while waiting:
        path, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        found[path] = module
        children = [
            (f"{path}.{name}" if path else name, child)
            for name, child in vars(module).get("_modules", {}).items()
            if child is not None
        ]
        waiting += reversed(children)
    return found


def _parameters_of(
    number: int,
    root: _Root,
    recorder: Recorder,
    held: dict[int, Any],
    found: dict[int, ParameterInfo],
) -> None:
    modules = _submodules(root.module)
    for path, module in modules.items():
        for name, parameter in vars(module).get("_parameters", {}).items():
            if parameter is None or id(parameter) in found:
                continue
            full = f"{path}.{name}" if path else name
            types = _types_down_to(path, modules)
            found[id(parameter)] = _info(
                recorder,
                parameter,
                full,
                number,
                root.owner,
                path,
                types,
                id(parameter) in held,
            )


def _types_down_to(path: str, modules: dict[str, Any]) -> tuple[str, ...]:
    """The classes on the way from the outermost module to the one at `path`."""
    parts = path.split(".") if path else []
    steps = [".".join(parts[:depth]) for depth in range(len(parts) + 1)]
    return tuple(type(modules[step]).__name__ if step in modules else "" for step in steps)


def _info(
    recorder: Recorder,
    parameter: Any,
    name: str,
    root: int,
    owner: str,
    module: str,
    module_types: tuple[str, ...],
    in_optimizer: bool,
    registered: bool = True,
) -> ParameterInfo:
    node = recorder.node_of(parameter)
    return ParameterInfo(
        node=_UNSEEN if node is None else node,
        name=name,
        root=root,
        owner=owner,
        module=module,
        module_types=module_types,
        requires_grad=parameter.requires_grad,
        has_grad=parameter.is_leaf and parameter.grad is not None,
        in_optimizer=in_optimizer,
        shape=tuple(parameter.shape) if not _uninitialized(parameter) else (),
        registered=registered,
    )


def _uninitialized(parameter: Any) -> bool:
    return torch.nn.parameter.is_lazy(parameter)


def _name_owners(roots: list[_Root], modules: list[Any]) -> None:
    """The attribute or global variable that holds each outermost module."""
    if not roots:
        return
    wanted = {id(root.module): root for root in roots}
    ours = {id(modules), id(roots)}
    for holder in gc.get_referrers(*(root.module for root in roots)):
        if id(holder) in ours or type(holder) is _Root:
            continue
        namespace = holder if type(holder) is dict else getattr(holder, "__dict__", None)
        if type(namespace) is not dict:
            continue
        for name, value in list(namespace.items()):
            root = wanted.get(id(value))
            if root is not None and type(name) is str and name.isidentifier():
                root.owner = root.owner or name
