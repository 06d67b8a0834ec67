"""A GPT for two ranks in five forms: data parallel, sharded, tensor parallel, in two stages, and with experts.

``job_programs.py`` runs them. Each form has ``extra``: blocks that one rank runs beyond the others, neither sharded nor
synchronised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.nn.functional import all_to_all_single
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

MICROBATCHES = 4


@dataclass(frozen=True)
class Config:
    layers: int
    width: int
    heads: int
    context: int
    batch: int
    vocabulary: int


SIZES = {
    "cuda": Config(layers=4, width=2048, heads=16, context=1024, batch=8, vocabulary=8192),
    "launches": Config(layers=6, width=256, heads=4, context=128, batch=2, vocabulary=1024),  # limited by the host
    "busy": Config(
        layers=4, width=2048, heads=16, context=1024, batch=48, vocabulary=8192
    ),  # GPU, under a profiler too
    "shared": Config(layers=6, width=512, heads=8, context=512, batch=8, vocabulary=8192),  # two ranks on one GPU
    "cpu": Config(layers=2, width=64, heads=4, context=32, batch=4, vocabulary=128),
}


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.head_width = width // config.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        # -1: tensor parallel, a rank has some of the heads
        q, k, v = (part(h).unflatten(2, (-1, self.head_width)).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Experts(nn.Module):
    """One expert per rank. ``shares``: the part of each rank's tokens that goes to each expert."""

    def __init__(self, config: Config, shares: Sequence[float]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.expert = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )
        self.shares = shares

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(x).flatten(0, 1)
        sent = [int(share * len(tokens)) for share in self.shares]
        received = [sent[dist.get_rank()]] * len(sent)  # all ranks send the same parts
        here = all_to_all_single(tokens.new_empty(sum(received), x.shape[2]), tokens, received, sent)
        back = all_to_all_single(torch.empty_like(tokens), self.expert(here).to(tokens.dtype), sent, received)
        return x + back.view_as(x)


class Gpt(nn.Module):
    def __init__(self, config: Config, extra: int, shares: Sequence[float] = ()) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.experts = nn.ModuleList(Experts(config, shares) for _ in range(config.layers if shares else 0))
        self.extra = nn.ModuleList(Block(config) for _ in range(extra))
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for number, block in enumerate(self.blocks):
            x = block(x)
            if len(self.experts):
                x = self.experts[number](x)
        for block in self.extra:
            x = block(x)
        return self.head(x)


class Stage(nn.Module):
    """Half of the blocks: the first stage embeds, the last one has the head."""

    def __init__(self, config: Config, extra: int, rank: int) -> None:
        super().__init__()
        half = config.layers // 2
        self.tokens = nn.Embedding(config.vocabulary, config.width) if rank == 0 else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(half))
        self.extra = nn.ModuleList(Block(config) for _ in range(extra))
        self.head = nn.Linear(config.width, config.vocabulary, bias=False) if rank else None

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.tokens is None else self.tokens(x)
        for block in (*self.blocks, *self.extra):
            x = block(x)
        return x if self.head is None else self.head(x)


Train = Callable[[Tensor, Callable[[], None]], Tensor]  # of a batch, and what to do between forward and backward


def _local(model: nn.Module) -> list[str]:
    """Names of the parameters that each rank keeps for itself."""
    return [name for name, _ in model.named_parameters() if name.startswith(("extra.", "experts."))]


def model_of(form: str, config: Config, device: str, extra: int, shares: Sequence[float]) -> nn.Module:
    torch.manual_seed(0)
    if form == "pipe":
        return Stage(config, extra, dist.get_rank()).to(device)
    with torch.device(device):  # a GPU draws the weights in no time
        model = Gpt(config, extra, shares)
    if form in ("ddp", "moe"):
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, _local(model))
        return DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if device == "cuda" else None)
    if form == "fsdp":
        mesh = dist.init_device_mesh(device, (dist.get_world_size(),), mesh_dim_names=("fsdp",))
        half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=half)
        return fully_shard(model, mesh=mesh, mp_policy=half, ignored_params=set(model.extra.parameters()))
    mesh = dist.init_device_mesh(device, (dist.get_world_size(),), mesh_dim_names=("tp",))
    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "up")} | {
        name: RowwiseParallel() for name in ("out", "down")
    }
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return model


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Fused AdamW, which takes no lists of plain and distributed tensors together."""
    sharded = [p for p in model.parameters() if isinstance(p, DTensor)]
    plain = [p for p in model.parameters() if not isinstance(p, DTensor)]
    return torch.optim.AdamW([{"params": each} for each in (sharded, plain) if each], lr=1e-4, fused=True)


def loss_of(logits: Tensor, ids: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())


def train_of(form: str, model: nn.Module, device: str) -> Train:
    def whole(ids: Tensor, between: Callable[[], None]) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(model(ids), ids)
        between()
        loss.backward()
        return loss.detach()

    def staged(ids: Tensor, between: Callable[[], None]) -> Tensor:
        parts = ids.chunk(MICROBATCHES)
        between()
        return _first_stage(model, parts, device) if dist.get_rank() == 0 else _last_stage(model, parts, device)

    return staged if form == "pipe" else whole


def _first_stage(model: nn.Module, parts: Sequence[Tensor], device: str) -> Tensor:
    made = []
    for part in parts:
        with torch.autocast(device, torch.bfloat16):
            made.append(model(part))
        dist.send(made[-1].detach(), 1)
    for output in made:
        gradient = torch.empty_like(output)
        dist.recv(gradient, 1)
        output.backward(gradient)
    return made[-1].detach().mean()


def _last_stage(model: nn.Module, parts: Sequence[Tensor], device: str) -> Tensor:
    width = model.head.in_features
    inputs, losses = [], []
    for part in parts:
        x = torch.empty(*part.shape, width, device=part.device)
        dist.recv(x, 0)
        inputs.append(x.requires_grad_())
        with torch.autocast(device, torch.bfloat16):
            losses.append(loss_of(model(x), part))
    for x, loss in zip(inputs, losses, strict=True):
        loss.backward()
        dist.send(x.grad, 0)
    return losses[-1].detach()
