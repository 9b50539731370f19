"""The program's hooks on gradients: whose they are, where they come from, if they are still there.

Hooks on nodes of autograd's graph (`grad_fn.register_hook`) cannot be seen: their class is C++'s.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.utils import hooks as torch_hooks

from whygrad.record import census, trees
from whygrad.record.accounts import Trace
from whygrad.record.events import HookUse
from whygrad.record.patches import After, Patches, stand_in
from whygrad.record.recorder import Recorder

_OF_MODULES = (
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
)
_OF_ALL_MODULES = (
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_backward_hook",
)
# What torch calls a hook of the program's in the code that runs it.
_RUNNING = ("user_pre_hook", "user_hook", "hook")
_FILES = (torch_hooks.__file__, torch_module.__file__)
_MAX_HOOKS = 4096
_MAX_TOLD = 64
_MAX_OF_A_LINE = 16


@dataclass(slots=True)
class _Registered:
    """A hook as it was registered. Its owner and its function may die."""

    kind: str
    code: CodeType | None
    name: str
    stack: int
    hooks: Any  # weakly, the table of its owner's hooks
    module: Any = None  # weakly
    node: int | None = None
    born: int = 0  # the optimizers' step
    gone: int | None = None


class Hooks:
    """Remembers registrations; asks nothing of a step."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._known: dict[int, _Registered] = {}  # torch numbers all handles
        self._left: dict[tuple[int, Any], HookUse] = {}  # line and owner -> what stayed there
        self._lines: dict[tuple[int, Any], list[int]] = {}  # the latest hooks of each
        self.held: Callable[[], Iterable[int]] = tuple  # nodes that optimizers hold

    def install(self, patches: Patches) -> None:
        recorder = self.recorder
        recorder.when_hooked = self._on_tensor
        for name in _OF_MODULES:
            original = getattr(torch.nn.Module, name)
            after = self._on_module(name)
            patches.set(torch.nn.Module, name, stand_in(recorder, original, after=after))
        for name in _OF_ALL_MODULES:
            original = getattr(torch_module, name, None)
            if original is not None:
                after = self._on_module(name)
                patches.set_function(torch_module, name, stand_in(recorder, original, after=after))
        handle = torch_hooks.RemovableHandle
        patches.set(handle, "remove", stand_in(recorder, handle.remove, before=self._removed))

    def _on_tensor(self, op: str, args: Any, kwargs: Any, handle: Any, frame: FrameType) -> None:
        hook = args[1] if len(args) > 1 else (kwargs or {}).get("hook")
        known = self._note(op, hook, handle, frame)
        if known is not None:
            node = self.recorder.node_of(args[0])
            known.node = self.recorder.source(args[0], frame) if node is None else node
            if args[0].is_leaf:
                self._look_for_earlier(handle.id, known)

    def _on_module(self, name: str) -> After:
        of_one = name in _OF_MODULES

        def registered(args: tuple[Any, ...], kwargs: Any, handle: Any, frame: FrameType) -> None:
            hook = args[of_one] if len(args) > of_one else kwargs.get("hook")
            known = self._note(name, hook, handle, frame)
            if known is not None and of_one:
                known.module = weakref.ref(args[0])
                self._look_for_earlier(handle.id, known)

        return registered

    def _note(self, kind: str, hook: Any, handle: Any, frame: FrameType) -> _Registered | None:
        if not isinstance(handle, torch_hooks.RemovableHandle):
            return None
        while len(self._known) >= _MAX_HOOKS:
            del self._known[next(iter(self._known))]
        code, recorder = code_of(hook), self.recorder
        known = self._known[handle.id] = _Registered(
            kind=kind,
            code=code,
            name=_name(hook),
            stack=recorder.frames.stack(frame),
            hooks=handle.hooks_dict_ref,
            born=recorder.step,
        )
        return known

    def _removed(self, args: tuple[Any, ...]) -> None:
        known = self._known.get(args[0].id)
        if known is not None and known.gone is None:
            known.gone = self.recorder.step

    # --- telling ------------------------------------------------------------------------------

    def told(self, frames: Iterable[FrameType]) -> list[HookUse]:
        """The hooks that are there; first the one that torch was running, if these frames tell."""
        if not self._known and not frames:
            return []
        module, code = self._at_work(frames)
        found: list[tuple[bool, _Registered]] = []
        for number, known in reversed(self._known.items()):
            if self._is_gone(number, known):
                continue
            mine = module is not None and known.module is not None and known.module() is module
            found.append((mine and (code is None or known.code is code), known))
        found.sort(key=lambda row: not row[0])
        names = self._module_names() if any(k.module is not None for _, k in found) else {}
        uses = [self._use(known, names, at_work) for at_work, known in found[:_MAX_TOLD]]
        if module is not None and not any(use.at_work for use in uses) and code is not None:
            uses.insert(0, _unregistered(code, names.get(id(module), "")))
        return uses

    def _at_work(self, frames: Iterable[FrameType]) -> tuple[Any, CodeType | None]:
        """The module whose hook torch was dealing with, and the hook's code, from the frames."""
        module, code = None, None
        for frame in frames:
            if frame.f_code.co_filename not in _FILES:
                continue
            values = frame.f_locals
            owner = values.get("self")
            owner = getattr(owner, "module", None) if _is_torch_hook(owner) else owner
            if isinstance(owner, torch.nn.Module):
                asked = frame.f_code.co_name.startswith("register")  # not run yet
                running = [] if asked else [values[name] for name in _RUNNING if name in values]
                module = owner
                code = next(filter(None, map(code_of, running)), None)
        return module, code

    def met_by(self, traces: Iterable[Trace]) -> list[HookUse]:
        """Hooks on the tensors of some passes, and those that modules have."""
        met = {n for trace in traces for node in trace.nodes for n in (node.event, node.leaf)}
        found = [
            known
            for number, known in self._known.items()
            if (known.gone is None and known.node in met)
            or (known.module is not None and not self._is_gone(number, known))
        ]
        names = self._module_names() if any(k.module is not None for k in found) else {}
        return [self._use(known, names, at_work=False) for known in found[-_MAX_TOLD:]]

    def left_behind(self) -> list[HookUse]:
        """Hooks that live on where every other one of the same line and owner was soon removed."""
        for numbers in self._lines.values():
            self._note_survivors(self._survivors(numbers))
        return list(self._left.values())[:_MAX_TOLD]

    def _owner_and_line(self, known: _Registered) -> tuple[int, Any] | None:
        owner = known.module() if known.module is not None else known.node
        sites = self.recorder.frames.stacks[known.stack]
        if owner is None or not sites:
            return None
        return sites[0], owner if isinstance(owner, int) else ("module", id(owner))

    def _look_for_earlier(self, number: int, latest: _Registered) -> None:
        """Has the line that registers a hook left another one behind before?

        By the end of the program, its owner may be gone.
        """
        key = self._owner_and_line(latest)
        if key is None:
            return
        while len(self._lines) >= _MAX_HOOKS:
            del self._lines[next(iter(self._lines))]
        numbers = self._lines.setdefault(key, [])
        numbers.append(number)
        del numbers[:-_MAX_OF_A_LINE]
        if len(numbers) > 1 and len(self._left) < _MAX_TOLD:
            self._note_survivors(self._survivors(numbers))

    def _note_survivors(self, found: list[_Registered]) -> None:
        """Only what trains is of interest: an optimizer holds parameters of the same model."""
        new = [known for known in found if self._owner_and_line(known) not in self._left]
        if not new:
            return
        trained = set(self.held())
        names, trains = self._module_names(), self._modules_that_train(trained)
        for known in new:
            module = known.module() if known.module is not None else None
            key = self._owner_and_line(known)
            if key and (known.node in trained if module is None else id(module) in trains):
                self._left[key] = use = self._use(known, names, at_work=True)
                use.removed_at_times = True

    def _survivors(self, numbers: list[int]) -> list[_Registered]:
        group = [(number, self._known[number]) for number in numbers if number in self._known]
        removed = [known for _, known in group if known.gone is not None]
        # Hooks that are there for whole epochs are meant to be at work in training.
        if not removed or any(known.gone != known.born for known in removed):
            return []
        alive = [(n, k) for n, k in group if k.gone is None and not self._is_gone(n, k)]
        last = group[-1][0]
        return [
            known
            for number, known in alive
            if known.born < self.recorder.step and (number < last or len(removed) > 1)
        ]

    def _is_gone(self, number: int, known: _Registered) -> bool:
        table = known.hooks()
        return known.gone is not None or table is None or number not in table

    def _use(self, known: _Registered, names: dict[int, str], at_work: bool) -> HookUse:
        module = known.module() if known.module is not None else None
        return HookUse(
            kind=known.kind,
            name=known.name,
            file=_place(known.code)[0],
            line=_place(known.code)[1],
            stack=known.stack,
            column=_column(known.code),
            owner=names.get(id(module), type(module).__name__) if module is not None else "",
            node=known.node,
            removed=known.gone is not None,
            at_work=at_work,
            steps=(known.gone or self.recorder.step) - known.born,
        )

    def _module_names(self) -> dict[int, str]:
        """Dotted names of all modules, by their ids; the variable's name for an outermost one."""
        modules = census.living()[0]
        roots = trees.outermost(modules, trees.Hidden({}, {}))
        trees.name_owners(roots, modules)
        return {
            id(place.module): place.path or root.owner or place.types[-1]
            for root in roots
            for place in root.places
        }

    def _modules_that_train(self, held: set[int]) -> set[int]:
        """The ids of modules in whose outermost module an optimizer holds parameters."""
        node_of = self.recorder.node_of
        found: set[int] = set()
        for root in trees.outermost(census.living()[0], trees.Hidden({}, {})):
            parameters = (p for place in root.places for _, p in trees.own_parameters(place.module))
            if any(node_of(parameter) in held for parameter in parameters):
                found.update(id(place.module) for place in root.places)
        return found


