"""Every use of torch's private API, each with a fallback for a torch that lacks it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

import torch
import torch.overrides
import torch.utils._contextlib as torch_contextlib
import torch.utils.checkpoint as torch_checkpoint


def _no_sequence_number() -> int:
    return 0


def _sequence_counter() -> Callable[[], int]:
    """The counter that numbers autograd nodes in the order of their creation."""
    counter = getattr(torch.autograd, "_get_sequence_nr", None)
    return counter if callable(counter) else _no_sequence_number


sequence_number: Callable[[], int] = _sequence_counter()

_push: Callable[[Any], None] | None = getattr(torch.overrides, "_push_mode", None)
_pop: Callable[[], Any] | None = getattr(torch.overrides, "_pop_mode", None)
_top: Callable[[], Any] | None = getattr(torch.overrides, "_get_current_function_mode", None)


mode_depth: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 0)
# While torch.jit.trace runs, a look at a tensor's shape would end up in the traced graph.
is_tracing: Callable[[], bool] = getattr(torch._C, "_is_tracing", lambda: False)


_functorch = getattr(torch._C, "_functorch", None)
_is_wrapped: Callable[[Any], bool] = getattr(
    _functorch, "is_functorch_wrapped_tensor", lambda tensor: False
)
_unwrapped: Callable[[Any], Any] = getattr(_functorch, "get_unwrapped", lambda tensor: None)


def behind_transform(tensor: Any) -> Any:
    """The tensor that a transform of torch.func has wrapped, or None if it is not wrapped."""
    return _unwrapped(tensor) if _is_wrapped(tensor) else None


def top_mode() -> Any:
    """The innermost mode of this thread, or None."""
    return None if _top is None else _top()


def pop_mode_if_on_top(mode: object) -> bool:
    """Take `mode` off this thread's stack if it is the innermost one; False if that cannot be."""
    if _push is None or _pop is None or _top is None or _top() is not mode:
        return False
    _pop()
    return True


def push_mode(mode: object) -> None:
    """Put a mode back that `pop_mode_if_on_top` took off."""
    if _push is not None:
        _push(mode)


def remove_mode(mode: object) -> None:
    """Take `mode` out of this thread's stack, whatever lies above it."""
    if _push is None or _pop is None:
        return
    above = []
    for _ in range(mode_depth()):
        top = _pop()
        if top is mode:
            break
        above.append(top)
    for other in reversed(above):
        _push(other)


def lift_mode(mode: object) -> int | None:
    """Take `mode` off this thread's stack; returns how many lie above it, None if it is not on."""
    if _push is None or _pop is None:
        return None
    above: list[Any] = []
    found = False
    for _ in range(mode_depth()):
        top = _pop()
        if top is mode:
            found = True
            break
        above.append(top)
    for other in reversed(above):
        _push(other)
    return len(above) if found else None


def lower_mode(mode: object, above: int) -> None:
    """Put a mode back that `lift_mode` took off, beneath as many others."""
    if _push is None or _pop is None:
        return
    lifted = [_pop() for _ in range(min(above, mode_depth()))]
    for other in [mode, *reversed(lifted)]:
        _push(other)


def pass_for_builtin(function: Any, operator: str) -> Callable[[], None]:
    """Let scripted code call `function` as the operator it stands for; returns the undoing."""
    table: dict[int, str] = getattr(torch.jit._builtins, "_get_builtin_table", dict)()
    table[id(function)] = operator

    def undo() -> None:
        table.pop(id(function), None)

    return undo


_fix_weakref: Callable[[Any], None] | None = getattr(torch.Tensor, "_fix_weakref", None)


def alive(ref: Callable[[], Any]) -> Any:
    """The tensor behind a weak reference, or None.

    A tensor that only C++ still holds keeps its Python object, and weak references to it work.
    But C++ may let go of it at any time, in another thread, unless torch is told that Python
    holds it again: then Python's object would outlive the tensor itself.
    """
    tensor = ref()
    if tensor is not None and _fix_weakref is not None and isinstance(tensor, torch.Tensor):
        _fix_weakref(tensor)
    return tensor


class _Nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


def without_torch_function() -> Any:
    """A context in which no mode and no tensor subclass sees our own look at a tensor."""
    return getattr(torch._C, "DisableTorchFunction", _Nothing)()


def node_sequence(node: Any) -> int:
    """The creation number of an autograd node, or -1."""
    try:
        return int(node._sequence_nr())
    except (AttributeError, TypeError, RuntimeError):
        return -1


def is_checkpoint(node: Any) -> bool:
    """Whether an autograd node is torch's reentrant checkpoint."""
    function = getattr(type(node), "_forward_cls", None)
    return getattr(function, "__module__", "") == "torch.utils.checkpoint"


