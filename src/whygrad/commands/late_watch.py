"""Start watching when the program has imported torch, not before.

Importing torch for the program would not leave it as it was: torch reads the environment when
it is loaded (OMP_NUM_THREADS, for one), and scripts set it in their first lines.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from whygrad._version import __version__
from whygrad.session import ExceptionInfo, Finding, Program, Session, system_name
from whygrad.settings import Settings

if TYPE_CHECKING:
    from whygrad.watching import Watch


class LateWatch:
    """A `whygrad.watching.Watch` that comes into being with the program's own `import torch`."""

    def __init__(self, settings: Settings, on_finding: Callable[[Session, Finding], None]) -> None:
        self._settings = settings
        self._on_finding = on_finding
        self._watch: Watch | None = None
        self._finder = _TorchFinder(self._torch_is_there)
        self._process = os.getpid()
        self.faults: list[str] = []  # why less was watched than should have been

    def start(self) -> None:
        if "torch" in sys.modules:
            self._begin()
        else:
            sys.meta_path.insert(0, self._finder)

    def stop(self) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        if self._watch is not None:
            self._watch.stop()

    def saw_uncaught(self, error: BaseException) -> None:
        if self._watch is not None:
            self._watch.saw_uncaught(error)

    def session(
        self, *, argv: list[str], exit_code: int | None, exception: ExceptionInfo | None
    ) -> Session:
        """What was found; whatever goes wrong, there is a session."""
        if self._watch is not None:
            try:
                return self._watch.session(argv=argv, exit_code=exit_code, exception=exception)
            except Exception as error:
                self.faults.append(f"internal error, nothing was diagnosed: {_in_words(error)}")
        return Session(
            whygrad=__version__,
            torch=_installed_torch(),
            python=platform.python_version(),
            platform=system_name(),
            program=Program(argv, exit_code, exception),
            notes=[] if "torch" in sys.modules else ["the program never imported torch"],
        )

    def _torch_is_there(self) -> None:
        if os.getpid() != self._process:
            return  # a forked child: its parent reports
        if threading.current_thread() is not threading.main_thread():
            self.faults.append("torch was imported outside the main thread: nothing was watched")
            return
        try:
            self._begin()
        except Exception as error:
            self.faults.append(f"internal error, nothing was watched: {_in_words(error)}")

    def _begin(self) -> None:
        from whygrad.watching import Watch

        watch = Watch(self._settings, self._on_finding)
        try:
            watch.start()
        except BaseException:
            watch.stop()
            raise
        self._watch = watch


class _TorchFinder(MetaPathFinder):
    """Finds torch where it is, and calls back once it has been imported."""

    def __init__(self, imported: Callable[[], None]) -> None:
        self._imported = imported

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)  # the program may look again, elsewhere
        else:
            with contextlib.suppress(Exception):
                self._call_back_after(spec.loader)
        return spec

    def _call_back_after(self, loader: Any) -> None:
        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            try:
                loader.exec_module(module)
            except BaseException:
                sys.meta_path.insert(0, self)
                raise
            self._imported()

        # Python leaves its import machinery out of tracebacks. Passing for a part of it keeps
        # this frame out too, should the import fail.
        machinery = "<frozen importlib._bootstrap_external>"
        exec_module.__code__ = exec_module.__code__.replace(co_filename=machinery)
        loader.exec_module = exec_module


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _installed_torch() -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
