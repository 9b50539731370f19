"""A body with a head of one's own, which leaves the body's pooler without use."""

import sys

import torch
from torch import nn
from transformers import AutoModel

from tiny_models import MODELS


class Scorer(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = nn.LazyLinear(2)

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(**inputs).last_hidden_state.mean(dim=1))


torch.manual_seed(0)
tiny, frozen = MODELS[sys.argv[1]], sys.argv[2] == "frozen"
model = Scorer(AutoModel.from_config(tiny.configuration()))
model.body.requires_grad_(not frozen)
inputs = {name: value for name, value in tiny.batch().items() if name != "labels"}
model(**inputs)  # makes the head's weights
trained = model.head if frozen else model
optimizer = torch.optim.Adam(trained.parameters(), lr=1e-3)

for _ in range(5):
    loss = nn.functional.cross_entropy(model(**inputs), torch.tensor([0, 1]))
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    print(loss.item())
