"""An actor and ten critics that learn from a replay buffer, each critic with an optimizer of its own."""

import copy
import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from advice_case import graphed
from plan_program import DEVICE, ON_GPU, Changes, Step, optimizer, program, sized
from torch import Tensor

Batch = tuple[Tensor, ...]  # states, actions, rewards, states after, ends, two critics' numbers
CRITICS, UPDATES = 10, 3
DISCOUNT, RATE, SLOW = 0.99, 3e-4, 0.005


class Actor(nn.Module):
    def __init__(self, states: int, actions: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(states, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mean, self.log_spread = nn.Linear(width, actions), nn.Linear(width, actions)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Actions, and the logarithms of their chances."""
        x = self.body(states)
        mean, log_spread = self.mean(x), self.log_spread(x).clamp(-20.0, 2.0)
        noise = torch.randn_like(mean)
        raw = mean + log_spread.exp() * noise
        chances = -0.5 * noise**2 - log_spread - 0.5 * math.log(2 * math.pi)
        chances = chances - 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return torch.tanh(raw), chances.sum(dim=-1)


class Critic(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList((nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, 1)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x).squeeze(-1)


class Ensemble(nn.Module):
    """All critics in one."""

    def __init__(self, critics: nn.ModuleList) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for layers in zip(*(critic.layers for critic in critics), strict=True):
            self.weights.append(torch.stack([layer.weight.detach().t() for layer in layers]))
            self.biases.append(torch.stack([layer.bias.detach()[None] for layer in layers]))

    def forward(self, x: Tensor) -> Tensor:
        """[critics, batch]"""
        x = x.expand(len(self.weights[0]), -1, -1)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = F.relu(torch.baddbmm(bias, x, weight))
        return torch.baddbmm(self.biases[-1], x, self.weights[-1]).squeeze(-1)


class Replay:
    """What was seen, on the host or on the device."""

    def __init__(self, size: int, states: int, actions: int, there: bool) -> None:
        self.chance = np.random.default_rng(0)
        normal = self.chance.standard_normal
        self.fields = [
            normal((size, states), dtype=np.float32),
            np.tanh(normal((size, actions), dtype=np.float32)),
            normal(size, dtype=np.float32),
            normal((size, states), dtype=np.float32),
            (self.chance.random(size) < 0.01).astype(np.float32),
        ]
        self.size, self.there = size, [torch.from_numpy(field).to(DEVICE) for field in self.fields] if there else []

    def sample(self, count: int) -> list[Tensor]:
        rows = self.chance.integers(self.size, size=count)
        if self.there:
            rows_there = torch.from_numpy(rows).to(DEVICE)
            return [field[rows_there] for field in self.there]
        return [torch.as_tensor(field[rows], device=DEVICE) for field in self.fields]

    def pair(self) -> Tensor:
        return torch.from_numpy(self.chance.choice(CRITICS, 2, replace=False))


class Learner:
    def __init__(self, states: int, actions: int, width: int, on: Changes) -> None:
        self.on = on
        with torch.device(DEVICE):
            self.actor = Actor(states, actions, width)
            self.critics: nn.Module = nn.ModuleList(Critic(states + actions, width) for _ in range(CRITICS))
            self.log_heat = nn.Parameter(torch.zeros(()))
        if "batched" in on:
            self.critics = Ensemble(self.critics)
        self.slow = copy.deepcopy(self.critics)
        self.entropy = -float(actions)
        options = {"lr": RATE, "capturable": ON_GPU and "graph" in on}
        each = [self.critics] if "batched" in on else list(self.critics)
        self.for_critics = [optimizer(torch.optim.Adam, one.parameters(), on, **options) for one in each]
        self.for_actor = optimizer(torch.optim.Adam, self.actor.parameters(), on, **options)
        self.for_heat = optimizer(torch.optim.Adam, [self.log_heat], on, **options)
        self.log: dict[str, float] = {}

    def read(self, name: str, value: Tensor) -> None:
        if "item" not in self.on:
            self.log[name] = value.item()

    def heat(self) -> Tensor | float:
        heat = self.log_heat.detach().exp()
        return heat if "item" in self.on else heat.item()

    def values(self, x: Tensor) -> Tensor:
        """[critics, batch]"""
        if "batched" in self.on:
            return self.critics(x)
        return torch.stack([critic(x) for critic in self.critics])

    @torch.no_grad()
    def wanted(self, rewards: Tensor, after: Tensor, ends: Tensor, pair: Tensor) -> Tensor:
        actions, chances = self.actor(after)
        x = torch.cat((after, actions), dim=-1)
        if "batched" in self.on:
            values = self.slow(x).index_select(0, pair)
        else:
            values = torch.stack([self.slow[number](x) for number in pair.tolist()])
        return rewards + DISCOUNT * (1 - ends) * (values.min(dim=0).values - self.heat() * chances)

    def update_critics(self, x: Tensor, wanted: Tensor) -> Tensor:
        """Their mean loss."""
        if "batched" in self.on:
            losses = (self.values(x) - wanted).pow(2).mean(dim=1)
            self.for_critics[0].zero_grad()
            losses.sum().backward()
            self.for_critics[0].step()
            self.read("critics", losses.mean())
            return losses.detach().mean()
        found = []
        for number, (critic, adam) in enumerate(zip(self.critics, self.for_critics, strict=True)):
            loss = F.mse_loss(critic(x), wanted)
            adam.zero_grad()
            loss.backward()
            adam.step()
            self.read(f"critic {number}", loss)
            found.append(loss.detach())
        return torch.stack(found).mean()

    @torch.no_grad()
    def follow(self) -> None:
        if "ema" in self.on:
            torch._foreach_lerp_(list(self.slow.parameters()), list(self.critics.parameters()), SLOW)
            return
        for slow, fast in zip(self.slow.parameters(), self.critics.parameters(), strict=True):
            slow.data.copy_(SLOW * fast.data + (1 - SLOW) * slow.data)

    def update_actor(self, states: Tensor) -> None:
        actions, chances = self.actor(states)
        x = torch.cat((states, actions), dim=-1)
        values = self.values(x)
        loss = (self.heat() * chances - values.mean(dim=0)).mean()
        self.for_actor.zero_grad()
        loss.backward()
        self.for_actor.step()
        heat_loss = -(self.log_heat.exp() * (chances.detach() + self.entropy)).mean()
        self.for_heat.zero_grad()
        heat_loss.backward()
        self.for_heat.step()
        self.read("actor", loss)
        self.read("entropy", -chances.mean())

    def tensors(self) -> list[Tensor]:
        parts = (self.actor, self.critics, self.slow)
        return [value.detach() for part in parts for value in part.parameters()] + [self.log_heat.detach()]

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [*self.for_critics, self.for_actor, self.for_heat]

    def learn(self, batches: list[Batch]) -> Tensor:
        total = torch.zeros((), device=DEVICE)
        for states, actions, rewards, after, ends, pair in batches:
            wanted = self.wanted(rewards, after, ends, pair)
            total += self.update_critics(torch.cat((states, actions), dim=-1), wanted)
            self.follow()
        self.update_actor(batches[-1][0])
        return total / len(batches)


def replayed(learner: Learner, batches: list[Batch]) -> Callable[[list[Batch]], Tensor]:
    """Learning as one CUDA graph, which reads its batches from fixed places."""
    kept = [tuple(part.clone() for part in batch) for batch in batches]
    loss = torch.zeros((), device=DEVICE)
    tensors = learner.tensors()
    values = [tensor.clone() for tensor in tensors]
    run = graphed(lambda: loss.copy_(learner.learn(kept)))
    torch._foreach_copy_(tensors, values)  # the steps before the capture taught something
    for adam in learner.optimizers():
        for state in adam.state.values():
            torch._foreach_zero_(list(state.values()))

    def learn(batches: list[Batch]) -> Tensor:
        for old, new in zip(kept, batches, strict=True):
            torch._foreach_copy_(list(old), list(new))
        run()
        return loss

    return learn


@program("host", "item batched ema replay fused graph", needs={"graph": "item batched"})
def redq(on: Changes) -> Step:
    states, actions, batch = sized(111, 11), sized(8, 3), sized(256, 32)
    learner = Learner(states, actions, sized(256, 32), on)
    replay = Replay(sized(100_000, 500), states, actions, "replay" in on)
    learn = learner.learn

    def sample() -> list[Batch]:
        found = []
        for _ in range(UPDATES):
            fields, pair = replay.sample(batch), replay.pair()
            found.append((*fields, pair.to(DEVICE) if "batched" in on else pair))
        return found

    if "graph" in on:
        chance = copy.deepcopy(replay.chance)
        learn = replayed(learner, sample())
        replay.chance = chance

    def step() -> Tensor:
        return learn(sample()).clone()

    return step
