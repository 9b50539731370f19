"""Lightning's own loop: accumulation, clipping and a schedule."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))

    def training_step(self, batch, index):
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.body(inputs), labels)
        print(loss.item())
        return loss

    def validation_step(self, batch, index):
        inputs, labels = batch
        self.log("right", (self.body(inputs).argmax(dim=1) == labels).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=5)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


lightning.seed_everything(0, verbose=False)
data = DataLoader(TensorDataset(torch.randn(40, 8), torch.randint(0, 3, (40,))), batch_size=4)
trainer = lightning.Trainer(
    accelerator="cpu",
    max_steps=5,
    accumulate_grad_batches=2,
    gradient_clip_val=0.5,
    default_root_dir="lightning",
    enable_progress_bar=False,
    logger=False,
)
trainer.fit(Classifier(), data, data)
