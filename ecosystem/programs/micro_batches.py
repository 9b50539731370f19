"""Gradients of two micro batches add up, the second in lower precision, then comes the step."""

import sys

import torch

from tiny_models import MODELS

torch.manual_seed(0)
tiny = MODELS[sys.argv[1]]
model = tiny.make()
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

for _ in range(5):
    optimizer.zero_grad()
    for lower in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=lower):
            loss = model(**tiny.batch()).loss / 2
        loss.backward()
        print(loss.item())
    optimizer.step()
