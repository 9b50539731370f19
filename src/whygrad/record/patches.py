"""The few things that no mode and no hook of torch's shows, seen through reversible patches."""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.autograd.profiler
import torch.fx.traceback
import torch.overrides

from whygrad.record import torch_api
from whygrad.record.frames import hide_callers, plain_relay
from whygrad.record.mode import WatchingMode
from whygrad.record.recorder import Recorder

_MISSING = object()


class Replacement(NamedTuple):
    """An attribute that was replaced, and what its owner itself held before."""

    owner: Any
    name: str
    before: Any
    value: Any

    def undo(self) -> None:
        if vars(self.owner).get(self.name) is not self.value:
            return  # the program has put something of its own there since
        if self.before is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)

    def do_again(self) -> None:
        if vars(self.owner).get(self.name, _MISSING) is self.before:
            setattr(self.owner, self.name, self.value)


class Patches:
    """Installs replacements of attributes and takes them away again, in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._away: list[Replacement] = []  # what steps aside for a while
        self._hooks: list[Any] = []  # torch's handles of hooks that do so too

    def set(self, owner: Any, name: str, value: Any, *, stays: bool = False) -> None:
        """Replace an attribute, remembering what the owner itself held (not what it inherits)."""
        replacement = Replacement(owner, name, vars(owner).get(name, _MISSING), value)
        self._undo.append(replacement.undo)
        setattr(owner, name, value)
        if not stays:
            self._away.append(replacement)

    def add_hook(self, handle: Any) -> None:
        """A hook of torch's, by its handle, to be removed with the rest."""
        self._undo.append(handle.remove)
        self._hooks.append(handle)

    def step_aside(self) -> None:
        """Leave torch as it is without us, for a while."""
        for replacement in reversed(self._away):
            replacement.undo()
        for handle in self._hooks:
            torch_api.suspend_hook(handle)

    def come_back(self) -> None:
        """The end of `step_aside`. What was undone for good in between stays so."""
        for replacement in self._away:
            replacement.do_again()
        for handle in self._hooks:
            torch_api.resume_hook(handle)

    def set_function(self, module: Any, name: str, function: Any) -> None:
        """Replace a module's function by one that pickle finds under the same name."""
        function.__module__, function.__qualname__ = module.__name__, name
        self.set(module, name, function)

    def at_the_end(self, undo: Callable[[], None]) -> None:
        self._undo.append(undo)

    def undo(self) -> None:
        self._away.clear()
        self._hooks.clear()
        while self._undo:
            self._undo.pop()()


CurrentMode = Callable[[], WatchingMode | None]


def install(
    patches: Patches, recorder: Recorder, current: CurrentMode, forget: Callable[[Any], None]
) -> None:
    """Patch constructors, inference mode and what a mode or weak references would change."""
    _constructors(patches, recorder, current)
    _inference_mode(patches, recorder, current)
    _swap_tensors(patches, recorder, forget)
    _fast_paths(patches, current)
    _backward(patches, recorder, current)
    _anomaly_stacks(patches)


def _note(recorder: Recorder, look: Callable[[], None]) -> None:
    """Look at something without being seen doing so, and without harm if that fails."""
    try:
        with torch_api.without_torch_function():
            look()
    except Exception as fault:
        recorder.fault(fault)


Before = Callable[[tuple[Any, ...]], None]
After = Callable[[tuple[Any, ...], dict[str, Any], Any, FrameType], None]


