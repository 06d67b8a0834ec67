"""A graph network on a mesh: ends joined before each product, sums over edges element by element, counts made anew."""

from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, precision, program, sized
from torch import Tensor


class Perceptron(nn.Module):
    """Of several inputs joined; with ``split`` each is multiplied by its part of the first weight instead."""

    def __init__(self, inputs: int, width: int, on: Changes) -> None:
        super().__init__()
        self.inputs, self.split = inputs, "split" in on
        self.first = nn.Linear(inputs * width, width)
        self.second, self.third = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, *parts: tuple[Tensor, Tensor | None]) -> Tensor:
        """``parts``: each a table, and which of its rows if not all in order."""
        if self.split:
            weights = self.first.weight.chunk(self.inputs, dim=1)
            (table, index), *others = parts
            x = taken(F.linear(table, weights[0], self.first.bias), index)
            for (table, index), weight in zip(others, weights[1:], strict=True):
                x = x + taken(F.linear(table, weight), index)
        else:
            x = self.first(torch.cat([taken(table, index) for table, index in parts], dim=-1))
        return self.norm(self.third(F.relu(self.second(F.relu(x)))))


def taken(table: Tensor, index: Tensor | None) -> Tensor:
    return table if index is None else table[index]


class Passing(nn.Module):
    def __init__(self, width: int, on: Changes) -> None:
        super().__init__()
        self.on = on
        self.edges, self.nodes = Perceptron(3, width, on), Perceptron(2, width, on)

    def summed(self, messages: Tensor, ends: Tensor, count: int) -> Tensor:
        sums = messages.new_zeros(count, messages.shape[1])
        if "aggregate" in self.on:
            return sums.index_add_(0, ends, messages)
        return sums.scatter_add_(0, ends[:, None].expand_as(messages).contiguous(), messages)

    def forward(
        self, nodes: Tensor, edges: Tensor, starts: Tensor, ends: Tensor, degrees: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        edges = edges + self.edges((nodes, starts), (nodes, ends), (edges, None))
        if degrees is None:
            degrees = self.summed(torch.ones_like(edges), ends, len(nodes)).clamp(min=1)
        seen = self.summed(edges, ends, len(nodes)) / degrees
        return nodes + self.nodes((nodes, None), (seen, None)), edges


class Normalizer(nn.Module):
    """Mean and deviation of all inputs so far."""

    def __init__(self, width: int, most: int, on: Changes) -> None:
        super().__init__()
        self.most, self.times, self.kept = most, 0, "count" in on
        for name in ("sums", "squares"):
            self.register_buffer(name, torch.zeros(width))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if (self.times if self.kept else self.calls.item()) < self.most:
            self.sums += x.sum(0)
            self.squares += x.square().sum(0)
            self.count += len(x)
            self.calls += 1
            self.times += 1
        mean = self.sums / self.count
        deviation = (self.squares / self.count - mean**2).clamp(min=1e-8).sqrt()
        return (x - mean) / deviation


class MeshNet(nn.Module):
    def __init__(self, nodes: int, edges: int, outputs: int, width: int, layers: int, on: Changes) -> None:
        super().__init__()
        self.on = on
        self.even_nodes, self.even_edges = Normalizer(nodes, 1000, on), Normalizer(edges, 1000, on)
        self.nodes, self.edges = self.tower(nodes, width, width), self.tower(edges, width, width)
        self.layers = nn.ModuleList(Passing(width, on) for _ in range(layers))
        self.head = self.tower(width, width, outputs)

    @staticmethod
    def tower(*widths: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for inner, outer in pairwise(widths):
            layers += [nn.Linear(inner, outer), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def forward(self, nodes: Tensor, edges: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        count, degrees = len(nodes), None
        nodes, edges = self.nodes(self.even_nodes(nodes)), self.edges(self.even_edges(edges))
        if "degree" in self.on:
            degrees = torch.bincount(ends, minlength=count).clamp(min=1)[:, None]
        for layer in self.layers:
            nodes, edges = layer(nodes, edges, starts, ends, degrees)
        return self.head(nodes)


@program("gpu", "tf32 amp split aggregate degree count")
def mesh(on: Changes) -> Step:
    precision(on)
    count, degree = sized(90_000, 24), 6
    with torch.device(DEVICE):
        model = MeshNet(12, 7, 3, sized(128, 16), sized(8, 2), on)
        starts = torch.arange(count).repeat_interleave(degree)
        ends = (starts + torch.randint(1, sized(500, 6), (count * degree,))) % count
        nodes, edges = torch.randn(count, 12), torch.randn(count * degree, 7)
        wanted = torch.randn(count, 3)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> Tensor:
        adam.zero_grad()
        with autocast(on):
            loss = F.mse_loss(model(nodes, edges, starts, ends).float(), wanted)
        loss.backward()
        adam.step()
        return loss.detach()

    return step
