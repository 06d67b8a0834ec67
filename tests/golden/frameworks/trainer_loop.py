"""Records one of four steps of transformers' Trainer on a CPU."""

import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

ROWS = [{"input_ids": torch.arange(8) + row, "labels": torch.arange(8) + row} for row in range(8)]


class Step(TrainerCallback):
    """Ends a step of the profiler with each of the Trainer's."""

    def on_step_end(self, args, state, control, **_):
        profiler.step()


with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(folder, max_steps=4, report_to=[], save_strategy="no", use_cpu=True, fp16=False)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    trainer = Trainer(model=model, args=args, train_dataset=ROWS, callbacks=[Step()])
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1)
    with torch.profiler.profile(schedule=schedule, record_shapes=True, with_stack=True) as profiler:
        profiler.on_trace_ready = lambda done: done.export_chrome_trace(sys.argv[1])
        trainer.train()
