"""Torch's own words, an exception or a warning, with everything that took part in them."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from whygrad import catalogue
from whygrad.record import (
    copies,
    culprits,
    failures,
    functions,
    holdings,
    packing,
    stopping,
    torch_api,
    transforms,
)
from whygrad.record.events import Complaint, Given, HookUse
from whygrad.record.frames import MACHINERY, RUNNER, TORCH, plain_relay
from whygrad.record.hooks import Hooks
from whygrad.record.makers import Makers
from whygrad.record.recomputing import Recomputations, block
from whygrad.record.recorder import Recorder

_MAX_CALLS = 12  # of torch's own functions
_MAX_GIVEN = 16  # tensors
_MAX_TEXT = 80  # characters of an argument
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, type)
_RELAY = plain_relay.__code__
_WITH_RECOMPUTATION = "checkpoint"  # the group of messages about it
_DIFFERENTIATED_TWICE = "ddp-create-graph"
_NEEDLESS_SEARCH = "ddp-find-unused-needless"
_NON_LEAF_GRADIENT = "non-leaf-grad-access"


class Failure(NamedTuple):
    """The latest call that raised: C code leaves no frame behind to see its arguments in."""

    error: int
    op: str
    given: list[Given]
    packing: list[HookUse]


class Complaints:
    """Collects plain data about a complaint while all of it is alive."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.makers = Makers(recorder)
        self.hooks = Hooks(recorder)
        self.recomputations = Recomputations(recorder)
        self.gradients_off: Callable[[], bool] = lambda: False
        self._last: Failure | None = None

    def noticed(self, op: str, args: Any, kwargs: Any, error: BaseException) -> None:
        """A watched call raised: remember what it was given, in case nobody catches it."""
        given = [(str(place), value) for place, value in enumerate(args)]
        tensors = self._tensors([*given, *(kwargs or {}).items()])
        self._last = Failure(id(error), op, tensors, packing.in_force())

    def of_error(
        self, error: BaseException, roots: Iterable[Any] = (), caller: FrameType | None = None
    ) -> Complaint | None:
        """What an exception says, if it is torch's own and not the program's.

        `caller` is the frame that it has got to, where that is not the program's outermost.
        """
        frames = _callers(caller) + _traceback(error)
        if not frames or _raised_by_program(error, self.recorder):
            return None
        message = catalogue.find(str(error), type(error).__name__) or _said_by_place(frames)
        complaint = self._complaint(message, frames, warning=False, raised=_raised(error))
        last = self._last
        if last is not None and last.error == id(error):
            complaint.calls = complaint.calls or (last.op,)
            complaint.hooks = last.packing + complaint.hooks
            known = {given.node for given in last.given}
            complaint.given = last.given + [g for g in complaint.given if g.node not in known]
        complaint.texts |= copies.where_in(error)
        twice = complaint.texts.get("create_graph") == "True"
        if twice and failures.is_refused_write(str(error)) and self.makers.replicas():
            complaint.message = _DIFFERENTIATED_TWICE  # torch says that on stderr only
        roots = [*roots, *failures.inner_roots(error)]
        self._look_behind(complaint, roots, error)
        return complaint

    def of_warning(self, text: str, category: str, frame: FrameType | None) -> Complaint | None:
        """What a warning says, if it is one that the catalogue knows and torch gave it."""
        message = catalogue.find(text, category)
        if message is None or message.channel == "exception":
            return None
        frames = _callers(frame)
        complaint = self._complaint(message, frames, warning=True)
        roots = [root for inner in frames for root in failures.backward_in(inner)[1]]
        named = culprits.operation(self.recorder, roots, text) if roots else None
        complaint.failed, complaint.failed_function = named or (None, "")
        self._look_behind(complaint, [], None)
        return complaint

    def of_needless_search(self) -> tuple[Complaint, str] | None:
        """What torch says, on stderr only, where every parameter was used."""
        message, made = catalogue.by_id(_NEEDLESS_SEARCH), self.makers.searching_in_vain()
        if message is None or made is None:
            return None
        complaint = Complaint(message.id, warning=True, stack=made.stack, outer=made.stack)
        return complaint, message.template

    def of_missing_gradient(self, tensor: Any, frame: FrameType) -> tuple[Complaint, str]:
        """What torch says about reading the gradient of a result, whether it is shown or not."""
        message = catalogue.by_id(_NON_LEAF_GRADIENT)
        complaint = self._complaint(message, _callers(frame), warning=True)
        complaint.given = [self._given("0", tensor)]
        return complaint, message.template if message is not None else ""

    def _complaint(
        self,
        message: catalogue.Message | None,
        frames: list[FrameType],
        warning: bool,
        raised: dict[FrameType, int] | None = None,
    ) -> Complaint:
        known = self.recorder.frames
        frames = _without_ours(frames, self.recorder)
        callers = dict(zip(frames[1:], frames, strict=False))
        own = [place for place, frame in enumerate(frames) if known.kind(frame) < TORCH]
        kinds = [known.kind(frame) for frame in frames]
        entry = next((p for p in own if TORCH in kinds[p + 1 : p + 2]), None)
        inner = frames[own[-1]] if own else None
        outer = frames[entry] if entry is not None else inner
        inside = [f for f in frames[(entry or 0) + 1 :] if known.kind(f) == TORCH][:_MAX_CALLS]
        complaint = Complaint(
            message=message.id if message is not None else "",
            warning=warning,
            stack=known.stack(inner, raised or {}, callers),
            outer=known.stack(outer, raised or {}, callers),
            calls=tuple(_qualified(frame) for frame in inside),
        )
        for frame in inside:
            self._arguments(complaint, frame)
        wrapped = [made for _, made in self.makers.replicas()]
        complaint.made += [made for made in wrapped if made not in complaint.made]
        complaint.functions = functions.in_frames(self.recorder, frames)
        complaint.hooks = self.hooks.told(frames)
        if message is not None and message.group == _WITH_RECOMPUTATION:
            complaint.recomputed = self.recomputations.latest
            complaint.block = block(self.recorder, frames)
            complaint.gradients_off = self.gradients_off()
        complaint.transforms = transforms.transforms(self.recorder, frames, self._tensors)
        complaint.layer = transforms.layer(self.recorder, frames)
        return complaint

    def _arguments(self, complaint: Complaint, frame: FrameType) -> None:
        """What one of torch's own functions was called with."""
        code, values = frame.f_code, frame.f_locals
        count = code.co_argcount + code.co_kwonlyargcount
        extra = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
        names = [name for name in code.co_varnames[: count + extra] if name in values]
        complaint.made += self.makers.of(values[name] for name in names)
        complaint.held = holdings.held(self.recorder, values) or complaint.held
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
            leaf=_is_leaf(tensor),
        )

    def _look_behind(
        self, complaint: Complaint, roots: list[Any], error: BaseException | None
    ) -> None:
        """What lies behind the tensors that a pass started from: whose code ran, what failed."""
        if roots and error is not None:
            named = culprits.operation(self.recorder, roots, str(error))
            stopped = None if named else stopping.where(self.recorder, roots, str(error))
            if named is not None:
                complaint.failed, complaint.failed_function = named
            elif stopped is not None:
                complaint.failed, complaint.failed_function, complaint.failed_surely = stopped
            complaint.functions = functions.behind(self.recorder, roots, complaint.functions)
            complaint.hooks += packing.behind(self.recorder, roots)
        if error is not None:
            complaint.functions = functions.named(self.recorder, str(error), complaint.functions)


def _said_by_place(frames: list[FrameType]) -> catalogue.Message | None:
    """The message whose text is the program's own: who forbids saved-tensor hooks says why."""
    refused = torch_api.enters_saved_hooks(frames[-1])
    return catalogue.by_id("saved-hooks-disabled") if refused else None


def _is_leaf(tensor: Any) -> bool:
    try:
        return bool(tensor.is_leaf)
    except RuntimeError:  # a view whose history a write has spoilt
        return False


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


def _raised(error: BaseException) -> dict[FrameType, int]:
    """Where each frame was when the exception passed it, at the first time."""
    found: dict[FrameType, int] = {}
    trace = error.__traceback__
    while trace is not None:
        found.setdefault(trace.tb_frame, trace.tb_lasti)
        trace = trace.tb_next
    return found


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
