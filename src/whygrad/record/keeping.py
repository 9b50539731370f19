"""What modules keep without registering it: layers in a list, bare tensors, converted parameters.

`parameters()` knows nothing of these. They are found by looking through the attributes of a
module, without running any code of the program's own.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch.nn import Module

from whygrad.record.frames import USER, classify_file

_OWN = frozenset(vars(Module()))  # what every module has
_SEQUENCES = (list, tuple, set, frozenset, deque)
_MAX_DEPTH = 5
_MAX_ITEMS = 4096  # looked at below one module
_MAX_CHAIN = 8  # operations between a parameter and what was made of it


class Kept(NamedTuple):
    """A module or a tensor that another module keeps."""

    thing: Any
    where: str  # below the module: "hids[0][0]"
    within: str  # "list", "tuple", "dict", "buffer", ...; empty for the attribute itself


class Search:
    """One look through the attributes of modules."""

    def __init__(self) -> None:
        self._kinds: dict[type, str] = {}

    def kept_by(self, module: Any) -> Iterator[Kept]:
        """Modules and tensors in the attributes of a module."""
        attributes = vars(module)
        waiting: deque[tuple[Any, str, str, int]] = deque(
            (value, name, "", 0)
            for name, value in list(attributes.items())
            if name not in _OWN and type(name) is str
        )
        buffers = attributes.get("_buffers", {})
        waiting += [(value, str(name), "buffer", 0) for name, value in list(buffers.items())]
        waiting += [(value, name, "class", 0) for name, value in self._of_class(type(module))]
        seen = {id(module)}
        while waiting and len(seen) < _MAX_ITEMS:
            value, where, within, depth = waiting.popleft()
            kind = self._kind(type(value))
            if not kind or id(value) in seen:
                continue
            seen.add(id(value))
            if kind == "tensor":
                yield Kept(value, where, within)
            elif kind == "module":
                if within:  # straight in a module's own dictionary it cannot be by accident
                    yield Kept(value, where, within)
            elif depth < _MAX_DEPTH:
                within = within or _spoken(value, kind)
                inside = _inside(kind, value, where)
                waiting += [(item, path, within, depth + 1) for item, path in inside]

    def _of_class(self, kind: type) -> list[tuple[str, Any]]:
        """What is defined once for all instances of a class of the program's own."""
        return [
            (name, value)
            for base in kind.__mro__
            if base is not Module and base is not object and _is_users(base)
            for name, value in list(vars(base).items())
            if self._kind(type(value)) in ("module", "tensor", "dict", "sequence")
        ]

    def _kind(self, kind: type) -> str:
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = _kind_of(kind)
        return found


def single_leaf(tensor: Any) -> Any:
    """The leaf from which a tensor was made by operations on it alone, such as `.to()`."""
    function = tensor.grad_fn
    for _ in range(_MAX_CHAIN):
        following = [f for f, _ in getattr(function, "next_functions", ()) if f is not None]
        if len(following) != 1:
            return None
        function = following[0]
        # By the name of its type: a custom Function may have a `variable` of its own.
        if type(function).__name__ == "AccumulateGrad":
            return function.variable
    return None


def _kind_of(kind: type) -> str:
    """What to do with values of a type; by its bases, since isinstance() may run its code."""
    bases = kind.__mro__
    if Module in bases:
        return "module"
    if torch.Tensor in bases:
        return "tensor"
    if dict in bases:
        return "dict"
    if any(sequence in bases for sequence in _SEQUENCES):
        return "sequence"
    if FunctionType in bases:
        return "function"
    if functools.partial in bases:
        return "partial"
    return "object" if _is_users(kind) else ""


def _is_users(kind: type) -> bool:
    """Whether a class is the program's own."""
    module = kind.__module__
    if type in kind.__mro__ or type(module) is not str or module == "builtins":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    # What was typed in belongs to no file.
    return module == "__main__" or (type(file) is str and classify_file(file) == USER)


def _inside(kind: str, value: Any, where: str) -> list[tuple[Any, str]]:
    """What a container holds, with its path."""
    if kind == "dict":
        items = list(dict.items(value)) if dict.__len__(value) <= _MAX_ITEMS else []
        return [(item, f"{where}[{_key(key)}]") for key, item in items]
    if kind == "sequence":
        base: Any = _sequence(value)
        items = list(base.__iter__(value)) if base.__len__(value) <= _MAX_ITEMS else []
        return [(item, f"{where}[{index}]") for index, item in enumerate(items)]
    if kind == "partial":
        given = [*value.args, *value.keywords.values()]
        return [(item, f"{where}({index})") for index, item in enumerate(given)]
    if kind == "function":
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        return [(cell.cell_contents, f"{where}.{name}") for name, cell in cells if _filled(cell)]
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return []
    return [(item, f"{where}.{name}") for name, item in list(attributes.items())]


def _sequence(value: Any) -> type:
    return next(base for base in type(value).__mro__ if base in _SEQUENCES)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a variable without a value
        return False


def _key(key: Any) -> str:
    return repr(key) if type(key) in (str, int, bool) else type(key).__name__


def _spoken(value: Any, kind: str) -> str:
    return _sequence(value).__name__ if kind == "sequence" else kind
