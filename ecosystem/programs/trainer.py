"""The library's own loop."""

import sys

import torch
from transformers import PrinterCallback, Trainer, TrainingArguments

from tiny_models import MODELS

STEPS = 5

torch.manual_seed(0)
tiny = MODELS[sys.argv[1]]
micro_batches = int(sys.argv[2])


class Examples(torch.utils.data.IterableDataset):
    """Batches as they are, so that no collator has to know the model."""

    def __iter__(self):
        while True:
            yield tiny.batch()


class BatchTrainer(Trainer):
    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(self.train_dataset, batch_size=None)


trainer = BatchTrainer(
    tiny.make(),
    TrainingArguments(
        output_dir="checkpoints",
        max_steps=STEPS,
        learning_rate=1e-3,
        warmup_steps=2,
        gradient_accumulation_steps=micro_batches,
        gradient_checkpointing=micro_batches > 1,
        logging_steps=1,
        save_steps=STEPS,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    ),
    train_dataset=Examples(),
)
# It prints how long each step took, which is never the same twice.
trainer.remove_callback(PrinterCallback)
trainer.train()
for entry in trainer.state.log_history[:STEPS]:
    print(entry["loss"], entry["grad_norm"])
