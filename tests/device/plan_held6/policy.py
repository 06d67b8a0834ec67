"""A game's policy trained by PPO: advantages summed step by step on the GPU, small batches, much read and printed."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, optimizer, program, sized
from torch import Tensor


class Player(nn.Module):
    """Pictures of a game to chances of moves, and the game's worth."""

    def __init__(self, side: int, width: int, moves: int) -> None:
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()
        )
        left = ((side - 8) // 4 + 1 - 4) // 2 + 1 - 2
        self.join = nn.Linear(64 * left * left, width)
        self.moves, self.worth = nn.Linear(width, moves), nn.Linear(width, 1)

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.join(self.eyes(pictures).flatten(1)))
        return self.moves(x), self.worth(x).squeeze(1)


def advantages(rewards: Tensor, worths: Tensor, ended: Tensor, on: Changes) -> Tensor:
    """All [times, games]; ``worths`` has one time more."""
    decay, share = 0.99, 0.95
    if "on_host" in on:
        device = rewards.device
        rewards, worths, ended = rewards.cpu(), worths.cpu(), ended.cpu()
    result = torch.zeros_like(rewards)
    last = torch.zeros_like(rewards[0])
    for time in reversed(range(len(rewards))):
        going = 1.0 - ended[time]
        error = rewards[time] + decay * worths[time + 1] * going - worths[time]
        last = error + decay * share * going * last
        result[time] = last
    return result.to(device) if "on_host" in on else result


def loss_of(player: Player, part: dict[str, Tensor], on: Changes) -> tuple[Tensor, Tensor]:
    """The loss, and how far the policy has moved."""
    pictures = part["pictures"] if "scaled" in on else part["pictures"].float() / 255.0
    with autocast(on):
        scores, worth = player(pictures)
    if "distribution" in on:
        chances = scores.float().log_softmax(-1)
        chosen = chances.gather(1, part["moves"][:, None]).squeeze(1)
        entropy = -(chances.exp() * chances).sum(-1).mean()
    else:
        distribution = torch.distributions.Categorical(logits=scores.float())
        chosen, entropy = distribution.log_prob(part["moves"]), distribution.entropy().mean()
    ratio = (chosen - part["chances"]).exp()
    gains = part["gains"]
    gains = (gains - gains.mean()) / (gains.std() + 1e-8)
    better = -torch.min(gains * ratio, gains * ratio.clamp(0.8, 1.2)).mean()
    away = (worth.float() - part["returns"]).square().mean()
    return better + 0.5 * away - 0.01 * entropy, (part["chances"] - chosen).mean().detach()


@program("host", "fused on_host item distribution amp scaled")
def policy(on: Changes) -> Step:
    times, games, moves, side = sized(128, 6), sized(16, 3), sized(6, 4), sized(84, 36)
    count, small = times * games, times * games // sized(8, 3)
    with torch.device(DEVICE):
        player = Player(side, sized(512, 16), moves)
        kept = {
            "pictures": torch.randint(0, 256, (count, 4, side, side), dtype=torch.uint8),
            "moves": torch.randint(moves, (count,)),
            "chances": torch.full((count,), -math.log(moves)),
        }
        rewards, worths = torch.randn(times, games), 0.1 * torch.randn(times + 1, games)
        ended = (torch.rand(times, games) < 0.02).float()
    adam = optimizer(torch.optim.Adam, player.parameters(), on, lr=2.5e-4, eps=1e-5, foreach=False)
    history: list[float] = []
    total = torch.zeros((), device=DEVICE)

    def step() -> Tensor:
        gains = advantages(rewards, worths, ended, on)
        all_of = kept | {"gains": gains.flatten(), "returns": (gains + worths[:-1]).flatten()}
        if "scaled" in on:
            all_of["pictures"] = all_of["pictures"].float() / 255.0
        losses = []
        for _ in range(2):
            order = torch.randperm(count, device=DEVICE)
            for begin in range(0, count, small):
                rows = order[begin : begin + small]
                loss, moved = loss_of(player, {name: table[rows] for name, table in all_of.items()}, on)
                adam.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(player.parameters(), 0.5)
                adam.step()
                losses.append(loss.detach())
                if "item" in on:
                    total.add_(moved)
                else:
                    history.extend((loss.item(), moved.item()))
        return torch.stack(losses).mean()

    return step
