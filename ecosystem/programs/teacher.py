"""A student learns from a teacher that follows it slowly and never sees a gradient itself."""

import copy
import sys

import torch
from torch import nn

from tiny_models import MODELS

torch.manual_seed(0)
tiny = MODELS[sys.argv[1]]
student = tiny.make()
student.train()
teacher = copy.deepcopy(student).eval().requires_grad_(False)
plain = [p for p in student.parameters() if p.ndim < 2]
decayed = [p for p in student.parameters() if p.ndim >= 2]
optimizer = torch.optim.AdamW(
    [{"params": plain, "weight_decay": 0.0}, {"params": decayed, "weight_decay": 0.1}], lr=1e-3
)

for _ in range(5):
    batch = tiny.batch()
    with torch.no_grad():
        target = teacher(**batch).logits.softmax(dim=-1)
    output = student(**batch)
    loss = output.loss + nn.functional.cross_entropy(
        output.logits.flatten(0, -2), target.flatten(0, -2)
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, quick in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.lerp_(quick, 0.1)
    print(loss.item())
