"""Loops in Python over experts, samples, boxes and time steps, and the same without the loop."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from advice_case import DEVICE, HALF, Step, case, inferred, randn, some, trained
from torch import Tensor


class Experts(nn.Module):
    """Each token goes through the ``each`` experts that its router likes best."""

    def __init__(self, count: int, width: int, hidden: int, each: int, looped: bool) -> None:
        super().__init__()
        self.each, self.looped = each, looped
        self.router = nn.Linear(width, count)
        self.up = nn.Parameter(0.02 * torch.randn(count, width, hidden))
        self.down = nn.Parameter(0.02 * torch.randn(count, hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        weight, chosen = self.router(x).softmax(-1).topk(self.each, dim=-1)
        return x + (self.loop(x, weight, chosen) if self.looped else self.sorted(x, weight, chosen))

    def loop(self, x: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        for expert in range(len(self.up)):
            token, place = torch.where(chosen == expert)
            y = F.gelu(x[token] @ self.up[expert]) @ self.down[expert]
            result.index_add_(0, token, (y * weight[token, place, None]).to(x.dtype))
        return result

    def sorted(self, x: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
        experts, order = chosen.flatten().sort(stable=True)
        token = order // self.each
        ends = torch.bincount(experts, minlength=len(self.up)).cumsum(0)
        y = self.products(x[token], experts, ends)
        y = y * weight.flatten()[order, None]
        return torch.zeros_like(x).index_add_(0, token, y.to(x.dtype))

    def products(self, x: Tensor, experts: Tensor, ends: Tensor) -> Tensor:
        if x.dtype == HALF and x.is_cuda:
            ends = ends.int()
            return torch._grouped_mm(F.gelu(torch._grouped_mm(x, self.up, ends)), self.down, ends)
        # Batches of as many rows as the largest expert has: one size is read.
        begins = F.pad(ends, (1, 0))[:-1]
        most = int((ends - begins).max())
        place = torch.arange(len(x), device=x.device) - begins[experts]
        padded = x.new_zeros(len(self.up), most, x.shape[1]).index_put((experts, place), x)
        return torch.bmm(F.gelu(torch.bmm(padded, self.up)), self.down)[experts, place]


@case("mask_loop", "loops")
def masked_experts(changed: bool) -> Step:
    layer = Experts(16, 512, 1024, 2, not changed).to(DEVICE, HALF)
    return trained(layer, randn(some(4096), 512, grad=True))


@case("mask_loop", "loops")
def masked_experts_fp32(changed: bool) -> Step:
    layer = Experts(32, 256, 512, 1, not changed).to(DEVICE)
    return inferred(layer, randn(some(16384), 256, dtype=torch.float32))


class Pooled(nn.Module):
    """A projection of the words that are there, and their mean, sentence by sentence."""

    def __init__(self, width: int, looped: bool) -> None:
        super().__init__()
        self.looped = looped
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        if self.looped:
            return torch.stack([self.project(x[i][there[i]]).mean(0) for i in range(len(x))])
        y = self.project(x[there])
        result = y.new_zeros(len(x), y.shape[1])
        of = torch.arange(len(x), device=x.device)[:, None].expand_as(there)[there]
        return result.index_add_(0, of, y) / there.sum(1, keepdim=True)

    def project(self, x: Tensor) -> Tensor:
        return self.second(F.silu(self.first(x)))


@case("mask_loop", "loops")
def masked_sentences(changed: bool) -> Step:
    there = torch.rand(32, 256, device=DEVICE) < 0.6
    return trained(Pooled(512, not changed).to(DEVICE), randn(32, 256, 512, dtype=torch.float32, grad=True), there)


@case("mask_loop", "loops")
def masked_boxes(changed: bool) -> Step:
    """The mean of each class's boxes, by their scores."""
    classes = 40
    boxes, scores = randn(some(20000), 4, dtype=torch.float32), torch.rand(some(20000), device=DEVICE)
    labels = torch.randint(classes, (len(boxes),), device=DEVICE)

    def looped() -> Tensor:
        found = []
        for label in range(classes):
            keep = labels == label
            weight = scores[keep]
            found.append((boxes[keep] * weight[:, None]).sum(0) / weight.sum())
        return torch.stack(found)

    def grouped() -> Tensor:
        sums = boxes.new_zeros(classes, 4).index_add_(0, labels, boxes * scores[:, None])
        return sums / boxes.new_zeros(classes).index_add_(0, labels, scores)[:, None]

    return grouped if changed else looped


class Recurrent(nn.Module):
    """A recurrent layer by cells in a loop over time, or as one call, and a head for each word."""

    def __init__(self, kind: str, width: int, words: int, looped: bool, late: bool) -> None:
        super().__init__()
        self.looped, self.late = looped, late
        if looped:
            self.cell = nn.LSTMCell(width, width) if kind == "lstm" else nn.GRUCell(width, width)
        else:
            self.layer = (nn.LSTM if kind == "lstm" else nn.GRU)(width, width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        if not self.looped:
            return self.head(self.layer(x)[0])
        state = x.new_zeros(len(x), x.shape[-1])
        pair, found = (state, state), []
        for place in range(x.shape[1]):
            if isinstance(self.cell, nn.LSTMCell):
                pair = self.cell(x[:, place], pair)
                state = pair[0]
            else:
                state = self.cell(x[:, place], state)
            found.append(state if self.late else self.head(state))
        states = torch.stack(found, dim=1)
        return self.head(states) if self.late else states


@case("cell_loop", "loops")
def lstm_cells(changed: bool) -> Step:
    model = Recurrent("lstm", 512, 1000, not changed, late=True).to(DEVICE)
    return trained(model, randn(64, 48, 512, dtype=torch.float32, grad=True))


@case("cell_loop", "loops")
def gru_cells(changed: bool) -> Step:
    model = Recurrent("gru", 256, 100, not changed, late=False).to(DEVICE, HALF)
    return inferred(model, randn(32, 64, 256))
