"""Low-rank adapters on frozen weights; each starts as nothing, for one of its factors is zero."""

import sys

import torch
from torch import nn

from tiny_models import MODELS


class LowRank(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.down.T @ self.up.T


torch.manual_seed(0)
tiny = MODELS[sys.argv[1]]
model = tiny.make()
model.train()
model.requires_grad_(False)
for module in list(model.modules()):
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear and name.startswith(("q", "v", "fc", "gate", "up", "wi")):
            setattr(module, name, LowRank(child))
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-2)

for _ in range(5):
    optimizer.zero_grad()
    loss = model(**tiny.batch()).loss
    loss.backward()
    optimizer.step()
    print(loss.item())
