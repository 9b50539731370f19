"""Two optimizers that take turns: a generator and a critic, each blind to the other's step."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BINARY = nn.functional.binary_cross_entropy_with_logits


class Adversaries(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2))
        self.critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def training_step(self, batch, index):
        (real,) = batch
        for_generator, for_critic = self.optimizers()

        self.toggle_optimizer(for_generator)
        made = self.generator(torch.randn(len(real), 4))
        loss = BINARY(self.critic(made), torch.ones(len(real), 1))
        for_generator.zero_grad()
        self.manual_backward(loss)
        for_generator.step()
        self.untoggle_optimizer(for_generator)

        self.toggle_optimizer(for_critic)
        loss_real = BINARY(self.critic(real), torch.ones(len(real), 1))
        loss_made = BINARY(self.critic(made.detach()), torch.zeros(len(real), 1))
        for_critic.zero_grad()
        self.manual_backward((loss_real + loss_made) / 2)
        self.clip_gradients(for_critic, 1.0, "norm")
        for_critic.step()
        self.untoggle_optimizer(for_critic)
        print(loss.item(), loss_real.item(), loss_made.item())

    def configure_optimizers(self):
        return [
            torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.999)),
            torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.5, 0.999)),
        ]


lightning.seed_everything(0, verbose=False)
data = DataLoader(TensorDataset(torch.randn(20, 2) + 2), batch_size=4)
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=1,
    default_root_dir="lightning",
    enable_progress_bar=False,
    logger=False,
)
trainer.fit(Adversaries(), data)
