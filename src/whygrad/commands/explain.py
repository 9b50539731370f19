"""Explain a cause, or a message of torch's: what happens, why, and what to do."""

from __future__ import annotations

import argparse
import os
import stat
import sys

from whygrad import explain
from whygrad.catalogue import by_id
from whygrad.explain import pasted

HELP = "explain a cause code or a pasted error message; without one, list all codes"
_MAX_TEXT = 1_000_000  # characters; more is no message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "code",
        nargs="*",
        metavar="CODE or MESSAGE",
        help="the code in a report's headline, such as detach-call; or a message of torch's, in "
        'quotes: "RuntimeError: element 0 of tensors ...", alone or with its traceback; or - to '
        "read one from standard input",
    )


def run(args: argparse.Namespace) -> int:
    wanted = " ".join(args.code).strip()
    try:
        if wanted == "-" or (not wanted and _is_piped()):
            wanted = sys.stdin.read(_MAX_TEXT).strip()
        if not wanted:
            _print_codes()
        elif pasted.is_message(wanted) or (wanted not in explain.codes() and by_id(wanted)):
            return _print_message(wanted)
        else:
            _print(explain.page(wanted).text)
        sys.stdout.flush()
    except explain.UnknownCode as error:
        print(_complaint(error), file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. What is still buffered must go somewhere,
        # or the interpreter complains about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _is_piped() -> bool:
    """Whether something was sent to standard input: a pipe or a file, not just no terminal."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _print_message(text: str) -> int:
    found = pasted.read(text)
    if found.message is None:
        print("whygrad: this message is not in the catalogue", end="", file=sys.stderr)
        close = " or ".join(f'"{message.template}"' for message in found.similar)
        print(f"; did you mean {close}?" if close else "", file=sys.stderr)
        return 2
    summaries = {code: explain.page(code).summary for code in explain.codes()}
    _print(pasted.answer(found, summaries))
    sys.stdout.flush()
    return 0


def _print_codes() -> None:
    pages = [explain.page(code) for code in explain.codes()]
    width = max(len(page.code) for page in pages)
    for page in pages:
        print(f"{page.code:<{width}}  {page.summary}")


def _print(text: str) -> None:
    if not sys.stdout.isatty() or not _is_unicode(sys.stdout.encoding):
        print(text, end="")
        return

    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _is_unicode(encoding: str | None) -> bool:
    return (encoding or "").lower().replace("-", "").startswith("utf")


def _complaint(error: explain.UnknownCode) -> str:
    hint = "`whygrad explain` lists all codes"
    if error.matches:
        hint = f"did you mean {' or '.join(error.matches)}?"
    return f"whygrad: {error}; {hint}"
