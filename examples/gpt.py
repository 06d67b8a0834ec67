"""A small GPT, measured from inside the script: mark steps, collect three of them, read the result in Python.

    python examples/gpt.py

writes gpt.json.gz and prints where the time of a step went and what to change. Runs on the GPU where there is one,
else on the CPU (the advice is about GPUs).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

import pyprof

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 1003, 64, 4, 2, 32, 4  # 1003: not a multiple of 8, on purpose


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        split = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.tokens(tokens) + self.places(places)))


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), device=device)

    # Pass over two steps, in which PyTorch allocates and tunes, and collect the next three.
    with pyprof.profile("gpt.json.gz", force=True, warmup=2, steps=3):
        for _ in range(5):
            optimizer.zero_grad()
            logits = model(tokens[:, :-1])
            F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            pyprof.step()  # ends a step: without it, all five would be one

    profile = pyprof.load("gpt.json.gz")
    print(profile.summary())
    print("\nThe longest ops:")
    print(profile.ops.head(5)[["op", "dir", "calls", "time", "flops"]].to_string(index=False))
    print("\nWhat to change, and what it saves per step:")
    for piece in profile.advice.itertuples():
        print(f"{piece.saved_ms:.3f} ms: {piece.change}")
    if profile.advice.empty:
        print("no advice (a run on a CPU has no GPU kernels to improve)")


if __name__ == "__main__":
    main()
