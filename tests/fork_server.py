"""Runs programs in forked children of a process that has imported torch already.

Importing torch takes longer than most test programs run. This process does it once; each
request (one line of JSON on stdin) then costs a fork. The child redirects its streams to files,
runs the program, bare or under `whygrad run`, and ends with the exit code that it would have had.
"""

import json
import os
import runpy
import sys
import traceback
from typing import Any

import torch._dynamo  # noqa: F401  (the first optimizer imports it)

import whygrad.watching  # noqa: F401
from whygrad.__main__ import main as whygrad_main


def run_bare(program: str) -> None:
    sys.argv = [program]
    sys.path[0] = os.getcwd()
    runpy.run_path(os.path.abspath(program), run_name="__main__")


def exit_code_of(request: dict[str, Any]) -> int:
    try:
        if request["watched"]:
            sys.exit(whygrad_main(["run", *request["options"], request["program"]]))
        run_bare(request["program"])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def run_in_child(request: dict[str, Any]) -> None:
    os.chdir(request["directory"])
    for number, name in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(name, flags, 0o600), number)
    code = 1
    try:
        code = exit_code_of(request)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)


def serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run_in_child(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
