"""Accelerate decides when gradients are cleared and steps are made."""

import sys

import torch
from accelerate import Accelerator

from tiny_models import MODELS

torch.manual_seed(0)
tiny = MODELS[sys.argv[1]]
accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
model = tiny.make()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)

for _ in range(10):
    with accelerator.accumulate(model):
        loss = model(**tiny.batch()).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print(loss.item())
