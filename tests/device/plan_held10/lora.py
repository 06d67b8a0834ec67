"""Low-rank adapters for a frozen language model: checkpoints without need, repeated heads, logits nobody asks for."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, HALF, Changes, Step, optimizer, program, sized
from torch import Tensor
from torch.utils.checkpoint import checkpoint

IGNORED = -100


class RMSNorm(nn.Module):
    def __init__(self, width: int, on: Changes) -> None:
        super().__init__()
        self.weight, self.fused = nn.Parameter(torch.ones(width)), "norm" in on

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x.to(dtype)


class Adapted(nn.Module):
    """A frozen linear layer with a trained product of low rank beside it."""

    def __init__(self, inner: int, outer: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inner, outer, bias=False)
        self.lora_a, self.lora_b = nn.Linear(inner, rank, bias=False), nn.Linear(rank, outer, bias=False)
        self.dropout = nn.Dropout(0.05)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.lora_b(self.lora_a(self.dropout(x)))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-high, low], dim=-1) * sin).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, rank: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.groups, self.size, self.fused = heads, groups, width // heads, "sdpa" in on
        self.q, self.k = Adapted(width, width, rank), nn.Linear(width, groups * self.size, bias=False)
        self.v, self.out = Adapted(width, groups * self.size, rank), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        v = self.v(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            k = k.repeat_interleave(self.heads // self.groups, dim=1)
            v = v.repeat_interleave(self.heads // self.groups, dim=1)
            weights = torch.matmul(q, k.transpose(2, 3)) / self.size**0.5
            weights = weights + mask
            weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
            y = torch.matmul(weights, v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int, groups: int, rank: int, on: Changes) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(width, on), RMSNorm(width, on)
        self.attention = Attention(width, heads, groups, rank, on)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin, mask)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, words: int, on: Changes) -> None:
        super().__init__()
        inner, groups, rank = 11 * width // 4, heads // 4, sized(16, 2)
        self.on, self.size = on, width // heads
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, inner, heads, groups, rank, on) for _ in range(layers))
        self.norm, self.head = RMSNorm(width, on), nn.Linear(width, words, bias=False)
        for name, parameter in self.named_parameters():
            parameter.requires_grad_("lora_" in name)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.words(ids)
        length = ids.shape[1]
        rates = 10000 ** (-torch.arange(0, self.size, 2, device=x.device) / self.size)
        angles = torch.arange(length, device=x.device)[:, None] * rates
        angles = torch.cat([angles, angles], dim=-1)
        cos, sin = angles.cos().to(HALF), angles.sin().to(HALF)
        mask = torch.full((length, length), torch.finfo(HALF).min, device=x.device, dtype=HALF).triu(1)
        for layer in self.layers:
            if "checkpoint" in self.on:
                x = layer(x, cos, sin, mask)
            else:
                x = checkpoint(layer, x, cos, sin, mask, use_reentrant=False)
        x, targets = self.norm(x), labels[:, 1:]
        if "rows" in self.on:
            wanted = targets != IGNORED
            return F.cross_entropy(self.head(x[:, :-1][wanted]).float(), targets[wanted])
        logits = self.head(x).float()
        logits = logits[:, :-1].contiguous().view(-1, logits.shape[-1])
        return F.cross_entropy(logits, targets.reshape(-1), ignore_index=IGNORED)


@program("gpu", "checkpoint sdpa norm rows half fused", last="compile")
def lora(on: Changes) -> Step:
    words, batch, length = sized(32000, 64), sized(4, 2), sized(1024, 16)
    with torch.device(DEVICE):
        model = Model(sized(10, 2), sized(2048, 32), sized(32, 4), words, on)
        ids = torch.randint(words, (batch, length))
        labels = ids.where(torch.arange(length) >= 3 * length // 4, IGNORED)
    if "half" in on:
        for parameter in model.parameters():
            if not parameter.requires_grad:
                parameter.data = parameter.data.to(HALF)
    if "compile" in on:
        for layer in model.layers:
            layer.compile()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    adam = optimizer(torch.optim.AdamW, trained, on, lr=2e-4)

    def step() -> Tensor:
        with torch.autocast(DEVICE, HALF):
            loss = model(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        adam.step()
        adam.zero_grad()
        return loss.detach()

    return step
