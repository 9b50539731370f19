"""Not healthy: the optimizer was made before the head was exchanged."""

import sys

import torch
from torch import nn

from tiny_models import MODELS

torch.manual_seed(0)
tiny = MODELS[sys.argv[1]]
model = tiny.make()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model.classifier = nn.Linear(model.config.hidden_size, 2)

for _ in range(5):
    loss = model(**tiny.batch()).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
