"""The record: which tensor came from which call. Bounded, and it keeps no tensor alive."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import torch

from whygrad.record import adoption, torch_api
from whygrad.record.events import GRAD_ON, Event, Recording, Source
from whygrad.record.exits import Exits
from whygrad.record.frames import Frames
from whygrad.record.ops import DATA_WRITE, DETACHING, SHAPE_ONLY
from whygrad.record.switches import SwitchTable, ThreadSwitches
from whygrad.record.tensors import Tensors

Tensor = torch.Tensor
Parameter = torch.nn.Parameter
_grad_enabled = torch.is_grad_enabled
_sequence = torch_api.sequence_number

# Arguments of these exact types carry no tensor: one set look-up instead of isinstance checks.
_PLAIN = frozenset(
    [int, bool, str, type(None), torch.Size, torch.dtype, torch.device, slice, type(...), type]
)
_NO_DISPATCH = getattr(Tensor, "__torch_dispatch__", None)
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
        self.exits = Exits()
        self.adopted: dict[int, int] = {}  # autograd node number -> event, for unseen calls
        self.faults: list[str] = []
        # From the second watched thread on. Reentrant: a signal handler or a finalizer of the
        # program may use torch at any time, also in the middle of an append.
        self.lock: AbstractContextManager[Any] | None = None
        self.step = 1
        self._shapes: dict[Any, tuple[int, ...]] = {}
        self._aliases: dict[int, Any] = {}  # node of `x.data` or its detach() -> weakly, x
        self._next_source = -1

    # --- the hot path -------------------------------------------------------------------------

    def flow(
        self,
        op: str,
        writes: bool,
        args: Any,
        kwargs: Any,
        result: Any,
        frame: FrameType,
        switches: ThreadSwitches,
    ) -> None:
        """Values flowed from the arguments to the result."""
        kind = type(result)
        if kind is not Tensor and kind is not Parameter:
            if kind is tuple or kind is list or isinstance(result, tuple):
                self._flow_many(op, args, kwargs, result, frame, switches)
                return
            if result is None and writes and args:
                result = args[0]  # __setitem__ and its like return nothing
            if not isinstance(result, Tensor):
                return
        tensors = self.tensors
        key = id(result)
        known = tensors.refs.get(key)
        if known is not None and known() is result:
            if not writes and not (kwargs and "out" in kwargs):
                return  # handed its own argument back: contiguous(), to() the same device, ...
            code = tensors.codes[key]
            if (code < 0 or code & 1) and (
                kind is Parameter or (result.requires_grad and _is_leaf(result))
            ):
                # A weight update or an initialisation: still the same leaf, with new values.
                self._write_into_leaf(op, result, code >> 1, args[1:], frame, switches)
                return
            tensors.codes[key] = code | 1  # it may require grad by now: that is this write's doing
        inputs: list[int] = []
        scalar, evidence = self._inputs(args, inputs, frame)
        if kwargs:
            more, found = self._inputs(kwargs.values(), inputs, frame)
            scalar, evidence = scalar or more, evidence or found
        if op in SHAPE_ONLY:
            inputs = []
        live = _carries_gradient(result, inputs)
        node = self._append(op, inputs, live, result, frame, switches, evidence, scalar)
        tensors.put(result, node, result.requires_grad)
        if writes:
            self._write_through_view(result, node, live)
            self._write_through_data(inputs, node, result, frame, switches)
        elif op in DETACHING and inputs and args:
            self._aliases[node] = tensors.refs[id(args[0])]
            if len(self._aliases) > _MAX_ALIASES:
                del self._aliases[next(iter(self._aliases))]

    def _inputs(self, values: Any, inputs: list[int], frame: FrameType) -> tuple[bool, str]:
        """Collect the nodes among call arguments; tells of Python numbers that came from torch."""
        refs, codes = self.tensors.refs, self.tensors.codes
        scalar, evidence = False, ""
        for value in values:
            key = id(value)
            ref = refs.get(key)
            if ref is not None and ref() is value:
                code = codes[key]
                if not code & 1 and value.requires_grad:
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
                more, found = self._inputs(inner, inputs, frame)
                scalar, evidence = scalar or more, evidence or found
        return scalar, evidence

    def _append(
        self,
        op: str,
        inputs: list[int],
        live: bool,
        result: Any,
        frame: FrameType,
        switches: ThreadSwitches,
        evidence: str = "",
        scalar: bool = False,
    ) -> int:
        frames = self.frames
        if live:
            mode, stack = GRAD_ON, 0
        else:
            mode = GRAD_ON if _grad_enabled() else switches.off_because()
            stack = frames.stack(frame)
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
        scalar, evidence = self._inputs(args, inputs, frame)
        if kwargs:
            self._inputs(kwargs.values(), inputs, frame)
        nodes: dict[bool, int] = {}
        for output in outputs:
            if self.tensors.node(output) is not None:
                continue
            live = _carries_gradient(output, inputs)
            if live not in nodes:
                nodes[live] = self._append(
                    op, inputs, live, output, frame, switches, evidence, scalar
                )
            self.tensors.put(output, nodes[live], output.requires_grad)

    # --- tensors that no recorded call made ---------------------------------------------------

    def source(self, tensor: Any, frame: FrameType | None) -> int:
        """The node of a tensor that no recorded call made."""
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
        )
        self.tensors.put(tensor, node, requires_grad)
        self.source_refs[node] = self.tensors.refs[id(tensor)]
        return node

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
        self.exits.add(self._append(op, [node], False, tensor, frame, switches), result)

    def flag(self, tensor: Any, frame: FrameType) -> None:
        """requires_grad of a tensor was set."""
        value = tensor.requires_grad
        node = self.node_of(tensor)
        if node is None:
            if value and not tensor.is_leaf:
                return
            node = self.source(tensor, frame)
        if node in self.sources:
            source = self.sources[node]
            source.requires_grad = value
            source.flag_stack = self.frames.stack(frame)
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
        _, evidence = self._inputs((data,), inputs, frame)
        if not inputs:
            inputs, evidence = self.exits.behind(data)
        leaf = result.is_leaf and (result.requires_grad or isinstance(result, Parameter))
        if leaf:
            source = self.sources[self.source(result, frame)]
            source.made_by = op
            source.origin = inputs[0] if inputs and result.requires_grad else None
            source.born_frozen = not result.requires_grad
        elif not result.requires_grad:  # else: Tensor(t) and Variable(t) keep t's graph
            node = self._append(op, inputs, False, result, frame, switches, evidence, not inputs)
            self.tensors.put(result, node, False)

    def returned(self, op: str, args: Any, kwargs: Any, result: Any) -> None:
        """Give a tensor just made from Python data its link to where the data left torch."""
        event = self._event_of(result)
        if event is None or event.inputs:
            return
        data = args[0] if args else None
        if args and op in ("full", "new_tensor", "new_full", "fill_"):
            data = args[-1]
        if kwargs:
            data = kwargs.get("data", kwargs.get("fill_value", data))
        inputs, evidence = self.exits.behind(data)
        self._replace(result, event, inputs=tuple(inputs), evidence=evidence, scalar=True)

    def _write_through_view(self, view: Any, node: int, live: bool) -> None:
        """An in-place write to a view changes the tensor it looks into as well."""
        base = torch_api.base_of_view(view)
        if base is None or base is view or isinstance(base, Parameter):
            return
        before = self.node_of(base)
        event = self._event_of(view)
        if before is not None and event is not None:
            self._replace(view, event, inputs=(*event.inputs, before))
            self.tensors.put(base, node, live or base.requires_grad)

    def _write_into_leaf(
        self,
        op: str,
        leaf: Any,
        node: int,
        values: Any,
        frame: FrameType,
        switches: ThreadSwitches,
    ) -> None:
        """New values for a leaf: remember where they came from, if from a tensor at all."""
        inputs: list[int] = []
        self._inputs(values, inputs, frame)
        if inputs:
            self._new_values(op, leaf, node, inputs, frame, switches)

    def _new_values(
        self,
        op: str,
        tensor: Any,
        node: int,
        inputs: list[int],
        frame: FrameType,
        switches: ThreadSwitches,
    ) -> None:
        """Values, without their history, went into a tensor that keeps its own history."""
        source = self.sources.get(node)
        history = tensor.requires_grad
        if source is None and history and _is_leaf(tensor):
            return
        written = self._append(op, inputs, False, tensor, frame, switches)
        if source is not None:
            source.origin = written
            return
        if history:
            written = self._append(op, [node, written], True, tensor, frame, switches)
        self.tensors.put(tensor, written, history)

    def data_set(self, leaf: Any, value: Any, frame: FrameType, switches: ThreadSwitches) -> None:
        """`leaf.data = value`: the values go in, their history does not."""
        node = self.node_of(leaf)
        if node is None:
            node = self.source(leaf, frame)
        self._write_into_leaf(DATA_WRITE, leaf, node, (value,), frame, switches)

    def _write_through_data(
        self,
        inputs: list[int],
        node: int,
        result: Any,
        frame: FrameType,
        switches: ThreadSwitches,
    ) -> None:
        """`x.data.copy_(value)` writes into x behind autograd's back."""
        ref = self._aliases.get(inputs[0]) if len(inputs) > 1 else None
        written = ref() if ref is not None else None
        known = self.node_of(written) if written is not None else None
        if known is not None:
            self._aliases[node] = ref
            self._new_values(DATA_WRITE, written, known, [node], frame, switches)

    def _event_of(self, tensor: Any) -> Event | None:
        node = self.node_of(tensor)
        index = -1 if node is None else node - self.base
        return Event(*self.events[index]) if 0 <= index < len(self.events) else None

    def _replace(self, tensor: Any, event: Event, **fields: Any) -> None:
        index = (self.node_of(tensor) or 0) - self.base
        self.events[index] = tuple(event._replace(**fields))

    def forget(self, tensor: Any) -> None:
        """Let go of a tensor altogether."""
        node = self.tensors.forget(tensor)
        if node is not None:
            self.source_refs.pop(node, None)
        if weakref.getweakrefcount(tensor):  # a write has given it another node since
            for held in (self.source_refs, self._aliases):
                for node in [n for n, ref in list(held.items()) if ref() is tensor]:
                    del held[node]

    # --- bounds and views ---------------------------------------------------------------------

    def _drop_dead_sources(self) -> None:
        for node in [node for node, ref in self.source_refs.items() if ref() is None]:
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
            exits=list(self.exits.nodes),
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
    return bool(result.requires_grad and not (inputs and _is_leaf(result)))


def _is_leaf(tensor: Any) -> bool:
    try:
        return bool(tensor.is_leaf)
    except RuntimeError:  # a view made with gradients off, after a write to what it looks into
        return True


def _collect_tensors(values: Any, found: list[Any]) -> None:
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)) and len(value) <= _MAX_NESTED:
            _collect_tensors(value, found)
