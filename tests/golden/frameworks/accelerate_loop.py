"""Records one of four steps of a loop of its own with accelerate on a CPU."""

import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(8, 8)
data = DataLoader(TensorDataset(torch.randn(16, 8)), batch_size=4)
model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), data)
schedule = torch.profiler.schedule(wait=1, warmup=1, active=1)
with torch.profiler.profile(schedule=schedule, record_shapes=True, with_stack=True) as profiler:
    profiler.on_trace_ready = lambda done: done.export_chrome_trace(sys.argv[1])
    for (x,) in data:
        loss = model(x).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        profiler.step()
