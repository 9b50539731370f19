"""Run programs one after the other in this process and print what became of each, as JSON.

Reads a JSON list of `{"path", "parameters", "strict"}`: `parameters` are expressions to look
up in the finished program, `strict` turns warnings into errors. One process for all of them,
since importing torch takes longer than running any.
"""

import contextlib
import io
import json
import runpy
import sys
import warnings

import torch
import torch.distributed


def gradient_of(expression: str, variables: dict) -> str:
    gradient = eval(expression, variables).grad
    if gradient is None:
        return "none"
    if gradient.isnan().any():
        return "nan"
    return "nonzero" if gradient.count_nonzero() else "zero"


def outcome(path: str, parameters: list[str], strict: bool) -> dict:
    raised, variables, printed = None, {}, io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("error" if strict else "always")
        try:
            variables = runpy.run_path(path, run_name="__main__")
        except Exception as error:
            raised, parameters = f"{type(error).__name__}: {error}", []
        finally:
            torch.set_grad_enabled(True)
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
    return {
        "raised": raised,
        "warned": [f"{warning.category.__name__}: {warning.message}" for warning in caught],
        "printed": printed.getvalue().splitlines(),
        "gradients": {name: gradient_of(name, variables) for name in parameters},
    }


if __name__ == "__main__":
    # Some of torch's warnings come once per process; here each program counts as the first.
    torch.set_warn_always(True)
    results = [outcome(**request) for request in json.load(sys.stdin)]
    print(json.dumps(results))
