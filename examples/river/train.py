"""Forecast tomorrow's river level from a week of rain at four gauges."""

import skill
import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, gauges=4, hidden=16):
        super().__init__()
        self.encoder = nn.Linear(gauges, hidden)
        self.level = nn.Linear(hidden, 1)

    def forward(self, rain):
        week = torch.tanh(self.encoder(rain)).mean(dim=1)
        return self.level(week).squeeze(-1)


def observations(count=256, days=7, gauges=4):
    rain = torch.rand(count, days, gauges)
    catchment = torch.tensor([0.5, 1.0, 2.0, 0.2])
    return rain, (rain @ catchment).sum(dim=1)


def train(epochs=20):
    rain, level = observations()
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        forecast = model(rain)
        loss = skill.loss(forecast, level)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}: correlation {skill.correlation(forecast, level):.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    train()
