"""What the healthy programs share: small data and the proof that training happened."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def regression(rows: int = 16, features: int = 6) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, features)
    return x, x.sum(dim=1, keepdim=True)


class Moved:
    """Remembers parameters, and later tells whether each of them has changed."""

    def __init__(self, parameters: nn.Module | Iterable[Tensor]) -> None:
        if isinstance(parameters, nn.Module):
            parameters = parameters.parameters()
        self.parameters = list(parameters)
        self.before = [parameter.detach().clone() for parameter in self.parameters]

    def _changes(self) -> list[bool]:
        pairs = zip(self.parameters, self.before, strict=True)
        return [not torch.equal(now, before) for now, before in pairs]

    def all(self) -> bool:
        return len(self.parameters) > 0 and all(self._changes())

    def none(self) -> bool:
        return not any(self._changes())


def all_have_gradients(*tensors: Tensor) -> bool:
    """Whether each has a gradient that is not zero everywhere."""
    return all(t.grad is not None and bool(t.grad.count_nonzero()) for t in tensors)
