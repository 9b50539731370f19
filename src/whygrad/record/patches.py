"""The few things that no mode and no hook of torch's shows, seen through reversible patches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.profiler

from whygrad.record import torch_api
from whygrad.record.mode import WatchingMode
from whygrad.record.recorder import Recorder

_MISSING = object()


class Patches:
    """Installs replacements of attributes and takes them away again, in reverse order."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute, remembering what the owner itself held (not what it inherits)."""
        self._undo.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def undo(self) -> None:
        while self._undo:
            owner, name, value = self._undo.pop()
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


CurrentMode = Callable[[], WatchingMode | None]


def install(patches: Patches, recorder: Recorder, current: CurrentMode) -> None:
    """Patch constructors, inference mode and what conflicts with weak references."""
    _constructors(patches, recorder, current)
    _inference_mode(patches, recorder, current)
    _swap_tensors(patches, recorder)
    _compile(patches)


def _note(recorder: Recorder, look: Callable[[], None]) -> None:
    """Look at something without being seen doing so, and without harm if that fails."""
    try:
        with torch_api.without_torch_function():
            look()
    except Exception as fault:
        recorder.fault(fault)


def _constructors(patches: Patches, recorder: Recorder, current: CurrentMode) -> None:
    def made(op: str, data: Any, result: Any, frame: Any) -> None:
        mode = current()
        if mode is not None and not mode.paused:
            _note(recorder, lambda: recorder.rebuilt(op, data, result, frame, mode.switches))

    def tensor_init(self: Any, *args: Any, **kwargs: Any) -> None:
        # Runs after torch.Tensor(...) and its subclasses' calls; torch itself has no __init__.
        if type(self).__init__ is not tensor_init:
            object.__init__(self, *args, **kwargs)
        elif type(self) is torch.Tensor and args:
            made("Tensor", args[0] if len(args) == 1 else None, self, sys._getframe(1))

    make_parameter = torch.nn.Parameter.__new__

    def parameter_new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        result = make_parameter(cls, data, requires_grad)
        made("Parameter", data, result, sys._getframe(1))
        return result

    from_numpy = torch.from_numpy

    def patched_from_numpy(*args: Any, **kwargs: Any) -> Any:
        result = from_numpy(*args, **kwargs)
        made("from_numpy", args[0] if args else None, result, sys._getframe(1))
        return result

    _imitate(parameter_new, make_parameter)
    _imitate(patched_from_numpy, from_numpy)
    patches.set(torch.Tensor, "__init__", tensor_init)
    patches.set(torch.nn.Parameter, "__new__", staticmethod(parameter_new))
    patches.set(torch, "from_numpy", patched_from_numpy)

    variable = torch.autograd.Variable
    make_variable = variable.__new__

    def variable_new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        result = make_variable(cls, *args, **kwargs)
        made("Variable", args[0] if args else None, result, sys._getframe(1))
        return result

    patches.set(variable, "__new__", staticmethod(variable_new))


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

    _imitate(patched_enter, enter)
    _imitate(patched_exit, leave)
    patches.set(context, "__enter__", patched_enter)
    patches.set(context, "__exit__", patched_exit)


def optimizers_made(patches: Patches, made: Callable[[], None]) -> None:
    """Tell when the program makes its first optimizer."""
    begin = torch.optim.Optimizer.__init__

    def patched_init(self: Any, *args: Any, **kwargs: Any) -> None:
        made()
        begin(self, *args, **kwargs)

    _imitate(patched_init, begin)
    patches.set(torch.optim.Optimizer, "__init__", patched_init)


def _swap_tensors(patches: Patches, recorder: Recorder) -> None:
    """torch.utils.swap_tensors refuses tensors with weak references: take ours away first."""
    swap = getattr(torch.utils, "swap_tensors", None)
    if swap is None:
        return

    def patched_swap(t1: Any, t2: Any) -> Any:
        recorder.forget(t1)
        recorder.forget(t2)
        return swap(t1, t2)

    _imitate(patched_swap, swap)
    patches.set(torch.utils, "swap_tensors", patched_swap)


def _compile(patches: Patches) -> None:
    """Compiled regions run eagerly; torch's compiler is imported only if the program uses it."""
    compile_ = torch.compile

    def patched_compile(*args: Any, **kwargs: Any) -> Any:
        torch_api.force_eager()
        return compile_(*args, **kwargs)

    _imitate(patched_compile, compile_)
    patches.set(torch, "compile", patched_compile)


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

    patches.set(threading.Thread, "_bootstrap_inner", patched_bootstrap)


def after_record_function(patches: Patches, leaving: Callable[[], None]) -> None:
    """Every optimizer step, also one that raises, leaves through this context manager."""
    context = torch.autograd.profiler.record_function
    leave = context.__exit__

    def patched_exit(self: Any, *exc: Any) -> Any:
        leaving()
        return leave(self, *exc)

    _imitate(patched_exit, leave)
    patches.set(context, "__exit__", patched_exit)


def _imitate(replacement: Any, original: Any) -> None:
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        value = getattr(original, name, None)
        if value is not None:
            setattr(replacement, name, value)
