"""Draw a saved session again, without torch and without running the program.

`whygrad run --save FILE` saves one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from whygrad.commands import UsageError
from whygrad.commands.outputs import check_writable, write_file
from whygrad.session import Session
from whygrad.settings import FORMATS

HELP = "draw a saved session again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a session saved with `whygrad run --save`")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="write to this file instead of stdout, in the format of its name: .json or .txt",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="full", help="how to draw findings (default: full)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="leave nothing out")


def run(args: argparse.Namespace) -> int:
    from whygrad import report

    session = _load(args.file)
    if args.output is None:
        options = report.stream_options(sys.stdout)
        text = report.draw(session, args.format, verbose=args.verbose, **options)
        print(text, end="", flush=True)
        return 0
    output = Path(args.output)
    check_writable(output)
    try:
        write_file(output, lambda path: report.write(session, path))
    except ValueError as error:
        raise UsageError(str(error)) from None
    return 0


def _load(file: str) -> Session:
    try:
        return Session.load(file)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None
