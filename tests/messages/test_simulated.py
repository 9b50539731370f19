"""Messages that need another device or several of them, said by a stand-in for torch's code."""

from __future__ import annotations

from pathlib import Path

import pytest
from trigger_cases import Simulated, simulated

from program_runs import ForkServer

# Compiled under a file name in torch's own folder, so that its frames count as torch's.
STAND_IN = """

def said(*values):
    speak()
    return values[0]

def later(x):
    result = x.sigmoid()
    result.grad_fn.register_prehook(lambda gradients: speak())
    return result
"""
SAID_IN = "torch.__path__[0] + '/said.py'"
ERROR = "def speak(): raise {exception}({text!r})"
WARNING = "import warnings\ndef speak(): warnings.warn({text!r}, {exception}, stacklevel=3)"

OPERATION = """
net = torch.nn.Linear(2, 2)

def encode(x):
    return torch.later(net(x))  # <-- here

loss = encode(torch.ones(1, 2)).pow(2).sum()
loss.backward()
"""
BACKWARD = """
net = torch.nn.Linear(2, 2)

def train(x):
    loss = torch.later(net(x)).sum()
    loss.backward()  # <-- here

train(torch.ones(1, 2))
"""
SECOND_DERIVATIVE = """
net = torch.nn.Linear(2, 2)
x = torch.ones(1, 2, requires_grad=True)
score = torch.later(net(x)).sum()
(slope,) = torch.autograd.grad(score, x, create_graph=True)  # <-- here
slope.sum().backward()
"""
CALL = """
net = torch.nn.Linear(2, 2)

def use(x):
    return torch.said(net(x))  # <-- here

use(torch.ones(1, 2))
"""
UNSCALING = """
net = torch.nn.Linear(2, 2).bfloat16()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")  # <-- here
scaler.scale(net(torch.ones(1, 2).bfloat16()).sum()).backward()
torch.said(scaler, optimizer)  # <-- here
"""
UNDER_NO_GRAD = """
net = torch.nn.Linear(2, 2)
with torch.no_grad():  # <-- here
    torch.said(net(torch.ones(1, 2)))
"""
PROGRAMS = {
    "cudnn-rnn-eval-backward": OPERATION,
    "flash-attention-backward": OPERATION,
    "cudnn-rnn-double-backward": SECOND_DERIVATIVE,
    "fork-after-cuda-backward": BACKWARD,
    "accumulate-grad-stream": BACKWARD,
    "cuda-graph-stale-stream": BACKWARD,
    "compile-tangent-metadata": BACKWARD,
    "amp-bf16-unscale-kernel": UNSCALING,
    "pipeline-step-no-grad": UNDER_NO_GRAD,
}


@pytest.mark.parametrize("message", simulated(), ids=lambda message: message.id)
def test_a_message_of_another_device_is_told_at_its_line(
    message: Simulated, programs: ForkServer, tmp_path: Path
) -> None:
    speak = WARNING if message.exception.endswith("Warning") else ERROR
    stand_in = speak.format(exception=message.exception, text=message.text) + STAND_IN
    first = f"import torch; exec(compile({stand_in!r}, {SAID_IN}, 'exec'), vars(torch))"
    text = first + PROGRAMS.get(message.id, CALL)
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    run = programs.run(program, watched=True)
    findings = run.report["findings"]
    assert findings, run.stderr
    told = findings[0]
    lines = [n for n, line in enumerate(text.splitlines(), 1) if line.endswith("# <-- here")]
    assert told["code"] in message.codes
    assert told["location"]["line"] in lines
    assert told["why"] and told["fix"]["title"]
    assert "{" not in told["title"] + told["fix"]["title"]
    assert not run.report["notes"]
