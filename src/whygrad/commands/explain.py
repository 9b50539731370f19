"""Explain a cause: what happens, why, a failing and a fixed program, when it is deliberate."""

from __future__ import annotations

import argparse
import os
import sys

from whygrad import explain

HELP = "explain a cause code, with a failing and a fixed program; without one, list all codes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "code",
        nargs="?",
        metavar="CODE",
        help="the code in a report's headline, such as detach-call",
    )


def run(args: argparse.Namespace) -> int:
    try:
        if args.code is None:
            _print_codes()
        else:
            _print_page(explain.page(args.code))
        sys.stdout.flush()
    except explain.UnknownCode as error:
        print(_complaint(error), file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. What is still buffered must go somewhere,
        # or the interpreter complains about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _print_codes() -> None:
    pages = [explain.page(code) for code in explain.codes()]
    width = max(len(page.code) for page in pages)
    for page in pages:
        print(f"{page.code:<{width}}  {page.summary}")


def _print_page(page: explain.Page) -> None:
    if not sys.stdout.isatty() or not _is_unicode(sys.stdout.encoding):
        print(page.text, end="")
        return

    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(page.text))


def _is_unicode(encoding: str | None) -> bool:
    return (encoding or "").lower().replace("-", "").startswith("utf")


def _complaint(error: explain.UnknownCode) -> str:
    hint = "`whygrad explain` lists all codes"
    if error.matches:
        hint = f"did you mean {' or '.join(error.matches)}?"
    return f"whygrad: {error}; {hint}"
