"""Frames to sites: whose code a frame belongs to, and compact names for places and stacks."""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
from collections.abc import Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from whygrad.record.events import Site

# Whose code a file is. What is TORCH or beyond has no line that the user could change.
# Frames below RUNNER are those of who started whygrad, not of the program.
USER, LIBRARY, TORCH, MACHINERY, RUNNER = 0, 1, 2, 3, 4

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURSELVES = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_RUNNER = _OURSELVES + "commands" + os.sep
_STANDARD = tuple(
    sysconfig.get_paths()[name] + os.sep
    for name in ("stdlib", "platstdlib")
    if sysconfig.get_paths().get(name)
)
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
# Generated code (dataclasses, namedtuples, torch.fx) has no line that a person could change.
_GENERATED = ("<string>", "<frozen", "<attrs", "<eval_with_key>", "<__array_function__")

_NOTHING: Mapping[FrameType, int] = {}
_NO_CALLERS: Mapping[FrameType, FrameType] = {}
_MAX_SITES = 100_000
_MAX_RELAYS = 20_000
_MAX_STACK = 48
CODE_SHIFT = 1 << 20  # an instruction offset fits below; keys stay unique per code object


def classify_file(filename: str) -> int:
    """USER code, a third party's LIBRARY, TORCH, or MACHINERY (the standard library, ourselves)."""
    if filename.startswith(_GENERATED):
        return MACHINERY
    path = filename if filename.startswith("<") else os.path.abspath(filename)
    if path.startswith(_TORCH):
        return TORCH
    if path.startswith(_RUNNER):
        return RUNNER
    if path.startswith(_OURSELVES):
        return MACHINERY
    if any(part in path for part in _PACKAGES):
        return LIBRARY
    return MACHINERY if path.startswith(_STANDARD) else USER


# One line on purpose: every instruction of it then has the line number that it is given.
# fmt: off
def plain_relay(func: Any, args: Any, kwargs: Any) -> Any: return func(*args, **kwargs)
# fmt: on


def hide_callers(error: BaseException, count: int) -> None:
    """Take the outermost frames out of a traceback; a bare `raise` does not put its own back.

    They would be seen where the program prints it, and keep our arguments alive.
    """
    trace = error.__traceback__
    for _ in range(count):
        trace = trace.tb_next if trace is not None else None
    error.__traceback__ = trace


def _is_guarded(frame: FrameType) -> bool:
    """Whether a frame's own code sees to exceptions at the place where it is."""
    if not frame.f_code.co_exceptiontable:
        return False
    entries: Any = getattr(dis.Bytecode(frame.f_code), "exception_entries", ())
    return any(entry.start <= frame.f_lasti < entry.end for entry in entries)


