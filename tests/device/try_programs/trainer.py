"""BERT for classification under Hugging Face's Trainer."""

import tempfile

import torch
from clock import HAND, STEPS, WARM, Clock, begin, turn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

begin()
config = BertConfig(num_hidden_layers=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = BertForSequenceClassification(config)
rows = [{"input_ids": torch.randint(0, 30522, (256,)), "labels": i % 2} for i in range(32 * 8)]
clock = Clock()


class Kept(Trainer):
    """Keeps the loss of the step in progress."""

    def training_step(self, *args, **kwargs):
        self.kept = super().training_step(*args, **kwargs)
        return self.kept


class Ends(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        clock.step(trainer.kept)


turn()
arguments = TrainingArguments(
    tempfile.mkdtemp(),
    max_steps=WARM + STEPS + 2,
    per_device_train_batch_size=32,
    optim="adamw_torch_fused" if "optimizer" in HAND else "adamw_torch",
    bf16="amp" in HAND,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
    logging_steps=1000,
    seed=5,
)
trainer = Kept(model, arguments, train_dataset=rows, callbacks=[Ends()])
trainer.train()
clock.end()
