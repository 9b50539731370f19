"""Show the versions in use and what can be watched with them, for yourself or a bug report."""

from __future__ import annotations

import argparse
import platform
import re

from whygrad._version import __version__

HELP = "show versions and what can be watched with them"

OLDEST_TORCH = (2, 6)
NEWEST_TORCH = (2, 13)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There is nothing to choose."""


def run(args: argparse.Namespace) -> int:
    _print_row("whygrad", __version__)
    _print_row("python", f"{platform.python_version()} ({platform.python_implementation()})")
    _print_row("platform", platform.platform())
    for package in ("numpy", "rich"):
        _print_row(package, _installed(package))
    all_is_well = _print_torch() and _print_capabilities()
    print("\nIn a bug report, paste all of this between two lines of ```.", flush=True)
    return 0 if all_is_well else 1


def _print_torch() -> bool:
    try:
        import torch
    except Exception as error:  # a broken installation fails in many ways
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            _print_row("torch", "not installed: see https://pytorch.org/get-started/locally")
        else:
            _print_row("torch", f"cannot be imported: {type(error).__name__}: {error}")
        return False
    _print_row("torch", f"{torch.__version__} ({_standing(torch.__version__)})")
    return True


def _standing(version: str) -> str:
    """Where a version of torch lies in the range that whygrad is made for."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    supported = f"{_dotted(OLDEST_TORCH)} to {_dotted(NEWEST_TORCH)}"
    if numbers < OLDEST_TORCH:
        return f"older than what whygrad is made for, {supported}"
    if numbers > NEWEST_TORCH:
        return f"newer than what whygrad is made for, {supported}"
    return f"whygrad is made for {supported}"


def _print_capabilities() -> bool:
    print("\nwhat can be watched:")
    try:
        from whygrad.record.torch_api import capabilities

        for name, is_available, loss in capabilities():
            print(f"  yes  {name}" if is_available else f"  no   {name}: {loss}")
    except Exception as error:  # this is where one looks when nothing else works
        print(f"  cannot tell: {type(error).__name__}: {error}")
        return False
    return True


def _print_row(name: str, value: str) -> None:
    print(f"{name:<9} {value}")


def _installed(package: str) -> str:
    import importlib.metadata  # takes longer to import than all the rest of the command line

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
