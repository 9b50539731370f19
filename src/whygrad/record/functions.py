"""The program's own derivatives that took part in a complaint, and where they are written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from whygrad.record import adoption, autopsy, failures, torch_api
from whygrad.record.events import CHECKED, INSIDE_FUNCTION, Altered, Definition, Event
from whygrad.record.frames import TORCH
from whygrad.record.recorder import Recorder

_LIBRARY = "library"  # in place of a method: the file in which an operator is defined
_OPERATOR_CALLS = (
    "register_autograd",
    "CustomOpDef.register_autograd",
    "CustomOpDef.__call__",
)
_ONCE = "marked with @once_differentiable"
_MAX_FOUND = 64
_SITE, _STACK = Event._fields.index("site"), Event._fields.index("stack")
_MODE, _SEQUENCE = Event._fields.index("mode"), Event._fields.index("sequence")
_Function = torch.autograd.Function


def in_frames(recorder: Recorder, frames: Iterable[FrameType]) -> list[Definition]:
    """Those that torch was running, from the outside in, and those behind what it checked."""
    found: list[Definition] = []
    for frame in frames:
        if recorder.frames.kind(frame) != TORCH:
            continue
        cls, node = _running(frame)
        definition = _definition(recorder, cls, node) if cls is not None else None
        if definition is not None:
            definition.applied = _applied(recorder, frame, node)
            _add(found, definition)
        for definition in (*_in_check(recorder, frame), *_of_call(frame)):
            _add(found, definition)
    return found


def behind(recorder: Recorder, roots: Iterable[Any], known: list[Definition]) -> list[Definition]:
    """Those in the graph behind some tensors, the latest first, after those that are known."""
    found = list(known)
    nodes = [
        (torch_api.node_sequence(node), node, event)
        for node, event in autopsy.functions(recorder, [r for r in roots if r.grad_fn is not None])
        if torch_api.forward_class(node) is not None
    ]
    nodes.sort(key=lambda row: -row[0])
    for _, node, event in nodes:
        definition = _definition(recorder, torch_api.forward_class(node), node)
        if definition is not None:
            definition.applied = _call_of(recorder, node, event)
            _add(found, definition)
    return found


def named(recorder: Recorder, text: str, known: list[Definition]) -> list[Definition]:
    """Adds those whose name a message has, where nothing leads to them."""
    once = _ONCE in text
    if not once and "Backward" not in text:
        return known
    if any(definition.autograd_name in text for definition in known if definition.autograd_name):
        return known
    words = set(text.split())
    found = list(known)
    for cls in _subclasses(_Function):
        if f"{cls.__name__}Backward" in words or (once and _is_decorated(recorder, cls)):
            definition = _definition(recorder, cls, None)
            if definition is not None:
                _add(found, definition)
    return found


def _add(found: list[Definition], new: Definition) -> None:
    """The same one may have been applied many times: of these the first that is met counts."""
    for definition in found:
        if definition.name == new.name and definition.methods == new.methods:
            definition.wanted = definition.wanted or new.wanted
            definition.gradients = definition.gradients or new.gradients
            definition.applied = definition.applied or new.applied
            call = (new.applied, new.wanted)
            if call not in definition.others and len(definition.others) < _MAX_FOUND:
                definition.others.append(call)
            return
    if len(found) < _MAX_FOUND:
        found.append(new)


def _applied(recorder: Recorder, frame: FrameType, node: Any) -> int:
    """The stack of the call: of this frame, unless it is backward that runs."""
    if node is None:
        return recorder.frames.stack(frame)
    event = adoption.event_of(recorder, torch_api.node_sequence(node))
    return _call_of(recorder, node, event)


def _running(frame: FrameType) -> tuple[Any, Any]:
    """The custom Function that a frame of torch's calls a method of, and its autograd node."""
    if frame.f_code.co_name not in ("apply", "__call__", "__init__"):
        return None, None
    values = frame.f_locals
    cls, instance = values.get("cls"), values.get("self")
    if isinstance(cls, type) and issubclass(cls, _Function):
        return cls, None
    if isinstance(instance, _Function):
        return type(instance), None
    return torch_api.forward_class(instance), instance


def _in_check(recorder: Recorder, frame: FrameType) -> Iterator[Definition]:
    """What gradcheck() is looking at: its function, and the Functions behind what that returned."""
    if frame.f_globals.get("__name__") != "torch.autograd.gradcheck":
        return
    values = frame.f_locals
    function = values.get("func")
    if isinstance(function, torch.nn.Module):
        function = type(function).forward
    place = _place(function)
    if place is not None and recorder.frames.file_kind(place[0]) < TORCH:
        yield Definition(getattr(function, "__name__", "the function"), {CHECKED: place})
    outputs = failures.tensors([values.get(name) for name in ("outputs", "func_out", "output")])
    yield from behind(recorder, outputs, [])


def _of_call(frame: FrameType) -> Iterator[Definition]:
    """The operator that is called, or that a derivative is being registered for."""
    if frame.f_code.co_qualname not in _OPERATOR_CALLS:
        return
    values = frame.f_locals
    op = values["op"] if "op" in values else values.get("self")
    name = op if isinstance(op, str) else str(getattr(op, "_qualname", ""))
    forward = _place(torch_api.custom_op_forward(name))
    file = torch_api.library_file(name) if forward is None else ""
    if forward is not None:
        yield Definition(name, {"forward": forward})
    elif file:
        yield Definition(name, {_LIBRARY: (file, 1)})


