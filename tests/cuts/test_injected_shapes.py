"""Programs and an installed library: whose line is named, and how."""

from __future__ import annotations

from pathlib import Path

from program_runs import ForkServer

LIBRARY = """
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        torch.set_grad_enabled(False)
        x = self.layer(x)
        torch.set_grad_enabled(True)
        return x


def smooth(x):
    return x.detach() * 0.5


class Engine:
    def backward(self, value):
        value.backward()
"""

PROGRAM = """
import sys

sys.path.insert(0, "site-packages")
import torch
from library import Encoder, smooth
from torch import nn

encoder, head = ENCODER, nn.Linear(4, 4)
opt = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    h = encoder(torch.randn(3, 4))
    loss = head(h).sum() if USE is None else head(USE(h)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def _found(programs: ForkServer, folder: Path, encoder: str, use: str) -> tuple[str, str, str]:
    (folder / "site-packages").mkdir()
    (folder / "site-packages" / "library.py").write_text(LIBRARY)
    file = folder / "program.py"
    file.write_text(PROGRAM.replace("ENCODER", encoder).replace("USE", use))
    first = programs.run(file, watched=True).judged[0]
    return first["code"], Path(first["location"]["file"]).name, first["location"]["text"]


def test_a_library_that_cuts_off_its_own_parameters(programs: ForkServer, tmp_path: Path) -> None:
    found = _found(programs, tmp_path, "Encoder()", "None")
    assert found == ("no-grad-block", "library.py", "torch.set_grad_enabled(False)")


def test_a_library_that_is_handed_a_value(programs: ForkServer, tmp_path: Path) -> None:
    code, file, text = _found(programs, tmp_path, "nn.Linear(4, 4)", "smooth")
    assert (code, file) == ("detach-call", "program.py")
    assert "head(smooth(h))" in text


def test_the_loss_has_its_name_where_a_library_calls_backward(
    programs: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "library.py").write_text(LIBRARY)
    file = tmp_path / "program.py"
    file.write_text(
        """
import sys

sys.path.insert(0, "site-packages")
import torch
from library import Engine
from torch import nn

total = nn.Linear(4, 4)(torch.randn(3, 4)).sum().detach()
Engine().backward(total)
"""
    )
    first = programs.run(file, watched=True).judged[0]
    assert first["title"].startswith("`.detach()` cuts `total` off")
    assert first["location"]["line"] == 9
