"""Clicks predicted from many small tables and the products of all their pairs; batches put together row by row."""

import random
from collections.abc import Iterator
from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, ON_GPU, Changes, Step, optimizer, program, sized
from torch import Tensor

Batch = tuple[Tensor, Tensor, Tensor]


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inner, outer in pairwise(widths):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Tables(nn.Module):
    """A table for each field of a row."""

    def __init__(self, sizes: list[int], width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in sizes)
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, fields: Tensor) -> Tensor:
        return torch.stack([table(fields[:, number]) for number, table in enumerate(self.tables)], 1)


class MergedTables(nn.Module):
    """The same tables, one below the other."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        weights = [table.weight.detach() for table in tables.tables]
        self.table = nn.Embedding.from_pretrained(torch.cat(weights), freeze=False)
        starts = torch.tensor([0, *(len(weight) for weight in weights[:-1])]).cumsum(0)
        self.register_buffer("starts", starts)

    def forward(self, fields: Tensor) -> Tensor:
        return self.table(fields + self.starts)


class Crosses(nn.Module):
    """The product of each pair of a row's vectors."""

    def __init__(self, count: int, at_once: bool) -> None:
        super().__init__()
        self.at_once = at_once
        first, second = torch.triu_indices(count, count, 1)
        self.register_buffer("place", first * count + second)

    def forward(self, vectors: Tensor) -> Tensor:
        if self.at_once:
            return (vectors @ vectors.transpose(1, 2)).flatten(1).index_select(1, self.place)
        count = vectors.shape[1]
        pairs: list[Tensor] = []
        for one in range(count):
            pairs += [(vectors[:, one] * vectors[:, other]).sum(-1) for other in range(one + 1, count)]
        return torch.stack(pairs, 1)


class Clicks(nn.Module):
    def __init__(self, sizes: list[int], numbers: int, width: int, wide: int, on: Changes) -> None:
        super().__init__()
        tables, count = Tables(sizes, width), len(sizes) + 1
        self.tables = MergedTables(tables) if "merged" in on else tables
        self.bottom = mlp(numbers, wide, wide // 2, width)
        self.crosses = Crosses(count, "crosses" in on)
        self.top = mlp(width + count * (count - 1) // 2, 2 * wide, wide, 1)

    def forward(self, numbers: Tensor, fields: Tensor) -> Tensor:
        dense = self.bottom(torch.log1p(numbers))
        vectors = torch.cat([dense[:, None], self.tables(fields)], 1)
        return self.top(torch.cat([dense, self.crosses(vectors)], 1)).squeeze(1)


class Rows:
    """The training rows in memory, and batches of them in a new order in each epoch."""

    def __init__(self, count: int, numbers: int, sizes: list[int]) -> None:
        self.numbers = torch.rand(count, numbers) * 10
        self.fields = torch.stack([torch.randint(size, (count,)) for size in sizes], 1)
        self.clicked = (torch.rand(count) < 0.2).float()

    def __getitem__(self, row: int) -> Batch:
        return self.numbers[row], self.fields[row], self.clicked[row]

    def batches(self, size: int, on: Changes) -> Iterator[Batch]:
        dice, order = random.Random(0), list(range(len(self.clicked)))
        while True:
            dice.shuffle(order)
            for start in range(0, len(order) - size + 1, size):
                chosen = order[start : start + size]
                if "batch" in on:
                    rows = torch.tensor(chosen)
                    yield self.numbers[rows], self.fields[rows], self.clicked[rows]
                else:
                    samples = [self[row] for row in chosen]
                    numbers, fields, clicked = zip(*samples, strict=True)
                    yield torch.stack(numbers), torch.stack(fields), torch.stack(clicked)


@program("host", "batch crosses merged fused pinned item")
def clicks_crossed(on: Changes) -> Step:
    numbers, size = 13, sized(4096, 16)
    sizes = [sized(2000 + 3000 * field, 5 + field) for field in range(sized(26, 6))]
    rows = Rows(sized(200_000, 200), numbers, sizes)
    with torch.device(DEVICE):
        model = Clicks(sizes, numbers, sized(32, 8), sized(512, 16), on)
    descent = optimizer(torch.optim.Adam, model.parameters(), on, lr=1e-3)
    batches = rows.batches(size, on)
    pinned = "pinned" in on and ON_GPU
    total = torch.zeros(2, device=DEVICE)
    history: list[tuple[float, float]] = []

    def moved(part: Tensor) -> Tensor:
        return part.pin_memory().to(DEVICE, non_blocking=True) if pinned else part.to(DEVICE)

    def step() -> Tensor:
        dense, fields, clicked = (moved(part) for part in next(batches))
        scores = model(dense, fields)
        loss = F.binary_cross_entropy_with_logits(scores, clicked)
        descent.zero_grad()
        loss.backward()
        descent.step()
        right = ((scores > 0) == (clicked > 0.5)).float().mean()
        if "item" in on:
            total.add_(torch.stack([loss.detach(), right]))
        else:
            history.append((loss.item(), right.item()))
        return loss.detach()

    return step
