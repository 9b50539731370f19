"""The command line: `whygrad` and `python -m whygrad`."""

from __future__ import annotations

import argparse
import os
import sys
from types import ModuleType

from whygrad._version import __version__
from whygrad.commands import UsageError, doctor, explain, report, run
from whygrad.commands.runner import die_of_interrupt
from whygrad.settings import SettingsError

COMMANDS: dict[str, ModuleType] = {
    "run": run,
    "report": report,
    "explain": explain,
    "doctor": doctor,
}

DESCRIPTION = "Why did my gradient fail, and which line do I change?"

EXAMPLES = """examples:
  whygrad run train.py --epochs 3      run the program, then say why its gradients failed
  whygrad run --strict -m pkg.train    the same for a module; exit 1 if anything is found
  whygrad explain detach-call          what the code in a report means
"""


def main(argv: list[str] | None = None) -> int:
    """Parse, run one command, return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    program: list[str] = []
    if arguments[:1] == ["run"]:
        own, program = run.split_program(arguments[1:])
        arguments = ["run", *own]
    parser = build_parser()
    args = parser.parse_args(arguments, argparse.Namespace(program=program))
    if args.command is None:
        parser.print_help()
        return 0
    try:
        code: int = COMMANDS[args.command].run(args)
        return code
    except (UsageError, SettingsError) as error:
        sys.stderr.write(f"whygrad: {error}\n")
        return 2
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. What is still buffered must go somewhere,
        # or the interpreter complains about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        die_of_interrupt()


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="whygrad",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"whygrad {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="command", title="commands")
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=command.HELP, description=command.__doc__, allow_abbrev=False
        )
        command.add_arguments(subparser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
