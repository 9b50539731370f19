"""Run a program unchanged and report why its gradients failed.

Everything after the script or module belongs to the program. The report goes to stderr, the
exit code is the program's own.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path

from whygrad.commands import UsageError
from whygrad.commands.late_watch import LateWatch
from whygrad.commands.outputs import check_writable, write_file
from whygrad.commands.runner import run_program
from whygrad.commands.terminal import TerminalReport
from whygrad.session import Session
from whygrad.settings import FORMATS, Settings, load_settings

HELP = "run a program and report why its gradients failed"
USAGE = """whygrad run [options] script.py [arguments ...]
       whygrad run [options] -m module [arguments ...]"""

# Options that take a value: what follows one of them is not yet the program.
VALUED = (
    "--json",
    "--save",
    "--format",
    "--select",
    "--ignore",
    "--watch-step",
    "--max-operations",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    parser.add_argument("--json", metavar="FILE", help="also write the report as JSON")
    parser.add_argument(
        "--save", metavar="FILE", help="also save the session, for `whygrad report FILE`"
    )
    parser.add_argument("--format", choices=FORMATS, help="how to draw findings (default: full)")
    parser.add_argument(
        "--strict",
        action=argparse.BooleanOptionalAction,
        help="exit with 1 if there is an error or a warning and the program itself exits with 0",
    )
    parser.add_argument(
        "--select",
        metavar="CODE[,CODE]",
        type=_codes,
        action="extend",
        help="report these codes only; may be repeated",
    )
    parser.add_argument(
        "--ignore",
        metavar="CODE[,CODE]",
        type=_codes,
        action="extend",
        help="do not report these codes; may be repeated",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        default=None,
        help="no report on the terminal; files are still written",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", default=None, help="leave nothing out"
    )
    parser.add_argument(
        "--eager",
        action=argparse.BooleanOptionalAction,
        help="run torch.compile'd functions eagerly, to see inside them",
    )
    parser.add_argument(
        "--watch-step",
        metavar="N",
        type=_positive,
        action="append",
        help="follow the gradients of step N closely, as in the first steps; may be repeated",
    )
    parser.add_argument(
        "--max-operations",
        metavar="N",
        type=_positive,
        help=f"remember at most N operations (default: {Settings.max_operations})",
    )


def split_program(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own options, and the program with its arguments: `script ...` or `-m module ...`.

    argparse cannot do this: it takes the program's options for its own or objects to them.
    """
    index = 0
    while index < len(argv):
        argument = argv[index]
        if argument == "--":
            return argv[:index], argv[index + 1 :]
        if argument.startswith("-m") or not argument.startswith("-") or argument == "-":
            return argv[:index], argv[index:]
        index += 2 if argument in VALUED else 1
    return argv, []


def run(args: argparse.Namespace) -> int:
    target, is_module, arguments = _target(args.program)
    settings = _settings(args)
    terminal = TerminalReport(settings, sys.stderr)
    watch = LateWatch(settings, terminal.show_early)
    process = os.getpid()

    outcome = run_program(target, is_module, arguments, watch)
    exit_code = outcome.exit_code
    if os.getpid() == process:  # a child that the program forked has nothing to report
        session = watch.session(
            argv=args.program, exit_code=exit_code, exception=outcome.exception_info
        )
        faults = watch.faults + outcome.faults
        session.notes += faults
        for fault in [] if settings.quiet else faults:
            terminal.say(fault)
        exit_code = _report(session, settings, terminal, exit_code)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return exit_code


def _target(program: list[str]) -> tuple[str, bool, list[str]]:
    if not program:
        raise UsageError("which program? whygrad run script.py, or whygrad run -m module")
    first, *rest = program
    if first == "-":
        raise UsageError("cannot run a program from stdin: save it to a file")
    if not first.startswith("-m"):
        return first, False, rest
    if first != "-m":
        return first.removeprefix("-m"), True, rest
    if not rest:
        raise UsageError("which module? whygrad run -m module")
    return rest[0], True, rest[1:]


def _settings(args: argparse.Namespace) -> Settings:
    """What pyproject.toml says, overridden by the command line and checked."""
    settings = load_settings(Path.cwd())
    for name in (field.name for field in dataclasses.fields(settings)):
        if getattr(args, name) is not None:
            setattr(settings, name, getattr(args, name))
    _check_codes(settings.select + settings.ignore)
    # The program may change the directory.
    settings.json = _checked_output("--json", settings.json)
    settings.save = _checked_output("--save", settings.save)
    if settings.json is not None and settings.json == settings.save:
        raise UsageError("--json and --save name the same file")
    return settings


def _check_codes(codes: list[str]) -> None:
    if not codes:
        return
    from whygrad import explain

    known = explain.codes()
    for code in codes:
        if code not in known:
            raise UsageError(f"unknown code {code!r}; `whygrad explain` lists all codes")


def _checked_output(option: str, name: str | None) -> str | None:
    if name is None:
        return None
    if name == "-":
        raise UsageError(f"{option} needs a file name: stdout belongs to the program")
    path = Path(name).absolute()
    check_writable(path)
    return str(path)


def _report(session: Session, settings: Settings, terminal: TerminalReport, exit_code: int) -> int:
    """Draw and write the report; the exit code that whygrad ends with."""
    try:
        terminal.show_rest(session)
    except Exception as error:
        terminal.say(f"internal error while drawing: {type(error).__name__}: {error}")
    problems = _write_files(session, settings)
    for problem in problems:
        terminal.say(problem)
    if problems:
        return 2
    alarming = any(finding.severity in ("error", "warning") for finding in session.findings)
    return 1 if settings.strict and alarming and exit_code == 0 else exit_code


def _write_files(session: Session, settings: Settings) -> list[str]:
    def write_json(path: Path) -> None:
        from whygrad import report

        path.write_text(report.draw(session, "json"), encoding="utf-8")

    problems: list[str] = []
    for name, write in ((settings.json, write_json), (settings.save, session.save)):
        try:
            if name is not None:
                write_file(Path(name), write)
        except UsageError as error:
            problems.append(str(error))
    return problems


def _codes(text: str) -> list[str]:
    return [code.strip() for code in text.split(",") if code.strip()]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
