"""Run a program as `python script.py` and `python -m module` run it, down to its last words.

Nothing is put back afterwards (`__main__`, `sys.argv`, `sys.path`): the program's exit handlers
and threads still need what they had, as they do under python.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from whygrad.commands import UsageError
from whygrad.commands.programs import Program, file_program, is_missing_module, module_program
from whygrad.commands.tracebacks import clean_exception
from whygrad.session import ExceptionInfo

INTERRUPTED = 130  # what a shell reports for a process that SIGINT ended


class Watcher(Protocol):
    """Who is told about the program: the part of `whygrad.watching.Watch` that is needed here."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def saw_uncaught(self, error: BaseException) -> None: ...


@dataclass
class Outcome:
    """How the program ended. `faults` are our own errors, of which it noticed nothing."""

    exit_code: int = 0
    exception_info: ExceptionInfo | None = None
    interrupted: bool = False
    faults: list[str] = field(default_factory=list)


def run_program(
    target: str, is_module: bool, argv: list[str], watch: Watcher | None = None
) -> Outcome:
    """Run the script, directory, zip file or module `target` with the arguments `argv`.

    Raises UsageError if `target` is not a Python program.
    """
    program = module_program(target) if is_module else file_program(target)
    outcome = Outcome()
    watched = _Guarded(watch, outcome.faults)
    program.enter(argv)
    error = _run(program, watched)
    if error is not None and not isinstance(error, SystemExit):
        watched.saw_uncaught(error)
        outcome.exception_info = exception_info(error)
        outcome.interrupted = type(error) is KeyboardInterrupt
    watched.stop()
    if error is not None:
        if is_missing_module(error):
            raise UsageError(str(error.__context__))
        outcome.exit_code = _print_last_words(error)
    if outcome.interrupted:
        outcome.exit_code = INTERRUPTED
    program.leave()
    return outcome


def exception_info(error: BaseException) -> ExceptionInfo:
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    try:
        return ExceptionInfo(name, str(error))
    except Exception:  # the program's own __str__
        return ExceptionInfo(name, "")


def die_of_interrupt() -> NoReturn:
    """Have the interpreter wind up and end by SIGINT, as it does for a program without us.

    The traceback has been printed already, so the hook that is about to be called says nothing,
    and leaves what exit handlers may look at as it was.
    """
    hook = sys.excepthook
    last = {name: value for name, value in vars(sys).items() if name.startswith("last_")}

    def say_nothing(*_: object) -> None:
        sys.excepthook = hook
        vars(sys).update(last)

    sys.excepthook = say_nothing
    raise KeyboardInterrupt


class _Guarded:
    """Passes the news on to a watch, if there is one, and notes its faults."""

    def __init__(self, watch: Watcher | None, faults: list[str]) -> None:
        self._watch = watch
        self._faults = faults

    def start(self) -> None:
        self._tell("start")

    def stop(self) -> None:
        self._tell("stop")

    def saw_uncaught(self, error: BaseException) -> None:
        self._tell("saw_uncaught", error)

    def _tell(self, method: str, *args: object) -> None:
        if self._watch is None:
            return
        try:
            getattr(self._watch, method)(*args)
        except Exception as error:
            info = exception_info(error)
            self._faults.append(f"internal error in {method}: {info.type}: {info.message}")


def _run(program: Program, watched: _Guarded) -> BaseException | None:
    """Run to the end; the exception that ended it, with none in flight any more."""
    try:
        program.run(watched.start)
    except BaseException as error:
        return error
    finally:
        if program.is_script:
            # Python does this for scripts only, before it prints a traceback.
            for stream in (sys.stderr, sys.stdout):
                with contextlib.suppress(Exception):
                    stream.flush()
    return None


def _print_last_words(error: BaseException) -> int:
    """Say what python says about the exception that ended a program; its exit code."""
    if isinstance(error, SystemExit):
        return _exit_code(error)
    clean_exception(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    if not hasattr(sys, "excepthook"):
        _write("sys.excepthook is missing\n")
        _display(error)
        return 1
    hook_error = _call_hook(error)
    if isinstance(hook_error, SystemExit):
        return _exit_code(hook_error)
    if hook_error is not None:
        clean_exception(hook_error)
        _write("Error in sys.excepthook:\n")
        _display(hook_error)
        _write("\nOriginal exception was:\n")
        _display(error)
    return 1


def _call_hook(error: BaseException) -> BaseException | None:
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException as hook_error:
        return hook_error
    return None


def _exit_code(error: SystemExit) -> int:
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        if code.bit_length() > 63:
            code = -1  # so C reads what does not fit
        return code & 0xFF if os.name == "posix" else code
    with contextlib.suppress(Exception):
        _write(str(code))
    _write("\n")
    return 1


def _display(error: BaseException) -> None:
    with contextlib.suppress(Exception):
        sys.__excepthook__(type(error), error, error.__traceback__)


def _write(text: str) -> None:
    with contextlib.suppress(Exception):
        if sys.stderr is None:  # python then goes one level down
            os.write(2, text.encode(errors="backslashreplace"))
        else:
            sys.stderr.write(text)