_data_address: Callable[[Any], int] | None = getattr(torch._C, "_data_address", None)
_apply = getattr(torch.nn.Module, "_apply", None)
_APPLY_CODE: CodeType | None = getattr(_apply, "__code__", None)


def data_address(tensor: Any) -> int:
    """Where a tensor's first element lies in memory, 0 if it does not say.

    Without a copy being made: data_ptr() would turn a lazily cloned tensor into a real one.
    """
    try:
        if _data_address is None:
            return int(tensor.data_ptr())
        start = int(_data_address(tensor))  # of the storage
        return start + tensor.storage_offset() * tensor.element_size() if start else 0
    except (RuntimeError, TypeError, ValueError):
        return 0


_CHECK_FILE = getattr(getattr(torch.autograd.gradcheck, "__code__", None), "co_filename", "")


def is_check(frame: FrameType) -> bool:
    """Whether `frame` is gradcheck() at work."""
    return frame.f_code.co_filename == _CHECK_FILE


def is_conversion(frame: FrameType) -> bool:
    """Whether `frame` is torch moving a module's parameters to another device or type."""
    return frame.f_code is _APPLY_CODE


_dispatch_depth: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_profiling: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: False)


def may_compute() -> bool:
    """Whether operations of our own would go unnoticed: by modes, profilers and CUDA graphs."""
    if _dispatch_depth() or _profiling() or is_tracing():
        return False
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return True
    return not (torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode())


_foreach_norm: Callable[..., Any] | None = getattr(torch, "_foreach_norm", None)


def largest_of_each(tensors: list[Any]) -> list[Any]:
    """The largest absolute value of each tensor, in one call where torch can do that."""
    if _foreach_norm is None:
        return [torch.linalg.vector_norm(tensor, float("inf")) for tensor in tensors]
    return list(_foreach_norm(tensors, float("inf")))


ENGINE = "_execution_engine"


def engine() -> Any:
    """Autograd's engine, as torch's own Python code gets at it; None if it does so otherwise."""
    return vars(torch.autograd.Variable).get(ENGINE)


_RAW = "_raw_saved_"
_saved_names: dict[type, tuple[str, ...]] = {}


def saved_names(function: Any) -> tuple[str, ...]:
    """The values that an autograd node keeps, by autograd's own names for them."""
    kind = type(function)
    if kind not in _saved_names:
        # From the type: a custom Function's context may have anything among its attributes.
        names = [name.removeprefix(_RAW) for name in dir(kind) if name.startswith(_RAW)]
        _saved_names[kind] = tuple(names)
    return _saved_names[kind]


def raw_saved(function: Any, name: str) -> list[Any]:
    """What autograd holds for one saved name, one entry per tensor.

    Empty where a hook packed it (unpacking would run the program's code, or compute a
    checkpointed part again) and where this torch does not tell of hooks. The entries point into
    the node: hold on to it while they are used.
    """
    try:
        raw = getattr(function, _RAW + name)
        parts = list(raw) if isinstance(raw, (tuple, list)) else [raw]
        return [] if any(part.unpack_hook is not None for part in parts) else parts
    except (AttributeError, RuntimeError, TypeError):
        return []


def keeps(function: Any, name: str) -> bool:
    """Whether a node holds a tensor under a saved name, packed by a hook or not."""
    try:
        if unpack_hooks(function, name):
            return True
        custom = is_custom(function) and name == "tensors"
        value = getattr(function, "saved_tensors" if custom else f"_saved_{name}")
    except (AttributeError, RuntimeError):
        return False
    values = value if isinstance(value, (tuple, list)) else [value]
    return any(isinstance(part, torch.Tensor) for part in values)


def is_unused(function: Any, name: str) -> bool:
    """Whether a value was saved that the derivative does not look at.

    Batch norm keeps its running statistics always, and needs them in evaluation mode only.
    """
    return name.startswith("running_") and bool(getattr(function, "_saved_training", False))


def is_custom(function: Any) -> bool:
    """Whether an autograd node runs Python code: a custom Function, or a module's hook."""
    return isinstance(function, torch.autograd.function.BackwardCFunction)


def forward_class(function: Any) -> Any:
    """The custom Function that an autograd node runs the backward of; None for other nodes."""
    found = getattr(type(function), "_forward_cls", None)
    return found if isinstance(found, type) else None


def gradients_wanted(function: Any) -> tuple[bool, ...]:
    """For each argument of a custom Function's forward: does backward have to give a gradient?

    Through the base class: the context may have an attribute of this name of its own.
    """
    wanted = getattr(torch.autograd.function.BackwardCFunction, "needs_input_grad", None)
    try:
        return tuple(bool(flag) for flag in wanted.__get__(function))  # type: ignore[union-attr]
    except (AttributeError, RuntimeError, TypeError):
        return ()