def stand_in(
    recorder: Recorder, original: Any, *, before: Before | None = None, after: After | None = None
) -> Any:
    """A function that does what `original` does, with warnings and tracebacks as without us."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        if before is not None:
            _note(recorder, lambda: before(args))
        try:
            relay = recorder.frames.relay(frame)
        except Exception as fault:
            recorder.fault(fault)
            relay = plain_relay
        try:
            result = relay(original, args, kwargs)
        except BaseException as error:
            hide_callers(error, 2)
            raise
        if after is not None:
            _note(recorder, lambda: after(args, kwargs, result, frame))
        return result

    return imitate(stand_in, original)


def _constructors(patches: Patches, recorder: Recorder, current: CurrentMode) -> None:
    def made(op: str, data: Any, result: Any, frame: FrameType) -> None:
        mode = current()
        if mode is not None and (not mode.paused or op == "Parameter"):
            recorder.rebuilt(op, data, result, frame, mode.switches)

    def maker(op: str, index: int) -> After:
        return lambda args, kwargs, result, frame: made(
            op, args[index] if len(args) > index else kwargs.get("data"), result, frame
        )

    def tensor_init(self: Any, *args: Any, **kwargs: Any) -> None:
        # Runs after torch.Tensor(...) and its subclasses' calls; torch itself has no __init__.
        if type(self) is torch.Tensor:
            if args:
                frame, data = sys._getframe(1), args[0] if len(args) == 1 else None
                _note(recorder, lambda: made("Tensor", data, self, frame))
            return
        following = _next_init(type(self))
        # object's own objects to arguments only where some class overrides __init__.
        if following is not object.__init__ or type(self).__init__ is not tensor_init:
            following(self, *args, **kwargs)

    for owner, name, op in (
        (torch.nn.Parameter, "__new__", "Parameter"),
        (torch.autograd.Variable, "__new__", "Variable"),
    ):
        new = stand_in(recorder, getattr(owner, name), after=maker(op, 1))
        patches.set(owner, name, staticmethod(new))
    lazy = torch.nn.parameter.UninitializedParameter
    new = stand_in(
        recorder,
        lazy.__new__,
        after=lambda args, kwargs, result, frame: made("Parameter", None, result, frame),
    )
    patches.set(lazy, "__new__", staticmethod(new))
    patches.set(torch.Tensor, "__init__", imitate(tensor_init, torch.Tensor.__init__))
    from_numpy = stand_in(recorder, torch.from_numpy, after=maker("from_numpy", 0))
    patches.set_function(torch, "from_numpy", from_numpy)


def _next_init(kind: type) -> Any:
    """The __init__ that comes after torch.Tensor's in a subclass's order of bases."""
    order = kind.__mro__
    for base in order[order.index(torch.Tensor) + 1 :]:
        if "__init__" in vars(base):
            return vars(base)["__init__"]
    return object.__init__


def _inference_mode(patches: Patches, recorder: Recorder, current: CurrentMode) -> None:
    """Entering inference mode calls nothing that a mode sees."""
    context = torch.inference_mode
    enter, leave = context.__enter__, context.__exit__

    def patched_enter(self: Any) -> None:
        enter(self)
        mode = current()
        if mode is not None:
            frame = sys._getframe(1)
            switches = mode.switches
            _note(
                recorder,
                lambda: switches.inference.append(
                    recorder.switch_table.intern("inference_mode", not self.mode, frame)
                ),
            )

    def patched_exit(self: Any, *exc: Any) -> None:
        leave(self, *exc)
        mode = current()
        if mode is not None and mode.switches.inference:
            mode.switches.inference.pop()

    patches.set(context, "__enter__", imitate(patched_enter, enter))
    patches.set(context, "__exit__", imitate(patched_exit, leave))


def _swap_tensors(patches: Patches, recorder: Recorder, forget: Callable[[Any], None]) -> None:
    """torch.utils.swap_tensors refuses tensors with weak references: take ours away first."""
    swap = getattr(torch.utils, "swap_tensors", None)
    if swap is None:
        return

    def before(args: tuple[Any, ...]) -> None:
        for tensor in args:
            forget(tensor)

    patches.set_function(torch.utils, "swap_tensors", stand_in(recorder, swap, before=before))


def run_eagerly(patches: Patches, recorder: Recorder) -> None:
    """Let compiled regions run eagerly, where their calls are seen.

    Torch's compiler is imported only if the program uses it.
    """
    forced: list[Any] = []

    def force(_: tuple[Any, ...] = ()) -> None:
        if not forced:
            forced.append(torch_api.force_eager())

    def undo() -> None:
        for stance in filter(None, forced):
            stance.__exit__(None, None, None)

    patches.set_function(torch, "compile", stand_in(recorder, torch.compile, before=force))
    patches.at_the_end(undo)
    if "torch._dynamo" in sys.modules:
        _note(recorder, force)


def _fast_paths(patches: Patches, current: CurrentMode) -> None:
    """Attention takes a fast path, with other last bits, if no mode is on: ours must not count."""
    has_torch_function = torch.overrides.has_torch_function

    def without_us(arguments: Any) -> bool:
        mode = current()
        if mode is None or not torch_api.pop_mode_if_on_top(mode):
            return has_torch_function(arguments)
        try:
            return has_torch_function(arguments)
        finally:
            torch_api.push_mode(mode)

    replacement = imitate(without_us, has_torch_function)
    patches.at_the_end(torch_api.pass_for_builtin(replacement, "aten::has_torch_function"))
    patches.set_function(torch.overrides, "has_torch_function", replacement)


class _Engine:
    """Stands in for the attribute through which torch's Python code gets at autograd's engine.

    No mode is on by then; ours must be, to see what the program's hooks write. A function around
    the engine would do too, but be one frame too many for warnings that count frames.
    """

    def __init__(self, engine: Any, recorder: Recorder, current: CurrentMode) -> None:
        self.engine = engine
        self.recorder = recorder
        self.current = current

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        try:
            mode = self.current()
            if mode is not None:
                mode.enter_backward()
        except Exception as fault:
            self.recorder.fault(fault)
        return self.engine


def _backward(patches: Patches, recorder: Recorder, current: CurrentMode) -> None:
    """Put in place only when the program first has code of its own run in a backward pass."""
    engine = torch_api.engine()

    def put_in_place() -> None:
        if engine is not None:
            stand_in = _Engine(engine, recorder, current)
            patches.set(torch.autograd.Variable, torch_api.ENGINE, stand_in)

    recorder.when_heeded = put_in_place


def _anomaly_stacks(patches: Patches) -> None:
    """Anomaly mode quotes the stack of each call in its warnings: leave out what is ours."""
    format_stack = torch.fx.traceback.format_stack

    def without_us() -> list[str]:
        if torch.fx.traceback.has_preserved_node_meta():
            return format_stack()
        kept: list[Any] = []
        walk = traceback.walk_stack(sys._getframe(1))
        for frame, line in walk:
            if frame.f_code is not WatchingMode.__torch_function__.__code__:
                kept.append((frame, line))
                continue
            if kept:
                kept.pop()  # the relay
            if frame.f_back is not None and frame.f_back.f_code is torch_api.REENTRY_CODE:
                next(walk), next(walk, None)  # and the first appearance of a function in Python
        return traceback.format_list(reversed(traceback.StackSummary.extract(iter(kept))))

    patches.set_function(torch.fx.traceback, "format_stack", imitate(without_us, format_stack))


def watch_threads(
    patches: Patches, enter: Callable[[threading.Thread], None], leave: Callable[[], None]
) -> None:
    """Modes belong to a thread: each new thread of the program gets one of its own."""
    bootstrap = getattr(threading.Thread, "_bootstrap_inner", None)
    if bootstrap is None:
        return

    def patched_bootstrap(self: Any) -> None:
        enter(self)
        try:
            bootstrap(self)
        finally:
            leave()

    patches.set(threading.Thread, "_bootstrap_inner", imitate(patched_bootstrap, bootstrap))


def watch_warnings(
    patches: Patches, recorder: Recorder, warned: Callable[[Any, FrameType], None]
) -> None:
    """Warnings that are shown, or collected in place of being shown, pass through here."""
    show = getattr(warnings, "_showwarnmsg", None)
    if show is None:
        return

    def patched_show(message: Any) -> None:
        frame = sys._getframe(1)
        _note(recorder, lambda: warned(message, frame))
        show(message)

    patches.set(warnings, "_showwarnmsg", imitate(patched_show, show))


def around_record_function(
    patches: Patches, entering: Callable[[str], None], leaving: Callable[[], None]
) -> None:
    """Optimizers do their work, and leave it also when it raises, in this context manager."""
    context = torch.autograd.profiler.record_function
    enter: Any = context.__enter__
    leave: Any = context.__exit__

    def patched_enter(self: Any) -> Any:
        entering(self.name)
        return enter(self)

    def patched_exit(self: Any, *exc: Any) -> Any:
        try:
            return leave(self, *exc)
        finally:
            leaving()

    patches.set(context, "__enter__", imitate(patched_enter, enter))
    patches.set(context, "__exit__", imitate(patched_exit, leave))


def imitate(replacement: Any, original: Any) -> Any:
    """Give a replacement the original's name, text and signature."""
    for name in ("__name__", "__qualname__", "__doc__"):
        setattr(replacement, name, getattr(original, name))
    replacement.__module__ = getattr(original, "__module__", None)
    replacement.__wrapped__ = original
    return replacement
