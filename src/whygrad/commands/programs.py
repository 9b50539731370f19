"""What python can run: a script, a directory or zip file with `__main__`, a module.

A `Program` is ready to run: whatever can be said against it has been said before it starts.
"""

from __future__ import annotations

import builtins
import io
import os
import pkgutil
import runpy
import sys
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER
from types import CodeType, ModuleType
from typing import Any

from whygrad.commands import UsageError


@dataclass
class Program:
    argv0: str
    path0: str
    run: Callable[[Callable[[], None]], None]  # calls its argument right before the first line
    is_script: bool = False
    is_container: bool = False  # a directory or a zip file

    def enter(self, argv: list[str]) -> None:
        """Set up what the program finds: `__main__`, `sys.argv` and `sys.path`."""
        sys.modules["__main__"] = _fresh_main()
        sys.argv = [self.argv0, *argv]
        if not sys.flags.safe_path:
            sys.path[0] = self.path0
        elif self.is_container:
            sys.path.insert(0, self.path0)

    def leave(self) -> None:
        """Take away what python takes away from a script that has ended."""
        if self.is_script:
            namespace = sys.modules["__main__"].__dict__
            namespace.pop("__file__", None)
            namespace.pop("__cached__", None)


def module_program(name: str) -> Program:
    """`python -m name`."""

    def run(start: Callable[[], None]) -> None:
        start()
        _run_module_as_main(name, True)

    return Program("-m", os.getcwd(), run)


def file_program(path: str) -> Program:
    """`python path`; raises UsageError if python could not even read it."""
    if path.endswith(".ipynb"):
        raise UsageError(
            f"{path} is a notebook: convert it (jupyter nbconvert --to script) or use whygrad in it"
        )
    if not os.path.exists(path):
        raise UsageError(f"no such file: {path}")
    importer: Any = pkgutil.get_importer(path)
    if importer is None:
        return _script(path)
    if importer.find_spec("__main__") is None:
        raise UsageError(f"no __main__ module in {path}")
    return _container(path)


def is_missing_module(error: BaseException | None) -> bool:
    """Whether `error` is runpy's way to say that there is nothing to run."""
    return isinstance(error, SystemExit) and isinstance(error.__context__, _RunpyError)


# These two names are what the interpreter itself goes by for `python -m`. Calling them gives
# the same lookup, the same warnings and the same frames in tracebacks.
_run_module_as_main: Callable[[str, bool], object] = runpy._run_module_as_main  # type: ignore[attr-defined]
_RunpyError: type[BaseException] = runpy._Error  # type: ignore[attr-defined]


def _fresh_main() -> ModuleType:
    main = ModuleType("__main__")
    if sys.version_info < (3, 14):
        main.__dict__["__annotations__"] = {}
    main.__dict__["__builtins__"] = builtins
    return main


def _container(path: str) -> Program:
    def run(start: Callable[[], None]) -> None:
        start()
        _run_module_as_main("__main__", False)

    return Program(path, os.path.join(os.getcwd(), path), run, is_container=True)


def _script(path: str) -> Program:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    full_path = os.path.join(os.getcwd(), path)
    loader: SourceFileLoader | SourcelessFileLoader
    if path.endswith(".pyc") or content.startswith(MAGIC_NUMBER):
        loader = SourcelessFileLoader("__main__", full_path)
        ready = _compiled_code(loader, path)
    else:
        loader = SourceFileLoader("__main__", full_path)
        ready = None
        _refuse_undecodable(path, content)

    def run(start: Callable[[], None]) -> None:
        namespace = sys.modules["__main__"].__dict__
        namespace.update(__file__=full_path, __cached__=None, __loader__=loader)
        code = ready or compile(content, full_path, "exec", dont_inherit=True)
        start()
        exec(code, namespace)

    return Program(path, os.path.dirname(os.path.realpath(path)), run, is_script=True)


def _compiled_code(loader: SourcelessFileLoader, path: str) -> CodeType | None:
    try:
        return loader.get_code("__main__")
    except (ImportError, EOFError, ValueError) as error:
        raise UsageError(f"{path} is not a Python program: {error}") from None


def _refuse_undecodable(path: str, content: bytes) -> None:
    try:
        if b"\0" in content:
            raise UnicodeError("it is a binary file")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        content.decode(encoding)
    except (SyntaxError, UnicodeError) as error:
        raise UsageError(f"{path} is not a Python program: {error}") from None
