"""The record: which tensor came from which call. Bounded, and it keeps no tensor alive."""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections import deque
from types import FrameType
from typing import Any

import torch

from whygrad.record import torch_api
from whygrad.record.events import GRAD_ON, Event, Question, Recording, Source
from whygrad.record.frames import Frames
from whygrad.record.ops import REBUILDING, SHAPE_ONLY
from whygrad.record.switches import SwitchTable, ThreadSwitches

Tensor = torch.Tensor
Parameter = torch.nn.Parameter
_ref = weakref.ref
_grad_enabled = torch.is_grad_enabled
_sequence = torch_api.sequence_number

# Arguments of these exact types carry no tensor: one set look-up instead of isinstance checks.
_PLAIN = frozenset(
    [int, bool, str, type(None), torch.Size, torch.dtype, torch.device, slice, type(...), type]
)
_MAX_NESTED = 4096  # elements looked at in a list argument
_MAX_SOURCES = 50_000
_MAX_EXITS = 4096
_MAX_FAULTS = 20


class Entry:
    """What is known of a living tensor. Slots, because there is one for each."""

    __slots__ = ("live", "node", "ref")

    def __init__(self, ref: Any, node: int, live: bool) -> None:
        self.ref, self.node, self.live = ref, node, live


class Recorder:
    """Takes what the mode, hooks and patches see, and answers with a `Recording`."""

    def __init__(self, max_operations: int = 100_000) -> None:
        self.max_operations = max_operations
        self.frames = Frames()
        self.switch_table = SwitchTable(self.frames)
        self.events: list[Event] = []
        self.base = 0
        self.entries: dict[int, Entry] = {}
        self.sources: dict[int, Source] = {}
        self.source_refs: dict[int, Any] = {}
        self.exits: deque[int] = deque(maxlen=_MAX_EXITS)
        self.exit_values: dict[float, int] = {}
        self.exit_arrays: deque[tuple[Any, int]] = deque(maxlen=64)
        self.adopted: dict[int, int] = {}  # autograd node number -> event, for unseen calls
        self.faults: list[str] = []
        self.questions: list[Question] = []
        self.lock = threading.RLock()
        self.step = 1
        self._next_source = -1
        self._sweep_at = 8192

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
        entries = self.entries
        known = entries.get(id(result))
        if known is not None and known.ref() is result:
            if not writes and not (kwargs and "out" in kwargs):
                return  # handed its own argument back: contiguous(), to() the same device, ...
            if known.node < 0 and (kind is Parameter or (result.requires_grad and result.is_leaf)):
                return  # a weight update or an initialisation: still the same parameter
        inputs: list[int] = []
        scalar, evidence = self._inputs(args, inputs, frame)
        if kwargs:
            more, found = self._inputs(kwargs.values(), inputs, frame)
            scalar, evidence = scalar or more, evidence or found
        if op in SHAPE_ONLY:
            inputs = []
        live = result.requires_grad
        node = self._append(op, inputs, live, result, frame, switches, evidence, scalar)
        entries[id(result)] = Entry(_ref(result), node, live)
        if writes:
            self._write_through_view(result, node, live)
        if len(entries) > self._sweep_at:
            self._sweep()

    def _inputs(self, values: Any, inputs: list[int], frame: FrameType) -> tuple[bool, str]:
        """Collect the nodes among call arguments; tells of Python numbers that came from torch."""
        entries = self.entries
        scalar, evidence = False, ""
        for value in values:
            entry = entries.get(id(value))
            if entry is not None and entry.ref() is value:
                if not entry.live and value.requires_grad:
                    entry = self._woken(value, entry, frame)
                inputs.append(entry.node)
                continue
            kind = type(value)
            if kind in _PLAIN:
                continue
            if kind is float:
                if self.exits:
                    scalar = True
                    came_from = self.exit_values.get(value)
                    if came_from is not None:
                        inputs.append(came_from)
                        evidence = "equal values"
            elif isinstance(value, Tensor):
                inputs.append(self.source(value, frame))
            elif kind is list or kind is tuple or isinstance(value, (list, tuple)):
                if len(value) <= _MAX_NESTED:
                    more, found = self._inputs(value, inputs, frame)
                    scalar, evidence = scalar or more, evidence or found
            elif kind is dict:
                more, found = self._inputs(value.values(), inputs, frame)
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
        events = self.events
        if len(events) >= self.max_operations:
            dropped = self.max_operations // 4 or 1
            del events[:dropped]
            self.base += dropped
        node = self.base + len(events)
        events.append(
            Event(
                op,
                frames.site(frame),
                tuple(inputs),
                live,
                mode,
                result.shape,
                result.dtype,
                _sequence(),
                stack,
                evidence,
                scalar,
            )
        )
        return node

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
        entries = self.entries
        nodes: dict[bool, int] = {}
        for output in outputs:
            known = entries.get(id(output))
            if known is not None and known.ref() is output:
                continue
            live = output.requires_grad
            if live not in nodes:
                nodes[live] = self._append(
                    op, inputs, live, output, frame, switches, evidence, scalar
                )
            entries[id(output)] = Entry(_ref(output), nodes[live], live)

    # --- sources and what autograd knows better -----------------------------------------------

    def source(self, tensor: Any, frame: FrameType | None) -> int:
        """The node of a tensor that no recorded call made."""
        requires_grad = tensor.requires_grad
        if requires_grad and not tensor.is_leaf:
            return self._adopt(tensor, frame).node
        node = self._next_source
        self._next_source -= 1
        if len(self.sources) >= _MAX_SOURCES:
            self._drop_dead_sources()
        parameter = isinstance(tensor, Parameter)
        self.sources[node] = Source(
            requires_grad=requires_grad,
            parameter=parameter,
            shape=_shape(tensor),
            dtype=tensor.dtype,
            stack=self.frames.stack(frame),
        )
        ref = _ref(tensor)
        self.source_refs[node] = ref
        self.entries[id(tensor)] = Entry(ref, node, requires_grad)
        return node

    def node_of(self, tensor: Any) -> int | None:
        """The node of a tensor, if the record knows it."""
        entry = self.entries.get(id(tensor))
        return entry.node if entry is not None and entry.ref() is tensor else None

    def _woken(self, tensor: Any, entry: Entry, frame: FrameType) -> Entry:
        """Recorded without gradient, it has one now: flagged, or a custom Function's output."""
        if tensor.is_leaf:
            if entry.node < 0:
                self.sources[entry.node].requires_grad = True
            entry.live = True
            return entry
        return self._adopt(tensor, frame, entry.node)

    def _adopt(self, tensor: Any, frame: FrameType | None, inner: int | None = None) -> Entry:
        """An output of a call that was not seen (custom Function, scripted code): ask autograd."""
        function = tensor.grad_fn
        sequence = torch_api.node_sequence(function)
        inputs = self._autograd_inputs(function)
        if inner is not None:
            inputs.append(inner)
        if len(self.events) >= self.max_operations:
            self.base += 1
            del self.events[:1]
        node = self.base + len(self.events)
        name = function.name().removeprefix("torch::autograd::") if function is not None else "?"
        self.events.append(
            Event(
                name.removesuffix("Backward"),
                self.frames.site(frame),
                tuple(inputs),
                True,
                GRAD_ON,
                _shape(tensor),
                tensor.dtype,
                _sequence(),
                0,
            )
        )
        if sequence >= 0:
            self.adopted[sequence] = node
            if len(self.adopted) > 4096:
                del self.adopted[next(iter(self.adopted))]
        entry = self.entries[id(tensor)] = Entry(_ref(tensor), node, True)
        return entry

    def _autograd_inputs(self, function: Any) -> list[int]:
        """Nodes that feed an autograd node, through unseen nodes in between."""
        found: list[int] = []
        waiting: list[Any] = [function]
        seen: set[Any] = set()
        while waiting and len(seen) < 2000:
            current = waiting.pop()
            for following, _ in getattr(current, "next_functions", ()):
                if following is None or following in seen:
                    continue
                seen.add(following)
                variable = getattr(following, "variable", None)
                if variable is not None:
                    known = self.node_of(variable)
                    found.append(self.source(variable, None) if known is None else known)
                    continue
                node = self._event_of_sequence(torch_api.node_sequence(following))
                if node is None:
                    waiting.append(following)
                else:
                    found.append(node)
        return found

    def _event_of_sequence(self, sequence: int) -> int | None:
        """The event during which autograd's node with this number was made."""
        if sequence < 0:
            return None
        if sequence in self.adopted:
            return self.adopted[sequence]
        index = bisect_right(self.events, sequence, key=lambda event: event.sequence)
        if index >= len(self.events) or not self.events[index].live:
            return None
        earlier = self.events[index - 1].sequence if index else sequence
        return self.base + index if earlier <= sequence else None

    # --- other things that happen to tensors --------------------------------------------------

    def exit(
        self, op: str, args: Any, result: Any, frame: FrameType, switches: ThreadSwitches
    ) -> None:
        """Values of a tensor left for Python or numpy."""
        tensor = args[0]
        node = self.node_of(tensor)
        if node is None:
            node = self.source(tensor, frame)
        exit_node = self._append(op, [node], False, tensor, frame, switches)
        self.exits.append(exit_node)
        for value in _distinctive_floats(result):
            self.exit_values[value] = exit_node
        if len(self.exit_values) > _MAX_EXITS:
            for value in list(self.exit_values)[: _MAX_EXITS // 2]:
                del self.exit_values[value]
        if hasattr(result, "__array_interface__"):
            self.exit_arrays.append((_ref(result), exit_node))

    def flag(self, tensor: Any, frame: FrameType) -> None:
        """requires_grad of a tensor was set."""
        value = tensor.requires_grad
        node = self.node_of(tensor)
        if node is None:
            if value and not tensor.is_leaf:
                return
            node = self.source(tensor, frame)
        if node < 0:
            source = self.sources[node]
            source.requires_grad = value
            source.flag_stack = self.frames.stack(frame)
        entry = self.entries.get(id(tensor))
        if entry is not None:
            entry.live = value

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
            came_from = self._exit_of_array(data)
            if came_from is not None:
                inputs, evidence = [came_from], "memory"
            elif not isinstance(result, Parameter):
                inputs, evidence = self._exits_of_numbers(data)
        if result.requires_grad and result.is_leaf:
            node = self.source(result, frame)
            self.sources[node].made_by = op
            self.sources[node].origin = inputs[0] if inputs else None
        elif isinstance(result, Parameter):
            node = self.source(result, frame)
            self.sources[node].born_frozen = True
        else:
            if inputs and result.requires_grad:
                return  # Tensor(t) and Variable(t) of one tensor keep its graph
            node = self._append(op, inputs, False, result, frame, switches, evidence, not inputs)
            self.entries[id(result)] = Entry(_ref(result), node, False)

    def returned(self, op: str, args: Any, kwargs: Any, frame: FrameType, result: Any) -> None:
        """Give a tensor just made from Python data its link to where the data left torch."""
        node = self.node_of(result)
        index = -1 if node is None else node - self.base
        if index < 0 or index >= len(self.events) or self.events[index].inputs:
            return
        data = (
            args[-1] if op in ("full", "new_tensor", "new_full", "fill_") else (args or (None,))[0]
        )
        if kwargs:
            data = kwargs.get("data", kwargs.get("fill_value", data))
        came_from = self._exit_of_array(data)
        inputs, evidence = ([came_from], "memory") if came_from is not None else ([], "")
        if not inputs:
            inputs, evidence = self._exits_of_numbers(data)
        self.events[index] = self.events[index]._replace(
            inputs=tuple(inputs), evidence=evidence, scalar=True
        )

    def _exit_of_array(self, data: Any) -> int | None:
        if not hasattr(data, "__array_interface__"):
            return None
        base = getattr(data, "base", None)
        for ref, node in reversed(self.exit_arrays):
            array = ref()
            if array is not None and (array is data or array is base):
                return node
        return None

    def _exits_of_numbers(self, data: Any) -> tuple[list[int], str]:
        values = self.exit_values
        if not values:
            return [], ""
        found = [values[value] for value in _distinctive_floats(data) if value in values]
        return sorted(set(found)), "equal values" if found else ""

    def _write_through_view(self, view: Any, node: int, live: bool) -> None:
        """An in-place write to a view changes the tensor it looks into as well."""
        base = torch_api.base_of_view(view)
        if base is None or base is view:
            return
        entry = self.entries.get(id(base))
        if entry is None or entry.ref() is not base or isinstance(base, Parameter):
            return
        index = node - self.base
        self.events[index] = self.events[index]._replace(
            inputs=(*self.events[index].inputs, entry.node)
        )
        self.entries[id(base)] = Entry(entry.ref, node, live or base.requires_grad)

    def forget(self, tensor: Any) -> None:
        """Drop the weak reference to a tensor: torch refuses to swap tensors that have one."""
        entry = self.entries.pop(id(tensor), None)
        if entry is not None:
            self.source_refs.pop(entry.node, None)

    # --- bounds and views ---------------------------------------------------------------------

    def _sweep(self) -> None:
        entries = self.entries
        for key in [key for key, entry in list(entries.items()) if entry.ref() is None]:
            del entries[key]
        self._sweep_at = max(8192, 2 * len(entries))

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
            note = f"internal fault, recording went on: {type(error).__name__}: {error} ({where})"
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
            exits=list(self.exits),
        )


def _shape(tensor: Any) -> tuple[int, ...] | None:
    try:
        return tuple(tensor.shape)
    except Exception:  # uninitialised parameters and nested tensors have none
        return None


def _collect_tensors(values: Any, found: list[Any]) -> None:
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)) and len(value) <= _MAX_NESTED:
            _collect_tensors(value, found)


def _distinctive_floats(value: Any, limit: int = 16) -> list[float]:
    """Floats that are unlikely to be equal by chance: no round numbers."""
    if isinstance(value, float):
        candidates = [value]
    elif isinstance(value, (list, tuple)):
        candidates = []
        for item in value[:limit]:
            candidates += _distinctive_floats(item, limit)
    else:
        return []
    return [float(v) for v in candidates[:limit] if v == v and (v * 4096) % 1 != 0]


__all__ = ["REBUILDING", "Entry", "Recorder"]
