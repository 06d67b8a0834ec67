"""A GPT from a lecture, in fp32: TF32 off, a module per head, masked scores and GELU by hand, an odd vocabulary."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, precision, program, sized
from torch import Tensor

DROP = 0.1  # masks are drawn in another order with "heads" and "sdpa": losses then agree only in their distribution


class Head(nn.Module):
    """One head of self-attention."""

    def __init__(self, width: int, size: int, length: int, on: Changes) -> None:
        super().__init__()
        self.key = nn.Linear(width, size, bias=False)
        self.query = nn.Linear(width, size, bias=False)
        self.value = nn.Linear(width, size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(length, length)))
        self.dropout, self.on = nn.Dropout(DROP), on

    def forward(self, x: Tensor) -> Tensor:
        k, q, v = self.key(x), self.query(x), self.value(x)
        if "sdpa" in self.on:
            q, k, v = q[:, None], k[:, None], v[:, None]
            return F.scaled_dot_product_attention(q, k, v, dropout_p=DROP, is_causal=True)[:, 0]
        length = x.shape[1]
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
        return self.dropout(F.softmax(wei, dim=-1)) @ v


class MultiHead(nn.Module):
    """Several heads side by side, each on its own."""

    def __init__(self, width: int, heads: int, length: int, on: Changes) -> None:
        super().__init__()
        self.heads = nn.ModuleList([Head(width, width // heads, length, on) for _ in range(heads)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([head(x) for head in self.heads], dim=-1)


class AllHeads(nn.Module):
    """The same heads with one projection and one product for all."""

    def __init__(self, each: MultiHead, on: Changes) -> None:
        super().__init__()
        weights = [getattr(head, name).weight for name in ("query", "key", "value") for head in each.heads]
        self.qkv = nn.Parameter(torch.cat([weight.detach() for weight in weights]))
        self.register_buffer("tril", each.heads[0].tril)
        self.dropout, self.count, self.on = nn.Dropout(DROP), len(each.heads), on

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = F.linear(x, self.qkv).view(batch, length, 3, self.count, width // self.count)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        if "sdpa" in self.on:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=DROP, is_causal=True)
        else:
            wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
            wei = wei.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
            y = self.dropout(F.softmax(wei, dim=-1)) @ v
        return y.transpose(1, 2).reshape(batch, length, width)


class NewGELU(nn.Module):
    def __init__(self, on: Changes) -> None:
        super().__init__()
        self.on = on

    def forward(self, x: Tensor) -> Tensor:
        if "gelu" in self.on:
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, length: int, on: Changes) -> None:
        super().__init__()
        self.sa = MultiHead(width, heads, length, on)
        if "heads" in on:
            self.sa = AllHeads(self.sa, on)
        self.proj = nn.Linear(width, width)
        self.ffwd = nn.Sequential(
            nn.Linear(width, 4 * width), NewGELU(on), nn.Linear(4 * width, width), nn.Dropout(DROP)
        )
        self.ln1, self.ln2, self.dropout = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(DROP)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.proj(self.sa(self.ln1(x))))
        return x + self.ffwd(self.ln2(x))


class BabyGPT(nn.Module):
    def __init__(self, words: int, width: int, heads: int, layers: int, length: int, on: Changes) -> None:
        super().__init__()
        self.token_embedding_table = nn.Embedding(words, width)
        self.position_embedding_table = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads, length, on) for _ in range(layers)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words)
        self.apply(self.drawn)
        if "vocab" in on:  # words that never come: their scores are so low that they take no part in the softmax
            more = -words % 64
            self.lm_head.weight = nn.Parameter(F.pad(self.lm_head.weight.detach(), (0, 0, 0, more)))
            self.lm_head.bias = nn.Parameter(F.pad(self.lm_head.bias.detach(), (0, more), value=-1e4))

    def drawn(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        x = self.token_embedding_table(idx)
        x = x + self.position_embedding_table(torch.arange(idx.shape[1], device=idx.device))
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        batch, length, count = logits.shape
        return F.cross_entropy(logits.view(batch * length, count), targets.view(batch * length))


@program("gpu", "tf32 heads sdpa gelu vocab item")
def babygpt(on: Changes) -> Step:
    precision(on)
    words, batch, length = sized(50257, 61), sized(12, 3), sized(512, 16)
    with torch.device(DEVICE):
        model = BabyGPT(words, sized(768, 32), sized(8, 4), sized(8, 2), length, on)
    order = torch.Generator().manual_seed(1337)
    text = torch.randint(words, (sized(1_000_000, 1000),), generator=order)
    adam = torch.optim.AdamW(model.parameters(), lr=3e-4)
    history = []

    def get_batch() -> tuple[Tensor, Tensor]:
        ix = torch.randint(len(text) - length, (batch,), generator=order).tolist()
        x = torch.stack([text[i : i + length] for i in ix])
        y = torch.stack([text[i + 1 : i + length + 1] for i in ix])
        return x.to(DEVICE), y.to(DEVICE)

    def step() -> Tensor:
        xb, yb = get_batch()
        loss = model(xb, yb)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        history.append(loss.detach() if "item" in on else loss.item())
        return loss.detach()

    return step
