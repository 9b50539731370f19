from __future__ import annotations

import torch

# Tiny tensors gain nothing from threads, and forked workers dislike them.
torch.set_num_threads(1)
