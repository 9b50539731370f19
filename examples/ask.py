"""Watch a few lines of code, and ask about a tensor or a module among them."""

import torch
from torch import nn

import whygrad

torch.manual_seed(0)
model = nn.ModuleDict({"encoder": nn.Linear(4, 8), "head": nn.Linear(8, 1)})

with whygrad.watch(quiet=True) as watch:
    features = model["encoder"](torch.randn(16, 4))
    features = features.detach()
    loss = model["head"](features).square().mean()
    loss.backward()
    print(whygrad.why(loss))
    print(whygrad.why(model))

print([(finding.code, finding.location.line) for finding in watch.findings])
