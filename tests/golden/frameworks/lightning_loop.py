"""Records one of four steps of Lightning's Trainer on a CPU."""

import sys

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    """A linear layer."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)

    def training_step(self, batch, index):
        loss = self.net(batch[0]).pow(2).mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


class Step(L.Callback):
    """Ends a step of the profiler with each of Lightning's."""

    def on_train_batch_end(self, *_):
        profiler.step()


data = DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=4)
trainer = L.Trainer(max_steps=4, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[Step()])
schedule = torch.profiler.schedule(wait=1, warmup=1, active=1)
with torch.profiler.profile(schedule=schedule, record_shapes=True, with_stack=True) as profiler:
    profiler.on_trace_ready = lambda done: done.export_chrome_trace(sys.argv[1])
    trainer.fit(Net(), data)
