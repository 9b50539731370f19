"""Only a prompt of four vectors is trained; between the steps the model writes some text."""

import sys

import torch
from torch import nn

from tiny_models import MODELS, VOCABULARY

torch.manual_seed(0)
tiny = MODELS[sys.argv[1]]
model = tiny.make()
model.resize_token_embeddings(VOCABULARY + 4, mean_resizing=False)
model.requires_grad_(False)
embed = model.get_input_embeddings()
prompt = nn.Parameter(embed.weight[:4].detach().clone())
optimizer = torch.optim.Adam([prompt], lr=1e-2)

for _ in range(5):
    batch = tiny.batch()
    model.train()
    embedded = torch.cat([prompt.expand(2, -1, -1), embed(batch["input_ids"])], dim=1)
    nothing = torch.full((2, 4), -100)
    labels = torch.cat([nothing, batch["labels"]], dim=1)
    loss = model(inputs_embeds=embedded, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    written = model.generate(batch["input_ids"], max_new_tokens=3, do_sample=True, pad_token_id=0)
    print(loss.item(), written.sum().item())