def custom_op_forward(name: str) -> Any:
    """The function that torch.library.custom_op made an operator of, by its qualified name."""
    module = sys.modules.get("torch._library.custom_ops")
    return getattr(getattr(module, "OPDEFS", {}).get(name), "_init_fn", None)


def registered_backward(cls: Any) -> tuple[str, Any, Any] | None:
    """Of the Function that torch makes for an operator: its name, backward and setup_context.

    They are held by the closures of that Function's methods.
    """
    name, info, function = "", None, getattr(cls, "backward", None)
    for _ in range(3):  # an operator with lists of tensors has one more around it
        names = getattr(getattr(function, "__code__", None), "co_freevars", ())
        cells = getattr(function, "__closure__", None) or ()
        held = {n: c.cell_contents for n, c in zip(names, cells, strict=True)}
        name = str(getattr(held.get("op"), "_name", name))
        info = held.get("info", info)
        function = held.get("orig_backward")
    if info is None or not hasattr(info, "_backward_fn"):
        return None
    return name, info._backward_fn, getattr(info, "_setup_context_fn", None)


def library_file(op: str) -> str:
    """The file in which the library of an operator was made; empty if torch does not say."""
    dump = getattr(torch._C, "_dispatch_dump", None)
    try:
        text = str(dump(op)) if dump is not None else ""
    except RuntimeError:
        return ""
    found = re.search(r"^debug: registered at (.+):\d+$", text, re.M)
    return found.group(1) if found else ""


def unpack_hooks(function: Any, name: str) -> list[Any]:
    """The hooks that packed a saved value, unless it was let go of since."""
    try:
        raw = getattr(function, _RAW + name, None)
    except RuntimeError:
        return []
    parts = raw if isinstance(raw, (tuple, list)) else [raw]
    hooks = [getattr(part, "unpack_hook", None) for part in parts]
    return [hook for hook in hooks if hook is not None]


_top_hooks: Any = getattr(
    getattr(torch._C, "_autograd", None), "_top_saved_tensors_default_hooks", None
)


def saved_tensors_hooks() -> tuple[Any, Any] | None:
    """The pair (pack, unpack) that is in force, or None."""
    pair = _top_hooks(False) if _top_hooks is not None else None
    return (pair[0], pair[1]) if pair else None


def complaint(function: Any, name: str) -> str:
    """What autograd says when a saved value is asked for; empty if it has no objection.

    Not asked where a hook packed it: that would run the program's code.
    """
    custom = is_custom(function) and name == "tensors"
    try:
        if unpack_hooks(function, name):
            return ""
        getattr(function, "saved_tensors" if custom else f"_saved_{name}")
    except RuntimeError as error:
        return str(error)
    except AttributeError:
        pass
    return ""


def base_of_view(tensor: Any) -> Any:
    """The tensor that a view looks into, or None."""
    return getattr(tensor, "_base", None)


# Python-level torch functions re-enter themselves through this function when a mode is on,
# so the caller's frame lies two frames further out than for functions implemented in C++.
_handler = getattr(torch.overrides, "handle_torch_function", None)
REENTRY_CODE: CodeType | None = _handler.__code__ if isinstance(_handler, FunctionType) else None

_CONTEXT_FILE = torch_contextlib.__file__

# Where a re-entrant checkpoint runs the program's function with gradients off.
_forward = getattr(getattr(torch_checkpoint, "CheckpointFunction", None), "forward", None)
CHECKPOINT_CODE: CodeType | None = getattr(_forward, "__code__", None)
# What holds the function that a checkpoint of the other kind runs again in backward.
CHECKPOINT_FRAME: Any = getattr(torch_checkpoint, "_CheckpointFrame", None)
_ENTERS_HOOKS = getattr(torch.autograd.graph.saved_tensors_hooks.__enter__, "__code__", None)


def enters_saved_hooks(frame: FrameType) -> bool:
    """Whether a frame of torch's is about to put saved-tensor hooks in force."""
    return frame.f_code is _ENTERS_HOOKS


def is_decoration(frame: FrameType) -> bool:
    """Whether `frame` is torch's wrapper around something decorated: `torch.no_grad()(f)`."""
    code = frame.f_code
    return code.co_filename == _CONTEXT_FILE and "func" in code.co_freevars


def decorated_function(frame: FrameType) -> CodeType | None:
    """The user's function, if `frame` is torch's wrapper around a decorated function."""
    if not is_decoration(frame):
        return None
    code = frame.f_code
    # Reading f_locals makes a snapshot that would hold the arguments for the frame's lifetime,
    # hence the clear; the wrapper's own variables are not touched by it.
    snapshot = frame.f_locals
    function = snapshot.get("func")
    if code.co_flags & 0x1 and type(snapshot) is dict:
        snapshot.clear()
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    found = getattr(function, "__code__", None)
    return found if isinstance(found, CodeType) else None


