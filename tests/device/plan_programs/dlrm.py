"""A recommender: one table for each category, dense gradients for all their rows, batches copied piece by piece."""

from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, ON_GPU, Changes, Step, optimizer, precision, program, sized
from torch import Tensor


class Tables(nn.Module):
    """A table for each category, or all in one, each category's rows after those of the one before."""

    def __init__(self, rows: list[int], width: int, on: Changes) -> None:
        super().__init__()
        self.merged, sparse = "merged" in on, "sparse" in on
        if self.merged:
            self.table = nn.EmbeddingBag(sum(rows), width, mode="sum", sparse=sparse)
            self.register_buffer("first", torch.tensor([0, *rows[:-1]]).cumsum(0), persistent=False)
        else:
            self.tables = nn.ModuleList(nn.EmbeddingBag(count, width, mode="sum", sparse=sparse) for count in rows)

    def forward(self, ids: Tensor) -> Tensor:
        """``ids`` [categories, batch, each]; [batch, categories, width]"""
        if self.merged:
            categories, batch, each = ids.shape
            bags = self.table((ids + self.first[:, None, None]).view(-1, each))
            return bags.view(categories, batch, -1).transpose(0, 1)
        return torch.stack([table(one) for table, one in zip(self.tables, ids, strict=True)], dim=1)


def tower(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inner, outer in pairwise(widths):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Recommender(nn.Module):
    def __init__(self, rows: list[int], width: int, hidden: int, on: Changes) -> None:
        super().__init__()
        count = len(rows) + 1
        self.tables = Tables(rows, width, on)
        self.bottom = nn.Sequential(tower(13, hidden, hidden // 2, width), nn.ReLU())
        self.top = tower(width + count * (count - 1) // 2, 2 * hidden, 2 * hidden, hidden, 1)
        self.kept = "pairs" in on
        self.register_buffer("pairs", torch.tril_indices(count, count, -1), persistent=False)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        parts = torch.cat([dense[:, None], self.tables(ids)], dim=1)
        products = torch.bmm(parts, parts.transpose(1, 2))
        if self.kept:
            flat = products.flatten(1).index_select(1, self.pairs[0] * parts.shape[1] + self.pairs[1])
        else:
            low = [(i, j) for i in range(parts.shape[1]) for j in range(i)]
            rows, columns = torch.tensor(low).T
            flat = products[:, rows, columns]
        return self.top(torch.cat([dense, flat], dim=1)).squeeze(1)


class Batches:
    """What a loader gives: numbers, categories and clicks, on the CPU."""

    def __init__(self, rows: list[int], batch: int, each: int, pinned: bool) -> None:
        self.numbers = torch.rand(batch, 13)
        self.ids = torch.stack([torch.randint(count, (batch, each)) for count in rows])
        self.clicks = torch.randint(2, (batch,)).float()
        self.pinned = pinned
        if pinned and ON_GPU:
            self.numbers, self.ids, self.clicks = (x.pin_memory() for x in (self.numbers, self.ids, self.clicks))

    def copied(self) -> tuple[Tensor, Tensor, Tensor]:
        if self.pinned:
            numbers, ids, clicks = (x.to(DEVICE, non_blocking=True) for x in (self.numbers, self.ids, self.clicks))
            return numbers, ids, clicks
        ids = torch.stack([one.to(DEVICE) for one in self.ids])
        return self.numbers.to(DEVICE), ids, self.clicks.to(DEVICE)


@program("both", "copies sparse merged pairs tf32 fused item")
def dlrm(on: Changes) -> Step:
    precision(on)
    rows = [sized(40_000 * (1 + number % 8), 10 + number) for number in range(sized(26, 4))]
    batches = Batches(rows, sized(8192, 8), 4, "copies" in on)
    with torch.device(DEVICE):
        model = Recommender(rows, sized(64, 8), sized(512, 16), on)
    tables = torch.optim.Adagrad(model.tables.parameters(), lr=0.01)
    towers = [*model.bottom.parameters(), *model.top.parameters()]
    adam = optimizer(torch.optim.Adam, towers, on, lr=1e-3, foreach=False)
    history: list[float] = []
    total = torch.zeros((), device=DEVICE)

    def step() -> Tensor:
        numbers, ids, clicks = batches.copied()
        tables.zero_grad()
        adam.zero_grad()
        scores = model(numbers, ids)
        loss = F.binary_cross_entropy_with_logits(scores, clicks)
        loss.backward()
        tables.step()
        adam.step()
        right = ((scores > 0) == (clicks > 0.5)).float().mean()
        if "item" in on:
            total.add_(loss.detach() + right)
        else:
            history.extend((loss.item(), right.item()))
        return loss.detach()

    return step