def code_of(hook: Any) -> CodeType | None:
    """The program's own code behind a hook: of a function, a method, a partial or an object."""
    for _ in range(8):
        if isinstance(hook, functools.partial):
            hook = hook.func
        elif getattr(hook, "__wrapped__", None) is not None:
            hook = hook.__wrapped__
        else:
            break
    hook = getattr(hook, "__func__", hook)
    found = getattr(hook, "__code__", None)
    if found is None and not isinstance(hook, type) and callable(hook):
        found = getattr(type(hook).__call__, "__code__", None)
    return found if isinstance(found, CodeType) else None


def described(kind: str, hook: Any) -> HookUse:
    """A hook as plain data."""
    code = code_of(hook)
    return HookUse(kind, _name(hook), *_place(code), stack=0, column=_column(code))


def _place(code: CodeType | None) -> tuple[str, int]:
    return ("", 0) if code is None else (code.co_filename, code.co_firstlineno)


def _column(code: CodeType | None) -> int:
    """Where a function's first expression on its first line begins, counted from 1."""
    places = code.co_positions() if code is not None else ()
    first = code.co_firstlineno if code is not None else 0
    columns = [c for line, _, c, _ in places if line == first and c]
    return min(columns, default=-1) + 1


def _name(hook: Any) -> str:
    while isinstance(hook, functools.partial):
        hook = hook.func
    name = getattr(hook, "__name__", "")
    return name if isinstance(name, str) and name else type(hook).__name__


def _is_torch_hook(value: Any) -> bool:
    return isinstance(value, torch_hooks.BackwardHook)


def _unregistered(code: CodeType, owner: str) -> HookUse:
    """A hook that was registered before the watch began."""
    return HookUse(
        kind="",
        name=code.co_name,
        file=code.co_filename,
        line=code.co_firstlineno,
        stack=0,
        column=_column(code),
        owner=owner,
        at_work=True,
    )
