"""Five steps in a plain loop."""

import sys

import torch

from tiny_models import MODELS

torch.manual_seed(0)
tiny = MODELS[sys.argv[1]]
model = tiny.make()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=5)

for _ in range(5):
    loss = model(**tiny.batch()).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    print(loss.item())

model.eval()
with torch.no_grad():
    print(model(**tiny.batch()).loss.item())
