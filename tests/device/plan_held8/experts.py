"""A transformer with experts that take turns: each one looks for its tokens, and gradients are clipped one by one."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, optimizer, program, sized
from torch import Tensor

TOP, LIMIT, BALANCE = 2, 1.0, 0.01


class Expert(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    """One expert after the other."""

    def __init__(self, width: int, inner: int, count: int) -> None:
        super().__init__()
        self.each = nn.ModuleList([Expert(width, inner) for _ in range(count)])

    def forward(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Of tokens (tokens, width), each with its TOP experts and their weights (tokens, TOP)."""
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.each):
            token, place = torch.where(chosen == number)
            given = expert(x[token]) * weights[token, place, None]
            y.index_add_(0, token, given.to(y.dtype))
        return y


class BatchedExperts(nn.Module):
    """The same experts at once: tokens sorted by expert, each expert's rows padded to the most that one has."""

    def __init__(self, each: Experts) -> None:
        super().__init__()
        for name in ("w1", "w2", "w3"):
            stacked = torch.stack([getattr(expert, name).weight.detach().T for expert in each.each])
            setattr(self, name, nn.Parameter(stacked))

    def forward(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        count, width, _ = self.w1.shape
        expert, order = chosen.flatten().sort(stable=True)
        token = order // TOP
        sizes = torch.zeros(count, dtype=torch.long, device=x.device).scatter_add_(0, expert, torch.ones_like(expert))
        most = int(sizes.max())
        first = sizes.cumsum(0) - sizes
        slot = expert * most + torch.arange(len(expert), device=x.device) - first[expert]
        rows = x.new_zeros(count * most, width).index_copy(0, slot, x.index_select(0, token)).view(count, most, width)
        hidden = F.silu(torch.bmm(rows, self.w1)) * torch.bmm(rows, self.w3)
        given = torch.bmm(hidden, self.w2).flatten(0, 1).index_select(0, slot)
        given = given * weights.flatten().index_select(0, order)[:, None]
        return torch.zeros_like(x).index_add_(0, token, given.to(x.dtype))


class Routed(nn.Module):
    def __init__(self, width: int, inner: int, count: int, on: Changes) -> None:
        super().__init__()
        self.gate, self.count = nn.Linear(width, count, bias=False), count
        self.experts: nn.Module = Experts(width, inner, count)
        if "batched" in on:
            self.experts = BatchedExperts(self.experts)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The experts' output, a loss that is least when all are used equally, and how much each is used."""
        flat = x.flatten(0, 1)
        chances = F.softmax(self.gate(flat).float(), dim=-1)
        weights, chosen = chances.topk(TOP, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        used = F.one_hot(chosen, self.count).float().mean((0, 1))
        balance = self.count * (used * chances.mean(0)).sum()
        return self.experts(flat, weights, chosen).view_as(x), balance, used


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.heads, self.fused = heads, "sdpa" in on

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            later = torch.full((length, length), float("-inf"), device=x.device).triu(1)
            scores = torch.matmul(q, k.transpose(-2, -1)) / (width // self.heads) ** 0.5 + later
            y = torch.matmul(torch.softmax(scores, dim=-1), v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, count: int, on: Changes) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, on)
        self.norm2, self.routed = nn.LayerNorm(width), Routed(width, inner, count, on)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x + self.attention(self.norm1(x))
        y, balance, used = self.routed(self.norm2(x))
        return x + y, balance, used


class Model(nn.Module):
    def __init__(self, words: int, length: int, layers: int, shape: tuple[int, int, int, int], on: Changes) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, shape[0]), nn.Embedding(length, shape[0])
        self.layers = nn.ModuleList([Layer(*shape, on) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(shape[0]), nn.Linear(shape[0], words, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.tokens(words) + self.places.weight[: words.shape[1]]
        balance, used = torch.zeros((), device=x.device), []
        for layer in self.layers:
            x, more, share = layer(x)
            balance = balance + more
            used.append(share)
        return self.head(self.norm(x)), balance, torch.stack(used)


def clip(parameters: list[nn.Parameter]) -> None:
    """Scale the gradients so that their norm is at most LIMIT."""
    total = 0.0
    for parameter in parameters:
        if parameter.grad is not None:
            total += parameter.grad.norm(2).item() ** 2
    scale = LIMIT / (total**0.5 + 1e-6)
    if scale < 1:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(scale)


@program("host", "batched amp sdpa fused clip item")
def experts(on: Changes) -> Step:
    torch.set_float32_matmul_precision("high")
    words, batch, length = sized(32000, 96), sized(8, 3), sized(512, 16)
    shape = (sized(768, 32), sized(12, 4), sized(1536, 64), sized(8, 4))  # width, heads, inner, experts
    with torch.device(DEVICE):
        model = Model(words, length, sized(8, 2), shape, on)
        text = torch.randint(words, (16, batch, length + 1))
    parameters = list(model.parameters())
    adam = optimizer(torch.optim.AdamW, parameters, on, lr=2e-4)
    number, shares = 0, []

    def step() -> Tensor:
        nonlocal number
        part = text[number % len(text)]
        number += 1
        with autocast(on):
            scores, balance, used = model(part[:, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1), part[:, 1:].flatten())
        adam.zero_grad(set_to_none=True)
        (loss + BALANCE * balance).backward()
        if "clip" in on:
            nn.utils.clip_grad_norm_(parameters, LIMIT)
        else:
            clip(parameters)
        adam.step()
        if "item" in on:
            shares.append((loss.detach(), used.detach()))
        else:
            shares.append((loss.item(), [share.tolist() for share in used]))
        return loss.detach()

    return step