class Frames:
    """Interns places and stacks; makes the relays through which watched calls are made."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.sites: list[Site] = []
        self.stacks: list[tuple[int, ...]] = [()]
        self.first_stacks: dict[int, int] = {}  # site -> the stack when it was first seen
        self.relays: dict[int, Any] = {}
        self._site_numbers: dict[int, int] = {}
        self._stack_numbers: dict[tuple[int, ...], int] = {(): 0}
        self._relay_codes: dict[int, CodeType] = {}
        self._relayed: dict[int, Site] = {}  # id of a relay's code -> the place that calls it
        self._codes: dict[int, CodeType] = {}  # of the callers: an id stays its own while held

    def kind(self, frame: FrameType) -> int:
        return self.file_kind(frame.f_code.co_filename)

    def file_kind(self, filename: str) -> int:
        known = self.kinds.get(filename)
        if known is None:
            if len(self.kinds) > _MAX_RELAYS:  # programs that generate code as they go
                self.kinds.clear()
            known = self.kinds[filename] = classify_file(filename)
        return known

    def site(self, frame: FrameType | None) -> int:
        """The number of the nearest place outside torch, or -1."""
        kinds = self.kinds
        while frame is not None:
            kind = kinds.get(frame.f_code.co_filename)
            if kind is None:
                kind = self.kind(frame)
            if kind < TORCH:
                return self.intern(frame)
            frame = frame.f_back
        return -1

    def intern(self, frame: FrameType, lasti: int | None = None) -> int:
        code, lasti = frame.f_code, frame.f_lasti if lasti is None else lasti
        key = id(code) * CODE_SHIFT + lasti
        number = self._site_numbers.get(key)
        if number is None:
            home = self._relayed.get(id(code))
            if home is not None:  # torch's code, called through a relay: the line is its caller's
                return self._home(home, frame)
            if len(self.sites) >= _MAX_SITES:
                return -1
            number = self._site_numbers[key] = len(self.sites)
            self.sites.append(Site(code, lasti))
            self.first_stacks[number] = self.stack(frame)
        return number

    def _home(self, home: Site, frame: FrameType) -> int:
        """The site that a relay stands in for."""
        key = id(home.code) * CODE_SHIFT + home.lasti
        number = self._site_numbers.get(key)
        if number is None and len(self.sites) < _MAX_SITES:
            number = self._site_numbers[key] = len(self.sites)
            self.sites.append(home)
            self.first_stacks[number] = self.stack(frame)
        return -1 if number is None else number

    def stack(
        self,
        frame: FrameType | None,
        raised: Mapping[FrameType, int] = _NOTHING,
        callers: Mapping[FrameType, FrameType] = _NO_CALLERS,
    ) -> int:
        """The number of the stack of places outside torch, innermost first.

        `raised` tells where frames were when an exception passed: since then they may have gone
        on, to a `finally` or the end of a `with`. `callers` knows who called a generator that
        has ended: its frame does not.
        """
        kinds = self.kinds
        places: list[int] = []
        while frame is not None and len(places) < _MAX_STACK:
            kind = kinds.get(frame.f_code.co_filename)
            if kind is None:
                kind = self.kind(frame)
            if kind < TORCH and id(frame.f_code) not in self._relayed:
                places.append(self.intern(frame, raised.get(frame)))
            elif kind == RUNNER:
                break
            frame = frame.f_back or callers.get(frame)
        key = tuple(places)
        number = self._stack_numbers.get(key)
        if number is None:
            if len(self.stacks) >= _MAX_SITES:
                return 0
            number = self._stack_numbers[key] = len(self.stacks)
            self.stacks.append(key)
        return number

    def may_get_out(self, frame: FrameType | None) -> bool:
        """Whether an exception gets as far as the program's own code, and it is the user's.

        Torch's code, Python's own and that of libraries may catch what they have raised.
        """
        while frame is not None:
            kind = self.kind(frame)
            if kind < TORCH:
                return kind == USER
            if not frame.f_code.co_filename.startswith(_OURSELVES) and _is_guarded(frame):
                return False
            frame = frame.f_back
        return False

    def line(self, stack: int) -> tuple[str, int]:
        """The file and line of a stack's innermost place."""
        sites = self.stacks[stack]
        if not sites:
            return "", 0
        code, lasti = self.sites[sites[0]]
        lines = (last for first, end, last in code.co_lines() if first <= lasti < end)
        return code.co_filename, next(lines, None) or 0

    def relay(self, frame: FrameType) -> Any:
        """A function that makes a call as if `frame` itself made it.

        Torch attributes a warning to the innermost Python frame. Calling through a function
        with the caller's file, line, name and globals leaves warnings (and the registry that
        shows each of them once) exactly where they would be without us.
        """
        key = id(frame.f_code) * CODE_SHIFT + frame.f_lasti
        code = self._relay_codes.get(key)
        if code is None:
            code = self._relay_code(key, frame)
        namespace = frame.f_globals
        relay = FunctionType(code, namespace)
        name = namespace.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        # Holding on to a module's globals is harmless; those of an exec() may hold tensors.
        if getattr(module, "__dict__", None) is namespace:
            self.relays[key] = relay
        return relay

    def _relay_code(self, key: int, frame: FrameType) -> CodeType:
        caller = frame.f_code
        if len(self._relay_codes) > _MAX_RELAYS:  # programs that generate code as they go
            self.relays.clear()
            self._relay_codes.clear()
            self._relayed.clear()
            self._codes.clear()
        self._codes[id(caller)] = caller
        code = self._relay_codes[key] = plain_relay.__code__.replace(
            co_filename=caller.co_filename,
            co_name=caller.co_name,
            co_qualname=caller.co_qualname,
            co_firstlineno=frame.f_lineno or caller.co_firstlineno,
        )
        self._relayed[id(code)] = Site(caller, frame.f_lasti)
        return code
