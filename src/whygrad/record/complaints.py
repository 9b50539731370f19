"""Torch's own words, an exception or a warning, with everything that took part in them."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from whygrad import catalogue
from whygrad.record import autopsy, failures, torch_api
from whygrad.record.events import Complaint, Given
from whygrad.record.frames import MACHINERY, RUNNER, TORCH, plain_relay
from whygrad.record.makers import Makers
from whygrad.record.recorder import Recorder

_MAX_CALLS = 12  # of torch's own functions
_MAX_GIVEN = 16  # tensors
_MAX_TEXT = 80  # characters of an argument
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, type)
_RELAY = plain_relay.__code__


class Failure(NamedTuple):
    """The latest call that raised: C code leaves no frame behind to see its arguments in."""

    error: int
    op: str
    given: list[Given]


class Complaints:
    """Collects plain data about a complaint while all of it is alive."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.makers = Makers(recorder)
        self._last: Failure | None = None

    def noticed(self, op: str, args: Any, kwargs: Any, error: BaseException) -> None:
        """A watched call raised: remember what it was given, in case nobody catches it."""
        given = [(str(place), value) for place, value in enumerate(args)]
        self._last = Failure(id(error), op, self._tensors([*given, *(kwargs or {}).items()]))

    def of_error(
        self, error: BaseException, roots: Iterable[Any] = (), caller: FrameType | None = None
    ) -> Complaint | None:
        """What an exception says, if it is torch's own and not the program's.

        `caller` is the frame that it has got to, where that is not the program's outermost.
        """
        frames = _callers(caller) + _traceback(error)
        if not frames or _raised_by_program(error, self.recorder):
            return None
        message = catalogue.find(str(error), type(error).__name__)
        complaint = self._complaint(message, frames, warning=False)
        last = self._last
        if last is not None and last.error == id(error):
            complaint.calls = complaint.calls or (last.op,)
            known = {given.node for given in last.given}
            complaint.given = last.given + [g for g in complaint.given if g.node not in known]
        roots = [*roots, *failures.inner_roots(error)]
        self._look_behind(complaint, roots, error)
        return complaint

    def of_warning(self, text: str, category: str, frame: FrameType | None) -> Complaint | None:
        """What a warning says, if it is one that the catalogue knows and torch gave it."""
        message = catalogue.find(text, category)
        if message is None or message.channel == "exception":
            return None
        complaint = self._complaint(message, _callers(frame), warning=True)
        self._look_behind(complaint, [], None)
        return complaint

    def _complaint(
        self, message: catalogue.Message | None, frames: list[FrameType], warning: bool
    ) -> Complaint:
        known = self.recorder.frames
        frames = _without_ours(frames, self.recorder)
        own = [place for place, frame in enumerate(frames) if known.kind(frame) < TORCH]
        kinds = [known.kind(frame) for frame in frames]
        entry = next((p for p in own if TORCH in kinds[p + 1 : p + 2]), None)
        inner = frames[own[-1]] if own else None
        outer = frames[entry] if entry is not None else inner
        inside = [f for f in frames[(entry or 0) + 1 :] if known.kind(f) == TORCH][:_MAX_CALLS]
        complaint = Complaint(
            message=message.id if message is not None else "",
            warning=warning,
            stack=known.stack(inner),
            outer=known.stack(outer),
            calls=tuple(_qualified(frame) for frame in inside),
        )
        for frame in inside:
            self._arguments(complaint, frame)
        return complaint

    def _arguments(self, complaint: Complaint, frame: FrameType) -> None:
        """What one of torch's own functions was called with."""
        code, values = frame.f_code, frame.f_locals
        count = code.co_argcount + code.co_kwonlyargcount
        extra = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
        names = [name for name in code.co_varnames[: count + extra] if name in values]
        complaint.made += self.makers.of(values[name] for name in names)
        for name in names:
            value = values[name]
            if isinstance(value, _PLAIN):
                complaint.texts.setdefault(name, str(value)[:_MAX_TEXT])
        known = {given.node for given in complaint.given}
        room = _MAX_GIVEN - len(complaint.given)
        tensors = self._tensors([(name, values[name]) for name in names])
        complaint.given += [given for given in tensors if given.node not in known][:room]

    def _tensors(self, arguments: Iterable[tuple[str, Any]]) -> list[Given]:
        found: list[Given] = []
        for name, value in arguments:
            for tensor in failures.tensors(value)[: _MAX_GIVEN - len(found)]:
                found.append(self._given(name, tensor))
        return found

    def _given(self, name: str, tensor: Any) -> Given:
        recorder = self.recorder
        node = recorder.node_of(tensor)
        return Given(
            name=name,
            node=recorder.source(tensor, None) if node is None else node,
            shape=recorder.shape_of(tensor),
            dtype=str(tensor.dtype).removeprefix("torch."),
            layout=str(tensor.layout).removeprefix("torch."),
            device=str(tensor.device),
            requires_grad=bool(tensor.requires_grad),
            leaf=bool(tensor.is_leaf),
        )

    def _look_behind(
        self, complaint: Complaint, roots: list[Any], error: BaseException | None
    ) -> None:
        """What lies behind the tensors that a pass started from: whose code ran, what failed."""
        if roots and error is not None:
            complaint.failed, complaint.failed_function = self._failed(roots)

    def _failed(self, roots: list[Any]) -> tuple[int | None, str]:
        """The operation whose backward raised.

        Autograd works from the latest operation down and lets go of what each one kept when it
        is done. So it is the latest one that still has what it kept, if others have not.
        """
        waiting, freed = [], False
        live = [root for root in roots if root.grad_fn is not None]
        for function, event in autopsy.functions(self.recorder, live):
            names = torch_api.saved_names(function)
            if names and all(torch_api.complaint(function, name) for name in names):
                freed = True
            elif names or event is not None:
                waiting.append((torch_api.node_sequence(function), bool(names), event, function))
        kept = [row for row in waiting if row[1]]
        if not kept:
            return None, ""
        first = max(kept, key=lambda row: row[0])
        if not freed and len(kept) > 1 and first[0] != max(row[0] for row in waiting):
            return None, ""
        return first[2], str(type(first[3]).name(first[3])).removeprefix("torch::autograd::")


def _callers(frame: FrameType | None) -> list[FrameType]:
    """A frame and those that called it, from the outside in."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _traceback(error: BaseException) -> list[FrameType]:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


def _raised_by_program(error: BaseException, recorder: Recorder) -> bool:
    """Whether a `raise` of the program's own is where the exception comes from."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or recorder.frames.kind(trace.tb_frame) >= TORCH:
        return False
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def _without_ours(frames: list[FrameType], recorder: Recorder) -> list[FrameType]:
    """Frames from the outside in, without whygrad's own and without what the relays imitate."""
    kind = recorder.frames.kind
    start = max((p for p, frame in enumerate(frames) if kind(frame) == RUNNER), default=-1) + 1
    kept = [f for f in frames[start:] if not is_relay(f.f_code)]
    return [f for f in kept if kind(f) != MACHINERY or not _is_ours(f.f_code)]


def is_relay(code: CodeType) -> bool:
    return code.co_varnames == _RELAY.co_varnames and code.co_code == _RELAY.co_code


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(_OURSELVES)


_OURSELVES = str(sys.modules[__package__].__file__).rpartition("record")[0]


def _qualified(frame: FrameType) -> str:
    """Module and name of a function of torch's: torch.optim.sgd.SGD.__init__."""
    module = frame.f_globals.get("__name__", "")
    return f"{module}.{frame.f_code.co_qualname}"
