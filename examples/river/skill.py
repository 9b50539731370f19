"""How good is a forecast? Shared by training, evaluation and the plots."""

import torch


def loss(forecast, observed):
    """0 for a forecast that rises and falls with the river, 2 for one that does the opposite."""
    return 1 - correlation(forecast, observed)


def correlation(forecast, observed):
    return (standardised(forecast) * standardised(observed)).mean()


@torch.no_grad()
def standardised(levels):
    """Levels in units of their own spread, around zero."""
    anomaly = levels - levels.mean()
    return anomaly / anomaly.std()
