"""Parameters by the names their owner knows, found without keeping a book while it runs.

Naming needs the outermost modules and the optimizers. Both are found by a walk over Python's
own list of living objects, at the moment of a question: the running program pays nothing.
"""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from whygrad.record import torch_api
from whygrad.record.events import Event, ParameterInfo
from whygrad.record.keeping import single_leaf
from whygrad.record.recorder import Recorder
from whygrad.record.trees import (
    Hidden,
    Keeping,
    Place,
    Root,
    deeper,
    hidden,
    join,
    name_owners,
    outermost,
    own_parameters,
)

_OP, _INPUTS = Event._fields.index("op"), Event._fields.index("inputs")
_MAX_HOPS = 4  # operations between a parameter and what was copied into it
_OF_DATA = frozenset(["from_numpy", "tensor", "as_tensor", "Tensor", "frombuffer", "from_dlpack"])
_UNSEEN = 1 << 60  # a parameter that no recorded call has touched


def take(recorder: Recorder, numbers: dict[int, int] | None = None) -> list[ParameterInfo]:
    """Every parameter of the outermost modules that took part, and of every optimizer.

    `numbers` are those of the optimizers, by their ids.
    """
    with torch_api.without_torch_function():
        modules, optimizers = living()
        groups = [
            (group.get("params", ()), (numbers or {}).get(id(optimizer), -1))
            for optimizer in optimizers
            for group in getattr(optimizer, "param_groups", ())
        ]
        held = {id(parameter): number for group, number in groups for parameter in group}
        found: dict[int, ParameterInfo] = {}
        unregistered = hidden(modules, held)
        roots = [r for r in outermost(modules, unregistered) if _took_part(r, recorder)]
        name_owners(roots, modules)
        for number, root in enumerate(roots):
            for place in root.places:
                _parameters_of(number, root, place, recorder, held, found)
        for number, root in enumerate(roots):
            for place in root.places:
                _tensors_of(number, root, place, unregistered, recorder, held, found)
        for group, number in groups:
            for parameter in group:
                if id(parameter) not in found:
                    bare = ParameterInfo(
                        **_facts(recorder, parameter),
                        name="",
                        root=-1,
                        owner="",
                        module="",
                        module_types=(),
                        in_optimizer=True,
                        registered=False,
                        optimizer=number,
                    )
                    found[id(parameter)] = bare
            if not any(parameter.requires_grad for parameter in group):
                for parameter in group:
                    found[id(parameter)].group_frozen = True
        return [info for info in found.values() if info.node != _UNSEEN]


def optimizers(recorder: Recorder) -> list[frozenset[int]]:
    """For each living optimizer, the nodes of the parameters that it holds."""
    return [frozenset(nodes_of(recorder, optimizer)) for optimizer in living()[1]]


def nodes_of(recorder: Recorder, optimizer: Any) -> set[int]:
    """The nodes of an optimizer's parameters."""
    known = (
        recorder.node_of(parameter)
        for group in getattr(optimizer, "param_groups", ())
        for parameter in group.get("params", ())
    )
    return {node for node in known if node is not None}


def living() -> tuple[list[Any], list[Any]]:
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


def _took_part(root: Root, recorder: Recorder) -> bool:
    return any(
        recorder.node_of(parameter) is not None
        for place in root.places
        for _, parameter in own_parameters(place.module)
    )


def _parameters_of(
    number: int,
    root: Root,
    place: Place,
    recorder: Recorder,
    held: dict[int, int],
    found: dict[int, ParameterInfo],
) -> None:
    for name, parameter in own_parameters(place.module):
        if id(parameter) not in found:
            keeping = deeper(place.kept, name)
            found[id(parameter)] = _info(number, root, place, name, keeping, recorder, parameter)
            _note_optimizer(found[id(parameter)], held, parameter)


def _tensors_of(
    number: int,
    root: Root,
    place: Place,
    unregistered: Hidden,
    recorder: Recorder,
    held: dict[int, int],
    found: dict[int, ParameterInfo],
) -> None:
    """Tensors that ask for gradients, and parameters of which only a converted copy is kept."""
    for kept in unregistered.tensors.get(id(place.module), ()):
        tensor, within = kept.thing, kept.within
        if not tensor.is_leaf:
            tensor, within = single_leaf(tensor), "result"
        if tensor is None or id(tensor) in found or id(tensor) in held:
            continue
        training = bool(vars(place.module).get("training", True))
        keeping = Keeping(kept.where, place.types[-1], within, training)
        info = _info(number, root, place, kept.where, keeping, recorder, tensor)
        found[id(tensor)] = info


def _info(
    number: int,
    root: Root,
    place: Place,
    name: str,
    keeping: Keeping | None,
    recorder: Recorder,
    parameter: Any,
) -> ParameterInfo:
    info = ParameterInfo(
        **_facts(recorder, parameter),
        name=join(place.path, name),
        root=number,
        owner=root.owner,
        module=place.path,
        module_types=place.types,
        in_optimizer=False,
        training=bool(vars(root.module).get("training", True)),
    )
    if keeping is not None:
        info.registered, info.training = False, keeping.training
        info.kept_as, info.keeper, info.keeps_in = keeping.path, keeping.keeper, keeping.within
    return info


def _note_optimizer(info: ParameterInfo, held: dict[int, int], parameter: Any) -> None:
    if id(parameter) in held:
        info.in_optimizer, info.optimizer = True, held[id(parameter)]


def _facts(recorder: Recorder, parameter: Any) -> dict[str, Any]:
    """What a parameter itself tells, and what the record knows of it."""
    node = recorder.node_of(parameter)
    return {
        "node": _UNSEEN if node is None else node,
        "requires_grad": parameter.requires_grad,
        "has_grad": parameter.is_leaf and parameter.grad is not None,
        "shape": tuple(parameter.shape) if not _uninitialized(parameter) else (),
        "loaded": node is not None and _is_loaded(recorder, node),
    }


def _is_loaded(recorder: Recorder, node: int) -> bool:
    """Whether a parameter's values were copied from somewhere, as load_state_dict() does."""
    source = recorder.sources.get(node)
    events, base = recorder.events, recorder.base
    origin = source.origin if source is not None else None
    copied = False
    for _ in range(_MAX_HOPS):
        index = -1 if origin is None else origin - base
        if not 0 <= index < len(events):
            return copied
        op, inputs = events[index][_OP], events[index][_INPUTS]
        if not inputs:  # made on the spot (zeros, a random draw), unless of data
            return copied and op in _OF_DATA
        copied = copied or op == "copy_"
        # Of a write through `.data` the first input is the memory that it went into.
        origin = inputs[-1]
    return copied


def _uninitialized(parameter: Any) -> bool:
    return torch.nn.parameter.is_lazy(parameter)
