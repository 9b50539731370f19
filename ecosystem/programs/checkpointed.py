"""Activations are computed again in backward."""

import sys

import torch

from tiny_models import MODELS

torch.manual_seed(0)
tiny = MODELS[sys.argv[1]]
model = tiny.make()
model.train()
model.gradient_checkpointing_enable({"use_reentrant": sys.argv[2] == "reentrant"})
model.enable_input_require_grads()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for _ in range(5):
    loss = model(**tiny.batch()).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
