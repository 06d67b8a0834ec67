"""A recurrent policy learns to balance poles: cells called time by time, arguments checked, values read at once."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, optimizer, precision, program, sized
from torch import Tensor
from torch.distributions import Categorical


class Poles:
    """Many carts with a pole on each."""

    def __init__(self, count: int) -> None:
        self.state = 0.1 * torch.rand(count, 4, device=DEVICE) - 0.05
        self.age = torch.zeros(count, device=DEVICE)

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place, speed, angle, turn = self.state.unbind(-1)
        force = 10.0 * (2.0 * actions.float() - 1.0)
        sin, cos = angle.sin(), angle.cos()
        push = (force + 0.05 * turn**2 * sin) / 1.1
        turning = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        moving = push - 0.05 * turning * cos / 1.1
        new = [place + 0.02 * speed, speed + 0.02 * moving, angle + 0.02 * turn, turn + 0.02 * turning]
        state = torch.stack(new, dim=-1)
        self.age = self.age + 1
        done = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 0.2) | (self.age >= 200)
        fresh = 0.1 * torch.rand_like(state) - 0.05
        self.state = torch.where(done[:, None], fresh, state)
        self.age = torch.where(done, torch.zeros_like(self.age), self.age)
        return self.state, torch.ones_like(self.age), done.float()


class Policy(nn.Module):
    def __init__(self, width: int, on: Changes) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.together = "cells" in on
        self.memory = nn.GRU(width, width) if self.together else nn.GRUCell(width, width)
        self.actor, self.critic = nn.Linear(width, 2), nn.Linear(width, 1)

    def forward(self, seen: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``seen`` [times, poles, 4]"""
        x = torch.tanh(self.first(seen))
        if self.together:
            y, state = self.memory(x, state[None].contiguous())
            return self.actor(y), self.critic(y).squeeze(-1), state[0]
        states = []
        for one in x:
            state = self.memory(one, state)
            states.append(state)
        y = torch.stack(states)
        return self.actor(y), self.critic(y).squeeze(-1), state


def advantages(rewards: Tensor, values: Tensor, done: Tensor, last: Tensor, on: Changes) -> Tensor:
    if "gae" in on:
        rewards, values, done, last = (part.cpu() for part in (rewards, values, done, last))
    result, sum_ahead = [], torch.zeros_like(last)
    for time in reversed(range(len(rewards))):
        ahead = last if time == len(rewards) - 1 else values[time + 1]
        error = rewards[time] + 0.99 * ahead * (1 - done[time]) - values[time]
        sum_ahead = error + 0.99 * 0.95 * (1 - done[time]) * sum_ahead
        result.insert(0, sum_ahead)
    return torch.stack(result).to(DEVICE)


@program("host", "cells validate gae item fused tf32")
def ppo(on: Changes) -> Step:
    precision(on)
    times, poles, width, parts = sized(56, 6), sized(256, 8), sized(128, 16), 2
    with torch.device(DEVICE):
        policy = Policy(width, on)
        environment = Poles(poles)
    checked = False if "validate" in on else None
    adam = optimizer(torch.optim.Adam, policy.parameters(), on, lr=3e-4, eps=1e-5)
    history: list[float] = []
    seen = environment.state
    gained = torch.zeros(poles, device=DEVICE)

    @torch.no_grad()
    def played() -> tuple[Tensor, ...]:
        nonlocal seen, gained
        state = torch.zeros(poles, width, device=DEVICE)
        rows: list[tuple[Tensor, ...]] = []
        for _ in range(times):
            logits, value, state = policy(seen[None], state)
            choice = Categorical(logits=logits[0], validate_args=checked)
            action = choice.sample()
            before, chance = seen, choice.log_prob(action)
            seen, reward, done = environment.step(action)
            gained = gained + reward
            if "item" not in on and done.any():
                history.append(gained[done > 0].mean().item())
            gained = gained * (1 - done)
            rows.append((before, action, chance, value[0], reward, done))
        _, last, _ = policy(seen[None], state)
        views, actions, chances, values, rewards, done = (torch.stack(column) for column in zip(*rows, strict=True))
        better = advantages(rewards, values, done, last[0], on)
        return views, actions, chances, better, better + values

    def learned(views: Tensor, actions: Tensor, chances: Tensor, better: Tensor, returns: Tensor) -> Tensor:
        logits, values, _ = policy(views, torch.zeros(views.shape[1], width, device=DEVICE))
        choice = Categorical(logits=logits, validate_args=checked)
        change = choice.log_prob(actions) - chances
        better = (better - better.mean()) / (better.std() + 1e-8)
        ratio = change.exp()
        gain = torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
        entropy, error = choice.entropy().mean(), F.mse_loss(values, returns)
        loss = -gain + 0.5 * error - 0.01 * entropy
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        adam.step()
        if "item" not in on:
            apart = ((ratio - 1) - change).mean()
            history.extend((loss.item(), error.item(), entropy.item(), apart.item()))
        return loss.detach()

    def step() -> Tensor:
        played_rows = played()
        loss = torch.zeros((), device=DEVICE)
        for _ in range(2):
            for part in torch.randperm(poles, device=DEVICE).chunk(parts):
                loss = learned(*(column[:, part] for column in played_rows))
        return loss

    return step
