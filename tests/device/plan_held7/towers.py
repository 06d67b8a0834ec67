"""Users and items in two towers: histories joined one by one, a mask from the CPU, dense tables, ranks by sorting."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, program, sized
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

Batch = tuple[Tensor, Tensor, Tensor]


class Clicks:
    """Who clicked what after what. As lists, of which tensors are made row by row; with "collate" as padded tensors."""

    def __init__(self, rows: int, users: int, items: int, longest: int, on: Changes) -> None:
        drawn = torch.Generator().manual_seed(3)
        self.users = torch.randint(users, (rows,), generator=drawn)
        self.items = torch.randint(1, items, (rows,), generator=drawn)
        lengths = torch.randint(1, longest + 1, (rows,), generator=drawn)
        histories = torch.randint(1, items, (rows, longest), generator=drawn)
        self.histories = histories.masked_fill(torch.arange(longest) >= lengths[:, None], 0)
        pairs = zip(self.histories.tolist(), lengths.tolist(), strict=True)
        self.lists = [history[:length] for history, length in pairs]
        self.user_list, self.item_list, self.on = self.users.tolist(), self.items.tolist(), on

    def __getitem__(self, row: int) -> Batch:
        return torch.tensor(self.user_list[row]), torch.tensor(self.lists[row]), torch.tensor(self.item_list[row])

    def batch(self, rows: Tensor) -> Batch:
        if "collate" in self.on:
            return self.users[rows], self.histories[rows], self.items[rows]
        users, histories, items = zip(*[self[row] for row in rows.tolist()], strict=True)
        return torch.stack(users), pad_sequence(list(histories), batch_first=True), torch.stack(items)


class TwoTower(nn.Module):
    def __init__(self, users: int, items: int, width: int, inner: int, on: Changes) -> None:
        super().__init__()
        self.user_embedding = nn.Embedding(users, width, sparse="sparse" in on)
        self.item_embedding = nn.Embedding(items, width, padding_idx=0, sparse="sparse" in on)
        for table in (self.user_embedding, self.item_embedding):
            nn.init.normal_(table.weight, std=0.05)
        self.user_tower = nn.Sequential(
            nn.Linear(2 * width, inner), nn.ReLU(), nn.Linear(inner, inner), nn.ReLU(), nn.Linear(inner, width)
        )
        self.item_tower = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
        self.on = on

    def pooled(self, history: Tensor) -> Tensor:
        """The mean of the items of a history."""
        if "bag" in self.on:
            table = self.item_embedding
            return F.embedding_bag(history, table.weight, mode="mean", sparse=table.sparse, padding_idx=0)
        mask = (history != 0).unsqueeze(-1).float()
        return (self.item_embedding(history) * mask).sum(dim=1) / mask.sum(dim=1)

    def forward(self, users: Tensor, history: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        user = self.user_tower(torch.cat([self.user_embedding(users), self.pooled(history)], dim=-1))
        item = self.item_tower(self.item_embedding(items))
        return F.normalize(user, dim=-1), F.normalize(item, dim=-1)


def scored(user: Tensor, item: Tensor, items: Tensor, on: Changes) -> Tensor:
    """Each user with each item of the batch, but not with another row's if it is the same item."""
    batch = len(items)
    scores = torch.matmul(user, item.T) / 0.05
    if "eye" in on:
        own = torch.eye(batch, dtype=torch.bool, device=scores.device)
    else:
        own = torch.eye(batch).bool().to(scores.device)
    same = items.unsqueeze(0) == items.unsqueeze(1)
    return scores.masked_fill(same & ~own, -1e4)


def hit_rate(scores: Tensor, labels: Tensor, most: int, on: Changes) -> float:
    """For how many users their own item is among the best."""
    if "rank" in on:
        ranks = (scores > scores.diagonal().unsqueeze(1)).sum(dim=1)
    else:
        order = torch.argsort(scores, dim=1, descending=True)
        ranks = (order == labels.unsqueeze(1)).float().argmax(dim=1)
    return (ranks < most).float().mean().item()


@program("both", "collate eye sparse rank bag")
def towers(on: Changes) -> Step:
    users, items, batch, rows = sized(4_000_000, 300), sized(4_000_000, 200), sized(4096, 16), sized(65536, 64)
    clicks = Clicks(rows, users, items, sized(50, 6), on)
    with torch.device(DEVICE):
        model = TwoTower(users, items, sized(128, 8), sized(512, 32), on)
        labels = torch.arange(batch)
    adagrad = torch.optim.Adagrad(model.parameters(), lr=0.05, initial_accumulator_value=0.1)
    order, hits = torch.Generator().manual_seed(4), []

    def step() -> Tensor:
        rows_now = torch.randint(rows, (batch,), generator=order)
        user_ids, history, item_ids = (part.to(DEVICE) for part in clicks.batch(rows_now))
        user, item = model(user_ids, history, item_ids)
        scores = scored(user, item, item_ids, on)
        loss = F.cross_entropy(scores, labels)
        adagrad.zero_grad()
        loss.backward()
        adagrad.step()
        hits.append(hit_rate(scores.detach(), labels, sized(10, 3), on))
        return loss.detach()

    return step
