"""GPT-2 pre-trained from scratch in fp32: scores in memory, 50257 words, a default AdamW, losses read in each step."""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, optimizer, precision, program, sized
from torch import Tensor

WARM_UP, STEPS, PEAK_RATE = 100, 10_000, 6e-4


@dataclass(frozen=True)
class Config:
    words: int
    length: int
    layers: int
    heads: int
    width: int
    flash: bool  # attention in one kernel


class CausalSelfAttention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_attn = nn.Linear(config.width, 3 * config.width)
        self.c_proj = nn.Linear(config.width, config.width)
        self.heads, self.flash = config.heads, config.flash
        allowed = torch.ones(config.length, config.length).tril()
        self.register_buffer("bias", allowed.view(1, 1, config.length, config.length), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in self.c_attn(x).split(C, 2))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.shape[-1]))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.width), CausalSelfAttention(config)
        self.ln_2, self.mlp = nn.LayerNorm(config.width), MLP(config.width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.words, config.width)
        self.wpe = nn.Embedding(config.length, config.width)
        self.h = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.ln_f, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, config.words)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                scale = 1 / math.sqrt(2 * config.layers) if name.endswith("c_proj.weight") else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def pad_vocabulary(self) -> None:
        """Words that never come, for an even number of columns; their bias keeps them out of the softmax."""
        more = -self.head.out_features % 64
        self.head.weight = nn.Parameter(F.pad(self.head.weight.detach(), (0, 0, 0, more)))
        self.head.bias = nn.Parameter(F.pad(self.head.bias.detach(), (0, more), value=-1e4))

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for layer in self.h:
            x = layer(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def rate_at(iteration: int) -> float:
    if iteration < WARM_UP:
        return PEAK_RATE * (iteration + 1) / WARM_UP
    done = min(1.0, (iteration - WARM_UP) / (STEPS - WARM_UP))
    return PEAK_RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


@program("gpu", "tf32 amp sdpa vocab fused item", last="compile")
def pretrain(on: Changes) -> Step:
    precision(on)
    config = Config(sized(50257, 77), sized(768, 16), sized(16, 2), sized(12, 2), sized(768, 32), "sdpa" in on)
    with torch.device(DEVICE):
        model = GPT(config)
        if "vocab" in on:
            model.pad_vocabulary()
    if "compile" in on:
        torch._dynamo.config.recompile_limit = 64  # several models of this process share the code of Layer
        for layer in model.h:
            layer.compile()
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    adamw = optimizer(torch.optim.AdamW, groups, on, lr=PEAK_RATE, betas=(0.9, 0.95))
    tokens = torch.randint(config.words, (sized(2_000_000, 2000),), generator=torch.Generator().manual_seed(42))
    batch, position, iteration, losses = sized(6, 2), 0, 0, []

    def next_batch() -> tuple[Tensor, Tensor]:
        nonlocal position
        wanted = batch * config.length
        if position + wanted + 1 > len(tokens):
            position = 0
        part = tokens[position : position + wanted + 1]
        position += wanted
        x, y = part[:-1].view(batch, config.length), part[1:].view(batch, config.length)
        return x.to(DEVICE), y.to(DEVICE)

    def step() -> Tensor:
        nonlocal iteration
        x, y = next_batch()
        for group in adamw.param_groups:
            group["lr"] = rate_at(iteration)
        with autocast(on):
            loss = model(x, y)
        adamw.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        iteration += 1
        losses.append(loss.detach() if "item" in on else loss.item())
        return loss.detach()

    return step
