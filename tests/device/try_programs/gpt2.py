"""Hugging Face's GPT-2, three layers, trained in plain fp32 by a loop."""

import contextlib
import sys

import torch
from clock import HAND, STEPS, WARM, Clock, begin, turn
from transformers import GPT2Config, GPT2LMHeadModel

begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
small = device == "cpu"
config = GPT2Config(
    n_layer=3, n_embd=64 if small else 768, n_head=4 if small else 12, vocab_size=50257 // (50 if small else 1)
)
config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
model = GPT2LMHeadModel(config)
turn()
model = model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True if "optimizer" in HAND else None)
ids = torch.randint(0, config.vocab_size, (2 if small else 8, 64 if small else 512), device=device)
call = torch.compile(model) if "compile" in HAND else model
clock = Clock()
for _ in range(WARM + STEPS + 2):
    with torch.autocast(device, dtype=torch.bfloat16) if "amp" in HAND else contextlib.nullcontext():
        loss = call(ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    clock.step(loss)
clock.end()
sys.exit(4)