def _definition(recorder: Recorder, cls: Any, node: Any) -> Definition | None:
    """None for those of torch's own."""
    if getattr(cls, "__module__", "") == "torch._library.autograd":
        return _of_operator(cls, node)
    methods = {
        name: place
        for name, method in _methods(cls)
        if (place := _place(method)) is not None and recorder.frames.file_kind(place[0]) < TORCH
    }
    if not methods and cls.__module__.partition(".")[0] == "torch":
        return None
    return Definition(cls.__name__, methods, 0, f"{cls.__name__}Backward", *_gradients(node))


def _of_operator(cls: Any, node: Any) -> Definition | None:
    """An operator of torch.library's: its parts are functions of the program's."""
    held = torch_api.registered_backward(cls)
    if held is None:
        return None
    name, backward, setup = held
    parts = {
        "forward": torch_api.custom_op_forward(name),
        "backward": backward,
        "setup_context": setup,
    }
    places = {part: place for part, held in parts.items() if (place := _place(held)) is not None}
    wanted, gradients = _gradients(node)
    return Definition(name, places, 0, f"{cls.__name__}Backward", wanted[:-1], gradients)


def _gradients(node: Any) -> tuple[tuple[bool, ...], tuple[int, ...]]:
    """Which arguments want a gradient; to which argument each gradient that torch checks belongs.

    Torch counts the arguments that are tensors. Those of them that want no gradient have no next
    function, and where among the arguments these are is not known: -1.
    """
    wanted = torch_api.gradients_wanted(node) if node is not None else ()
    places = iter([place for place, flag in enumerate(wanted) if flag])
    following = [function for function, _ in node.next_functions] if wanted else []
    return wanted, tuple(next(places, -1) if f is not None else -1 for f in following)


def _methods(cls: Any) -> Iterator[tuple[str, Any]]:
    """The functions of a class and of those that it inherits from, up to torch's own."""
    seen: set[str] = set()
    for owner in cls.__mro__:
        if owner.__module__.partition(".")[0] == "torch" or owner is object:
            continue
        for name, value in vars(owner).items():
            if name not in seen:
                seen.add(name)
                yield name, value


def _place(function: Any) -> tuple[str, int] | None:
    """File and first line of a function, whatever decorates it."""
    for _ in range(8):
        inner = getattr(function, "__func__", None) or getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else None


def _call_of(recorder: Recorder, node: Any, event: int | None) -> int:
    """The stack of the call that made a node, or of the first thing that its forward did."""
    if event is not None:
        return _stack_of(recorder, event)
    events, sequence = recorder.events, torch_api.node_sequence(node)
    index = bisect_right(events, sequence, key=lambda fields: fields[_SEQUENCE])
    inside = sequence >= 0 and index < len(events) and events[index][_MODE] == INSIDE_FUNCTION
    return int(events[index][_STACK]) if inside else 0


def _stack_of(recorder: Recorder, event: int | None) -> int:
    index = -1 if event is None else event - recorder.base
    if not 0 <= index < len(recorder.events):
        return 0
    fields = recorder.events[index]
    return int(fields[_STACK] or recorder.frames.first_stacks.get(fields[_SITE], 0))


def _is_decorated(recorder: Recorder, cls: Any) -> bool:
    """Whether torch's own code stands around a backward: @once_differentiable."""
    backward = getattr(cls, "backward", None)
    code = getattr(backward, "__code__", None)
    if not isinstance(code, CodeType) or not hasattr(backward, "__wrapped__"):
        return False
    return recorder.frames.file_kind(code.co_filename) == TORCH


def _subclasses(cls: Any) -> Iterator[Any]:
    for found in cls.__subclasses__():
        yield found
        yield from _subclasses(found)


def altered(recorder: Recorder, memory: autopsy.Memory, roots: list[Any]) -> list[Altered]:
    """Tensors on the contexts of custom Functions that were written to since they were kept.

    Autograd looks after what is given to save_for_backward(), and not after these.
    """
    found = []
    for node, event in autopsy.functions(recorder, roots):
        cls = torch_api.forward_class(node)
        kept = vars(node) if cls is not None else {}
        tensors = [(name, value) for name, value in kept.items() if isinstance(value, torch.Tensor)]
        definition = _definition(recorder, cls, node) if tensors else None
        if definition is None:
            continue
        definition.applied = _stack_of(recorder, event)
        since = adoption.time_of(recorder, torch_api.node_sequence(node))
        for name, tensor in tensors:
            changes = [
                change
                for change in memory.writes_since(tensor, since)
                if not _is_inside(recorder, change.stack, cls.__name__)
            ]
            if changes:
                found.append(Altered(definition, name, recorder.shape_of(tensor), changes))
    return found


def _is_inside(recorder: Recorder, stack: int, name: str) -> bool:
    """Whether a Function's own methods did something."""
    codes = [recorder.frames.sites[site].code for site in recorder.frames.stacks[stack]]
    return any(f".{code.co_qualname}".find(f".{name}.") >= 0 for code in codes)