def force_eager() -> Any:
    """Let compiled regions run eagerly, where each call can be seen.

    Returns torch's context manager, whose exit undoes it, or None if torch cannot.
    """
    stance = getattr(torch.compiler, "set_stance", None)
    return None if stance is None else stance("force_eager")


def compiler_frames() -> Any:
    """The module in which compiled functions tell where their regions begin and end, or None."""
    try:
        module = importlib.import_module("torch._dynamo.eval_frame")
    except ImportError:
        return None
    return module if callable(getattr(module, "set_eval_frame", None)) else None


def never_compile(function: Any) -> None:
    """Keep torch's compiler from looking at a function that is called while it is on."""
    skip = getattr(compiler_frames(), "skip_code", None)
    if skip is not None:
        skip(function.__code__)


def is_uncompiled(frame: FrameType) -> bool:
    """Whether `frame` is torch's wrapper around a function that must not be compiled."""
    return frame.f_code.co_qualname.startswith("DisableContext.")


def compiled_call(frame: FrameType) -> tuple[Any, Any, Any]:
    """The function, the arguments and the result (None if there is none) of a compiled call."""
    snapshot = frame.f_locals
    names = ("fn", "args", "kwargs", "result")
    function, args, kwargs, result = (snapshot.get(name) for name in names)
    if type(snapshot) is dict:
        snapshot.clear()
    return function, (args, kwargs), result


def _is_filled(cell: CellType) -> bool:
    try:
        return bool(cell.cell_contents is not None)
    except ValueError:
        return False


def reached_by(function: Any) -> list[Any]:
    """What a function can get at besides its arguments: its own object, closure and globals."""
    owner = getattr(function, "__self__", None)
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return [owner]
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    named = [function.__globals__.get(name) for name in code.co_names]
    return [owner, *cells, *named]


def is_compiled(function: Any) -> bool:
    """Whether an autograd node is the backward of a compiled region."""
    forward = getattr(type(function), "_forward_cls", None)
    return str(getattr(forward, "__module__", "")).startswith("torch._functorch")


def searches_in_vain(replica: Any) -> bool:
    """Whether DistributedDataParallel looks for unused parameters and has found none."""
    if not getattr(replica, "find_unused_parameters", False) or replica.static_graph:
        return False
    facts: dict[str, Any] = getattr(replica, "_get_ddp_logging_data", dict)()
    return bool(facts.get("unused_parameter_size") == 0)


def suspend_hook(handle: Any) -> None:
    """Take a hook out of torch's table for a while; its place is kept by its number."""
    table = _hook_table(handle)
    hook = None if table is None else table.pop(handle.id, None)
    if hook is not None:
        handle.suspended = hook


def resume_hook(handle: Any) -> None:
    """Put a hook back, before those that were registered after it."""
    table, hook = _hook_table(handle), vars(handle).pop("suspended", None)
    if table is None or hook is None:
        return
    later = {number: table.pop(number) for number in sorted(table) if number > handle.id}
    table[handle.id] = hook
    table.update(later)


def _hook_table(handle: Any) -> Any:
    reference = getattr(handle, "hooks_dict_ref", None)
    return None if reference is None else reference()


def _has_step_hooks() -> bool:
    module = importlib.import_module("torch.optim.optimizer")
    return hasattr(module, "register_optimizer_step_pre_hook")


def _tells_of_hooks() -> bool:
    module = getattr(torch._C, "_autograd", None)
    return hasattr(getattr(module, "SavedTensor", None), "unpack_hook")


def capabilities() -> list[tuple[str, bool, str]]:
    """What can be watched on this torch: (what, available, what is lost without it)."""
    return [
        ("torch calls", hasattr(torch.overrides, "TorchFunctionMode"), "nothing can be recorded"),
        (
            "autograd node numbers",
            sequence_number is not _no_sequence_number,
            "custom Functions and scripted code are not tied to the lines around them",
        ),
        (
            "mode switched off in optimizer.step",
            _push is not None and _pop is not None and _top is not None,
            "optimizer steps run slower while watched",
        ),
        ("optimizer steps", _has_step_hooks(), "silent failures are not found"),
        (
            "values saved for backward",
            _tells_of_hooks(),
            "in-place writes and freed graphs are not explained",
        ),
        (
            "decorated functions (@torch.no_grad())",
            REENTRY_CODE is not None,
            "the call is named instead of the decorator",
        ),
        (
            "torch.compile regions, run eagerly (--eager)",
            hasattr(torch.compiler, "set_stance"),
            "calls inside compiled regions are not seen",
        ),
    ]
