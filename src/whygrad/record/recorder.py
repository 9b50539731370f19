"""The record: which tensor came from which call. Bounded, and it keeps no tensor alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import torch

from whygrad.record import adoption, torch_api, writes
from whygrad.record.events import GRAD_ON, INSIDE_FUNCTION, Event, Flagged, Recording, Source
from whygrad.record.exits import Exits
from whygrad.record.frames import Frames
from whygrad.record.gate import Gate
from whygrad.record.ops import DETACHING, HIDDEN_WRITERS, SHAPE_ONLY
from whygrad.record.switches import SwitchTable, ThreadSwitches
from whygrad.record.tensors import Tensors
from whygrad.record.writes import Writes, is_leaf

Tensor = torch.Tensor
Parameter = torch.nn.Parameter
_grad_enabled = torch.is_grad_enabled
_sequence = torch_api.sequence_number

# Arguments of these exact types carry no tensor: one set look-up instead of isinstance checks.
_PLAIN = frozenset(
    [int, bool, str, type(None), torch.Size, torch.dtype, torch.device, slice, type(...), type]
)
_NO_DISPATCH = getattr(Tensor, "__torch_dispatch__", None)
_SHAPE = Event._fields.index("shape")
_MAX_NESTED = 4096  # elements looked at in a list argument
_MAX_SOURCES = 50_000
_MAX_SHAPES = 10_000
_MAX_FAULTS = 20
_MAX_ALIASES = 4096


class Recorder:
    """Takes what the mode, hooks and patches see, and answers with a `Recording`."""

    def __init__(self, max_operations: int = 100_000) -> None:
        self.max_operations = max_operations
        self.frames = Frames()
        self.switch_table = SwitchTable(self.frames)
        self.tensors = Tensors()
        # Exact tuples in the order of Event's fields: Python's garbage collector soon stops
        # visiting a tuple of plain values, but never one of a subclass.
        self.events: list[tuple[Any, ...]] = []
        self.base = 0
        self.sources: dict[int, Source] = {}
        self.source_refs: dict[int, Any] = {}
        self.flags: dict[int, Flagged] = {}
        self.exits = Exits()
        self.adopted: dict[int, int] = {}  # autograd node number -> event, for unseen calls
        self.faults: list[str] = []
        # From the second watched thread on. Reentrant: a signal handler or a finalizer of the
        # program may use torch at any time, also in the middle of an append.
        self.lock: AbstractContextManager[Any] | None = None
        self.gate = Gate()
        self.step = 1
        self.writes = Writes()
        self.code_in_backward = False  # hooks or custom Functions of the program run in it
        self.when_heeded: Callable[[], None] = lambda: None
        self.when_read: Callable[[Any], None] = lambda tensor: None  # its .grad, by the program
        self.when_set: Callable[[Any, FrameType], None] = lambda tensor, frame: None
        self.when_hooked: Callable[..., None] = lambda *registered: None
        self.when_absent: Callable[[Any, FrameType], None] = lambda tensor, frame: None
        self.when_left_out: Callable[[Any, Any, Any, FrameType], None] = lambda *call: None
        self.parameters_made = 0
        self.thawed: set[int] = set()  # parameters that were asked to take gradients
        self.last_silent = -1  # when something was last changed behind autograd's back
        # Values made before the last backward() are old: where one of them is used again, the
        # stack is kept. `codes` below this number are theirs.
        self.old_codes = 0
        self.met_old = False
        self._shapes: dict[Any, tuple[int, ...]] = {}
        self.aliases: dict[int, Any] = {}  # node of `x.data` or its detach() -> weakly, x
        self._next_source = -1

    # --- the hot path -------------------------------------------------------------------------

    def flow(
        self,
        op: str,
        in_place: bool,
        args: Any,
        kwargs: Any,
        result: Any,
        frame: FrameType,
        switches: ThreadSwitches,
    ) -> None:
        """Values flowed from the arguments to the result."""
        kind = type(result)
        if kind is not Tensor and kind is not Parameter:
            if result is None and in_place and args:
                result = args[0]  # __setitem__ and its like return nothing
            if type(result) is tuple or isinstance(result, (tuple, list)):
                self._flow_many(op, in_place, args, kwargs, result, frame, switches)
                return
            if not isinstance(result, Tensor):
                return
        if kwargs and not in_place:
            in_place = kwargs.get("inplace") is True or kwargs.get("out") is not None
            if op in HIDDEN_WRITERS:
                writes.hidden(self, op, args, kwargs, frame)
        tensors = self.tensors
        key = id(result)
        known = tensors.refs.get(key)
        stack = 0
        if known is not None and known() is result:
            if not in_place:
                return  # handed its own argument back: contiguous(), to() the same device, ...
            code = tensors.codes[key]
            stack = self.writes.add(self, op, result, code >> 1, frame)
            if (code < 0 or code & 1) and (
                kind is Parameter or (result.requires_grad and is_leaf(result))
            ):
                # A weight update or an initialisation: still the same leaf, with new values.
                writes.into_leaf(self, op, result, code >> 1, args[1:], frame, switches)
                return
            tensors.codes[key] = code | 1  # it may require grad by now: that is this write's doing
        inputs: list[int] = []
        scalar, evidence = self.inputs_of(args, inputs, frame)
        if kwargs:
            more, found = self.inputs_of(kwargs.values(), inputs, frame)
            scalar, evidence = scalar or more, evidence or found
        if op in SHAPE_ONLY:
            inputs = []
        live = _carries_gradient(result, inputs)
        node = self.record(op, inputs, live, result, frame, switches, evidence, scalar, stack)
        tensors.put(result, node, result.requires_grad)
        if in_place:
            if not stack:  # a tensor that was not known before
                self.writes.add(self, op, result, node, frame)
            writes.through_view(self, result, node, live)
            writes.through_data(self, inputs, node, frame, switches)
        elif op in DETACHING and inputs and args:
            self.aliases[node] = tensors.refs[id(args[0])]
            if len(self.aliases) > _MAX_ALIASES:
                del self.aliases[next(iter(self.aliases))]

    def inputs_of(self, values: Any, inputs: list[int], frame: FrameType) -> tuple[bool, str]:
        """Collect the nodes among call arguments; tells of Python numbers that came from torch."""
        refs, codes, old = self.tensors.refs, self.tensors.codes, self.old_codes
        scalar, evidence = False, ""
        for value in values:
            key = id(value)
            ref = refs.get(key)
            if ref is not None and ref() is value:
                code = codes[key]
                if code & 1:
                    if 0 < code < old:
                        self.met_old = True
                    inputs.append(code >> 1)
                elif value.requires_grad:
                    inputs.append(adoption.wake(self, value, code >> 1, frame))
                else:
                    inputs.append(code >> 1)
                continue
            kind = type(value)
            if kind in _PLAIN:
                continue
            if kind is float:
                if self.exits.nodes:
                    scalar = True
                    came_from = self.exits.values.get(value)
                    if came_from is not None:
                        inputs.append(came_from)
                        evidence = "equal values"
            elif isinstance(value, Tensor):
                inputs.append(self.source(value, frame))
            elif (kind is dict or isinstance(value, (list, tuple))) and len(value) <= _MAX_NESTED:
                inner = value.values() if kind is dict else value
                more, found = self.inputs_of(inner, inputs, frame)
                scalar, evidence = scalar or more, evidence or found
        return scalar, evidence

    def record(
        self,
        op: str,
        inputs: list[int],
        live: bool,
        result: Any,
        frame: FrameType,
        switches: ThreadSwitches,
        evidence: str = "",
        scalar: bool = False,
        stack: int = 0,
    ) -> int:
        frames = self.frames
        if live:
            mode = GRAD_ON
            if self.met_old:
                self.met_old, stack = False, frames.stack(frame)
        else:
            mode = GRAD_ON if _grad_enabled() else switches.off_because()
            if mode == INSIDE_FUNCTION:
                self.heed_backward()
            stack = stack or frames.stack(frame)
        return self.append(
            (
                op,
                frames.site(frame),
                tuple(inputs),
                live,
                mode,
                self.shape_of(result),
                result.dtype,
                _sequence(),
                stack,
                evidence,
                scalar,
            )
        )

    @property
    def now(self) -> int:
        """The number that the next event will get."""
        return self.base + len(self.events)

    def heed_backward(self) -> None:
        """Code of the program's own runs in backward passes: watch what it writes."""
        if not self.code_in_backward:
            self.code_in_backward = True
            self.when_heeded()

    def written_silently(self, time: int) -> None:
        """Something was changed behind autograd's back."""
        self.last_silent = time

    def append(self, event: tuple[Any, ...]) -> int:
        """Add an event (the fields of `Event`), dropping the oldest if the record is full."""
        if self.lock is None:
            return self._add(event)
        with self.lock:
            return self._add(event)

    def _add(self, event: tuple[Any, ...]) -> int:
        events = self.events
        if len(events) >= self.max_operations:
            dropped = self.max_operations // 4 or 1
            del events[:dropped]
            self.base += dropped
        events.append(event)
        return self.base + len(events) - 1

    def shape_of(self, tensor: Any) -> tuple[int, ...] | None:
        """A tensor's shape, one tuple for all that have the same; None if it does not say."""
        kind = type(tensor)
        if kind is not Tensor and kind is not Parameter and _tells_shape_by_code(kind):
            return None
        try:
            shape = tensor.shape
            known = self._shapes.get(shape)
        except (RuntimeError, TypeError):  # uninitialised or nested, or sizes are symbols
            return None
        if known is None:
            known = tuple(shape)
            if len(self._shapes) < _MAX_SHAPES:
                self._shapes[known] = known
        return known

    def _flow_many(
        self,
        op: str,
        in_place: bool,
        args: Any,
        kwargs: Any,
        results: Any,
        frame: FrameType,
        switches: ThreadSwitches,
    ) -> None:
        """A call with several outputs: one node for those that carry gradient, one for others."""
        outputs: list[Any] = []
        _collect_tensors(results, outputs)
        if not outputs:
            return
        inputs: list[int] = []
        scalar, evidence = self.inputs_of(args, inputs, frame)
        if kwargs:
            self.inputs_of(kwargs.values(), inputs, frame)
        nodes: dict[bool, int] = {}
        for output in outputs:
            known = self.tensors.node(output)
            if known is not None:
                if not in_place and not (kwargs and kwargs.get("out") is not None):
                    continue
                self.writes.add(self, op, output, known, frame)
                if output.requires_grad and is_leaf(output):
                    continue
            live = _carries_gradient(output, inputs)
            if live not in nodes:
                nodes[live] = self.record(
                    op, inputs, live, output, frame, switches, evidence, scalar
                )
            self.tensors.put(output, nodes[live], output.requires_grad)

    # --- tensors that no recorded call made ---------------------------------------------------

    def source(self, tensor: Any, frame: FrameType | None) -> int:
        """The node of a tensor that no recorded call made."""
        node = self._wrapped(tensor)
        if node is not None:
            return node
        requires_grad = tensor.requires_grad
        if requires_grad and not tensor.is_leaf:
            return adoption.adopt(self, tensor, frame)
        node = self._next_source
        self._next_source -= 1
        if len(self.sources) >= _MAX_SOURCES:
            self._drop_dead_sources()
        self.sources[node] = Source(
            requires_grad=requires_grad,
            parameter=isinstance(tensor, Parameter),
            shape=self.shape_of(tensor),
            dtype=tensor.dtype,
            stack=self.frames.stack(frame),
            born=self.now,
        )
        self.tensors.put(tensor, node, requires_grad)
        self.source_refs[node] = self.tensors.refs[id(tensor)]
        return node

    def _wrapped(self, tensor: Any) -> int | None:
        """The node of what a transform of torch.func shows to the program as another tensor."""
        inner = torch_api.behind_transform(tensor)
        while inner is not None:
            node = self.node_of(inner)
            if node is not None:
                self.tensors.put(tensor, node, tensor.requires_grad)
                return node
            inner = torch_api.behind_transform(inner)
        return None

    def known_shape(self, node: int) -> tuple[int, ...] | None:
        """The shape of a node's value."""
        if node < 0:
            source = self.sources.get(node)
            return source.shape if source is not None else None
        index = node - self.base
        return self.events[index][_SHAPE] if 0 <= index < len(self.events) else None

    def node_of(self, tensor: Any) -> int | None:
        """The node of a tensor, if the record knows it."""
        return self.tensors.node(tensor)

    # --- other things that happen to tensors --------------------------------------------------

    def exit(
        self, op: str, args: Any, result: Any, frame: FrameType, switches: ThreadSwitches
    ) -> None:
        """Values of a tensor left for Python or numpy."""
        tensor = args[0]
        node = self.node_of(tensor)
        if node is None:
            node = self.source(tensor, frame)
        self.exits.add(self.record(op, [node], False, tensor, frame, switches), result)

    def flag(self, tensor: Any, frame: FrameType) -> None:
        """requires_grad of a tensor was set."""
        value = tensor.requires_grad
        node = self.node_of(tensor)
        if node is None:
            if value and not tensor.is_leaf:
                return
            node = self.source(tensor, frame)
        stack = self.frames.stack(frame)
        if len(self.flags) < _MAX_SOURCES:
            self.flags[node] = Flagged(self.now, stack, value)
        if node in self.sources:
            source = self.sources[node]
            source.requires_grad = value
            source.flag_stack = stack
            if value and source.parameter and len(self.thawed) < _MAX_SOURCES:
                self.thawed.add(node)
        self.tensors.set_live(tensor, value)

    def rebuilt(
        self,
        op: str,
        data: Any,
        result: Any,
        frame: FrameType | None,
        switches: ThreadSwitches,
    ) -> None:
        """A constructor that the mode does not see made `result` from `data`."""
        if frame is None or not isinstance(result, Tensor):
            return
        inputs: list[int] = []
        _, evidence = self.inputs_of((data,), inputs, frame)
        if not inputs:
            inputs, evidence = self.exits.behind(data)
        leaf = result.is_leaf and (result.requires_grad or isinstance(result, Parameter))
        if leaf:
            self.parameters_made += 1
            source = self.sources[self.source(result, frame)]
            source.made_by = op
            source.origin = inputs[0] if inputs and result.requires_grad else None
            source.born_frozen = not result.requires_grad
        elif not result.requires_grad:  # else: Tensor(t) and Variable(t) keep t's graph
            node = self.record(op, inputs, False, result, frame, switches, evidence, not inputs)
            self.tensors.put(result, node, False)

    def returned(self, op: str, args: Any, kwargs: Any, result: Any) -> None:
        """Give a tensor just made from Python data its link to where the data left torch."""
        event = self.event_of(result)
        if event is None or event.inputs:
            return
        data = args[0] if args else None
        if args and op in ("full", "new_tensor", "new_full", "fill_"):
            data = args[-1]
        if kwargs:
            data = kwargs.get("data", kwargs.get("fill_value", data))
        inputs, evidence = self.exits.behind(data)
        self.replace(result, event, inputs=tuple(inputs), evidence=evidence, scalar=True)

    def data_set(self, leaf: Any, value: Any, frame: FrameType, switches: ThreadSwitches) -> None:
        """`leaf.data = value`: the values go in, their history does not."""
        writes.assign_data(self, leaf, value, frame, switches)

    def event_of(self, tensor: Any) -> Event | None:
        node = self.node_of(tensor)
        index = -1 if node is None else node - self.base
        return Event(*self.events[index]) if 0 <= index < len(self.events) else None

    def replace(self, tensor: Any, event: Event, **fields: Any) -> None:
        index = (self.node_of(tensor) or 0) - self.base
        self.events[index] = tuple(event._replace(**fields))

    def forget(self, tensor: Any) -> None:
        """Let go of a tensor altogether."""
        node = self.tensors.forget(tensor)
        if node is not None:
            self.source_refs.pop(node, None)
        if weakref.getweakrefcount(tensor):  # a write has given it another node since
            for held in (self.source_refs, self.aliases):
                for node in [n for n, ref in list(held.items()) if torch_api.alive(ref) is tensor]:
                    del held[node]

    # --- bounds and views ---------------------------------------------------------------------

    def _drop_dead_sources(self) -> None:
        for node in [
            node for node, ref in self.source_refs.items() if torch_api.alive(ref) is None
        ]:
            del self.source_refs[node], self.sources[node]

    def fault(self, error: BaseException) -> None:
        """A fault of our own: noted, never raised."""
        if len(self.faults) < _MAX_FAULTS:
            where = ""
            trace = error.__traceback__
            while trace is not None:
                where = f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
                trace = trace.tb_next
            note = f"internal fault, recording went on: {_in_words(error)} ({where})"
            if note not in self.faults:
                self.faults.append(note)

    def recording(self) -> Recording:
        return Recording(
            events=self.events,
            base=self.base,
            sources=self.sources,
            switches=self.switch_table.switches,
            sites=self.frames.sites,
            stacks=self.frames.stacks,
            first_stacks=self.frames.first_stacks,
            exits=list(self.exits.nodes),
            flags=self.flags,
        )


def _in_words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # words of the program's own, by way of its objects
        return type(error).__name__


def _tells_shape_by_code(kind: type) -> bool:
    """Whether a subclass may run code of its own when asked for a shape, or answer in symbols."""
    return getattr(kind, "__torch_dispatch__", None) is not _NO_DISPATCH


def _carries_gradient(result: Any, inputs: list[int]) -> bool:
    """Whether gradient can come back through a result, or is asked for by it.

    A view made while gradients are off says that it requires grad, like what it looks into, and
    so does a copy made with requires_grad=True. Both are leaves: nothing passes through them.
    """
    return bool(result.requires_grad and not (inputs and is_leaf(result)))


def _collect_tensors(values: Any, found: list[Any]) -> None:
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)) and len(value) <= _MAX_NESTED:
            _collect_tensors(value, found)
