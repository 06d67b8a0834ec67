"""Energies of molecules by messages along bonds: projected for each bond, kind by kind, gathered by indexing."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, optimizer, precision, program, sized
from torch import Tensor


class Layer(nn.Module):
    """Messages from both ends of a bond and its length, weighed by the kind of the bond and summed."""

    def __init__(self, width: int, radial: int, kinds: int, on: Changes) -> None:
        super().__init__()
        self.on, self.width, self.kinds = on, width, kinds
        self.first = nn.Linear(2 * width + radial, width)
        self.second = nn.Linear(width, width)
        self.weights = nn.Parameter(1 + 0.1 * torch.randn(kinds, width))
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, atoms: Tensor, bonds: Tensor, kinds: Tensor, lengths: Tensor) -> Tensor:
        messages = self.second(F.silu(self.both(atoms, bonds, lengths)))
        messages = self.weighed(F.silu(messages), kinds)
        sums = torch.zeros_like(atoms, dtype=torch.float32)
        sums = sums.index_add(0, bonds[1], messages.float())
        counts = torch.zeros(len(atoms), device=atoms.device)
        counts = counts.index_add(0, bonds[1], torch.ones(bonds.shape[1], device=atoms.device))
        means = sums / counts.clamp(min=1)[:, None]
        return self.norm(atoms + self.update(torch.cat([atoms, means], dim=-1)))

    def both(self, atoms: Tensor, bonds: Tensor, lengths: Tensor) -> Tensor:
        if "split" in self.on:
            parts = self.first.weight.split([self.width, self.width, lengths.shape[1]], dim=1)
            here, there = F.linear(atoms, parts[0], self.first.bias), F.linear(atoms, parts[1])
            return self.at(here, bonds[0]) + self.at(there, bonds[1]) + F.linear(lengths, parts[2])
        return self.first(torch.cat([self.at(atoms, bonds[0]), self.at(atoms, bonds[1]), lengths], dim=-1))

    def at(self, atoms: Tensor, places: Tensor) -> Tensor:
        return atoms.index_select(0, places) if "gather" in self.on else atoms[places]

    def weighed(self, messages: Tensor, kinds: Tensor) -> Tensor:
        if "batched" in self.on:
            return messages * (F.one_hot(kinds, self.kinds).to(messages.dtype) @ self.weights)
        result = torch.zeros_like(messages)
        for kind in range(self.kinds):
            mask = kinds == kind
            if mask.any():
                result[mask] = (messages[mask] * self.weights[kind]).to(result.dtype)
        return result


class Network(nn.Module):
    def __init__(self, layers: int, width: int, radial: int, kinds: int, on: Changes) -> None:
        super().__init__()
        self.atoms = nn.Embedding(100, width)
        self.register_buffer("centers", torch.linspace(0, 5, radial), persistent=False)
        self.layers = nn.ModuleList(Layer(width, radial, kinds, on) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, atoms: Tensor, places: Tensor, bonds: Tensor, kinds: Tensor, molecules: Tensor) -> Tensor:
        lengths = (places[bonds[0]] - places[bonds[1]]).norm(dim=-1)
        lengths = torch.exp(-4.0 * (lengths[:, None] - self.centers) ** 2)
        x = self.atoms(atoms)
        for layer in self.layers:
            x = layer(x, bonds, kinds, lengths)
        energies = self.head(x).float().squeeze(-1)
        return torch.zeros(int(molecules[-1]) + 1, device=x.device).index_add(0, molecules, energies)


@program("gpu", "tf32 amp split gather batched fused")
def molecules(on: Changes) -> Step:
    precision(on)
    count, each, ways, kinds = sized(640, 3), sized(25, 6), sized(18, 3), 6
    with torch.device(DEVICE):
        model = Network(sized(5, 2), sized(256, 16), sized(64, 8), kinds, on)
        owners = torch.arange(count).repeat_interleave(each)
        atoms = torch.randint(1, 100, (count * each,))
        places = 2.0 * torch.randn(count * each, 3)
        ends = torch.arange(count * each).repeat_interleave(ways)
        starts = ends // each * each + torch.randint(each, (len(ends),))
        bonds = torch.stack([starts, ends])[:, torch.randperm(len(ends))]
        types = torch.randint(kinds, (len(ends),))
        energies = torch.randn(count)
    adam = optimizer(torch.optim.Adam, model.parameters(), on, lr=5e-4)

    def step() -> Tensor:
        adam.zero_grad()
        with autocast(on):
            found = model(atoms, places, bonds, types, owners)
            loss = F.l1_loss(found, energies)
        loss.backward()
        adam.step()
        return loss.detach()

    return step
