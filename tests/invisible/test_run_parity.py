"""`whygrad run prog.py` against `python prog.py`: the program says and does the same."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from invisible_helpers import run_process

HEALTHY = {
    "warnings of every kind, once for each place": """
        import warnings
        import torch
        from torch import nn

        x = torch.ones(2, 1, requires_grad=True)
        for _ in range(2):
            print(float(x.sum()))
            nn.functional.mse_loss(x, torch.ones(2))  # whygrad: ignore[grad-shape-mismatch]
            nn.Softmax()(x)
            nn.functional.softmax(x)
            (x * 2).grad  # whygrad: ignore[non-leaf-grad]
            warnings.warn("the program's own")
        torch.ones(2, 3, 4).T
        exec("import torch; print(float(torch.ones(1, requires_grad=True) * 2))")
        warnings.simplefilter("error")
        try:
            nn.functional.l1_loss(x, torch.ones(3))
        except UserWarning as warning:
            print(type(warning), warning)
    """,
    "threads and worker processes": """
        import sys
        import threading
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset

        class Numbers(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                if index == 3:
                    print("item", index, torch.initial_seed() % 2, file=sys.stderr)
                return torch.full((1,), float(index)) * 2

        def work(number):
            weight = torch.ones(1, requires_grad=True)
            (weight * number).sum().backward()
            results[number] = weight.grad.item()
            if number == 2:
                torch.ones(2) @ torch.ones(3)

        if __name__ == "__main__":
            torch.manual_seed(0)
            model = nn.Linear(1, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for batch in DataLoader(Numbers(), batch_size=4, num_workers=2, shuffle=True):
                optimizer.zero_grad()
                loss = model(batch).square().mean()
                loss.backward()
                optimizer.step()
                print(batch.tolist(), loss.item())
            results = {}
            for number in range(4):
                thread = threading.Thread(target=work, args=(number,))
                thread.start()
                thread.join()
            print(results, torch.rand(2).tolist())
    """,
    "an exit in the middle": """
        import atexit, sys
        import torch

        def leave(gradient):
            sys.exit("enough")

        atexit.register(lambda: print("at exit", (torch.ones(2) * 2).tolist()))
        weight = torch.nn.Parameter(torch.ones(1))
        weight.register_hook(leave)
        with torch.enable_grad():
            (weight * 2).backward()
    """,
}

FAILING = {
    "a failing backward that nobody catches": """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(2, 2)

            def forward(self, x):
                return self.linear(x).detach()

        def train():
            loss = Net()(torch.ones(1, 2)).sum()
            print("loss", loss.requires_grad)
            try:
                raise KeyError("before")
            except KeyError:
                loss.backward()

        train()
    """,
    "a failing backward that is caught and talked about": """
        import logging
        import sys
        import traceback
        import torch

        weight = torch.nn.Parameter(torch.ones(2))
        for step in range(3):
            loss = torch.tensor((weight * 2).sum().item())
            try:
                loss.backward()
            except RuntimeError as error:
                print(type(error), error, error.args, error.__cause__, error.__context__)
                print(traceback.format_exception_only(error))
                last = traceback.extract_tb(error.__traceback__)[0]
                print(last.filename, last.lineno, last.line)
            try:
                weight.add_(1)
            except RuntimeError:
                traceback.print_exc(file=sys.stdout)
        logging.warning("over")
        sys.exit(3)
    """,
    "an operation that fails deep in a library": """
        import torch
        from torch import nn

        model = nn.Sequential(nn.Linear(2, 2), nn.MultiheadAttention(4, 2))
        frozen = model[0].weight.detach().sum()
        try:
            frozen.backward()
        except RuntimeError:
            pass
        nn.functional.cross_entropy(model[0](torch.ones(1, 2)), torch.tensor([1, 2]))
    """,
}


def _both(source: str, folder: Path) -> tuple[tuple[int, str, str], tuple[int, str, str]]:
    (folder / "prog.py").write_text(textwrap.dedent(source))
    bare = run_process(sys.executable, "prog.py", cwd=folder)
    return bare, run_process(sys.executable, "-m", "whygrad", "run", "prog.py", cwd=folder)


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_program_says_the_same(source: str, tmp_path: Path) -> None:
    bare, watched = _both(source, tmp_path)
    assert watched == bare
    assert bare[1]


def test_a_finding_in_between_does_not_have_warnings_shown_again(tmp_path: Path) -> None:
    """To ask for the platform's name starts a process, and that resets Python's memory of them."""
    source = """
        import warnings
        import torch
        from torch import nn

        model, spare = nn.Linear(2, 1), nn.Linear(2, 1)
        optimizer = torch.optim.SGD([*model.parameters(), *spare.parameters()], lr=0.1)
        for step in range(6):
            warnings.warn("the program's own")
            optimizer.zero_grad()
            model(torch.ones(4, 2)).square().mean().backward()
            optimizer.step()
    """
    (_, _, err), (_, _, watched_err) = _both(source, tmp_path)
    assert "parameter-unused" in watched_err
    assert err.count("the program's own") == 2  # the text, and the line that is quoted
    assert watched_err.count("UserWarning: the program's own") == 1


@pytest.mark.parametrize("source", FAILING.values(), ids=FAILING)
def test_the_report_follows_what_python_says(source: str, tmp_path: Path) -> None:
    (code, out, err), (watched_code, watched_out, watched_err) = _both(source, tmp_path)
    assert (watched_code, watched_out) == (code, out)
    assert watched_err.startswith(err)
    assert "error[" in watched_err[len(err) :]
    assert code != 0
