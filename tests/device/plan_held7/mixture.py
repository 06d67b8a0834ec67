"""Layers of experts: rows searched by expert, a group per parameter, a dense mask, zeroed gradients, own balance."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, HALF, Changes, Step, program, sized
from torch import Tensor

CHOSEN, BALANCE = 2, 0.02


class Expert(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class SparseMoe(nn.Module):
    def __init__(self, width: int, inner: int, count: int, on: Changes) -> None:
        super().__init__()
        self.gate, self.count, self.on = nn.Linear(width, count, bias=False), count, on
        self.experts = nn.ModuleList(Expert(width, inner) for _ in range(count))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the experts make of it, the router's scores, and whom it chose."""
        x = hidden.reshape(-1, hidden.shape[-1])
        logits = self.gate(x)
        weights, chosen = torch.topk(F.softmax(logits, dim=1, dtype=torch.float), CHOSEN, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        y = self.by_order(x, weights, chosen) if "sort" in self.on else self.by_search(x, weights, chosen)
        return y.view_as(hidden), logits, chosen

    def by_search(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Ask for each expert which rows are its own."""
        y = torch.zeros_like(x)
        mask = F.one_hot(chosen, num_classes=self.count).permute(2, 1, 0)
        for number in range(self.count):
            place, row = torch.where(mask[number])
            part = self.experts[number](x[None, row].reshape(-1, x.shape[-1])) * weights[row, place, None]
            y.index_add_(0, row, part.to(x.dtype))
        return y

    def by_order(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Sort the rows by expert, and ask once how many each one has."""
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        counts = F.one_hot(flat, num_classes=self.count).sum(0).tolist()
        row = order // CHOSEN
        parts = [expert(part) for expert, part in zip(self.experts, x[row].split(counts), strict=True)]
        y = torch.cat(parts) * weights.flatten()[order, None]
        return torch.zeros_like(x).index_add_(0, row, y.to(x.dtype))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, count: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.on = heads, on
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.moe = SparseMoe(width, inner, count, on)

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y, logits, chosen = self.moe(self.norm2(x))
        return x + y, logits, chosen


def causal_mask(attention: Tensor) -> Tensor:
    """A bias on scores that masks the future and padding, [batch, 1, length, length]. No batch here has padding."""
    batch, length = attention.shape
    future = torch.full((length, length), float("-inf"), device=attention.device).triu(1)
    padding = (1.0 - attention.float())[:, None, None, :] * torch.finfo(HALF).min
    return future[None, None].expand(batch, 1, length, length) + padding


def balance(logits: list[Tensor], chosen: list[Tensor], count: int, on: Changes) -> Tensor:
    """How unevenly the experts are used, over all layers."""
    if "balance" in on:
        used = torch.stack([F.one_hot(one, count).sum(0) for one in chosen]).sum(0) / (len(chosen) * len(chosen[0]))
        wanted = torch.stack([F.softmax(one.float(), dim=-1).mean(0) for one in logits]).mean(0)
        return count * (used * wanted).sum()
    joined = torch.cat([one.to(logits[0].device) for one in logits], dim=0).float()
    weights = F.softmax(joined, dim=-1)
    _, again = torch.topk(weights, CHOSEN, dim=-1)
    mask = F.one_hot(again, count)
    used, wanted = mask.float().mean(dim=0), weights.mean(dim=0)
    return (used * wanted.unsqueeze(0)).sum() * count


class Mixture(nn.Module):
    def __init__(self, words: int, width: int, heads: int, layers: int, inner: int, count: int, on: Changes) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList(Layer(width, heads, inner, count, on) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.count, self.on = count, on

    def forward(self, ids: Tensor, attention: Tensor, targets: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        mask = None if "causal" in self.on else causal_mask(attention)
        logits, chosen = [], []
        for layer in self.layers:
            x, scores, experts = layer(x, mask)
            logits.append(scores)
            chosen.append(experts)
        loss = F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())
        return loss + BALANCE * balance(logits, chosen, self.count, self.on)


def grouped(model: nn.Module, on: Changes) -> list[dict[str, object]]:
    """Norms are not decayed."""
    if "groups" in on:
        large = [p for p in model.parameters() if p.ndim > 1]
        small = [p for p in model.parameters() if p.ndim <= 1]
        return [{"params": large, "weight_decay": 0.1}, {"params": small, "weight_decay": 0.0}]
    groups = []
    for name, p in model.named_parameters():
        plain = "norm" in name
        groups.append({"params": [p], "weight_decay": 0.0 if plain else 0.1})
    return groups


@program("both", "sort groups causal none balance")
def mixture(on: Changes) -> Step:
    words, batch, length = sized(32000, 67), sized(8, 3), sized(1024, 12)
    with torch.device(DEVICE):
        model = Mixture(words, sized(1024, 32), sized(16, 4), sized(8, 2), sized(2816, 48), sized(8, 4), on)
        ids = torch.randint(words, (batch, length + 1))
        attention = torch.ones(batch, length, dtype=torch.long)
    adam = torch.optim.AdamW(grouped(model, on), lr=3e-4, betas=(0.9, 0.95))

    def step() -> Tensor:
        adam.zero_grad(set_to_none="none" in on)
        with torch.autocast(DEVICE, HALF):
            loss = model(ids[:, :-1], attention, ids[:, 1:])
        loss.backward()
        adam.step()
        return loss.detach()

    return step
