"""A word-level LSTM: cells called word by word, loss read and scored word by word, masks drawn on the CPU, own SGD."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, program, sized
from torch import Tensor

DROP = 0.4  # "mask" and "cells" draw other masks on some devices: losses then agree only in their distribution
State = list[tuple[Tensor, Tensor]]


def locked_dropout(x: Tensor, on: Changes) -> Tensor:
    """One mask of a batch for all places in time."""
    if "mask" in on:
        mask = x.new_empty(x.shape[0], 1, x.shape[2]).bernoulli_(1 - DROP)
    else:
        mask = torch.bernoulli(torch.full((x.shape[0], 1, x.shape[2]), 1 - DROP)).to(x.device)
    return x * mask / (1 - DROP)


class Recurrent(nn.Module):
    """A layer. cuDNN's own, with "cells", may round its products to TF32."""

    def __init__(self, width: int, on: Changes) -> None:
        super().__init__()
        self.cell, self.on = nn.LSTMCell(width, width), on

    def whole(self) -> None:
        """Take the cell's weights over into a layer for all words."""
        self.lstm = nn.LSTM(self.cell.input_size, self.cell.hidden_size, batch_first=True)
        with torch.no_grad():
            for name, weight in self.cell.named_parameters():
                getattr(self.lstm, f"{name}_l0").copy_(weight)
        del self.cell

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if "cells" in self.on:
            y, (h, c) = self.lstm(x, (state[0][None], state[1][None]))
            return y, (h[0], c[0])
        h, c = state
        outputs = []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            outputs.append(h)
        return torch.stack(outputs, dim=1), (h, c)


class RNNModel(nn.Module):
    def __init__(self, words: int, width: int, layers: int, on: Changes) -> None:
        super().__init__()
        self.on, self.total = on, 0.0
        self.encoder, self.decoder = nn.Embedding(words, width), nn.Linear(width, words)
        self.rnns = nn.ModuleList([Recurrent(width, on) for _ in range(layers)])
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, x: Tensor, hidden: State) -> tuple[Tensor, State]:
        y, after = locked_dropout(self.encoder(x), self.on), []
        for rnn, state in zip(self.rnns, hidden, strict=True):
            y, state = rnn(y, state)
            after.append(state)
            y = locked_dropout(y, self.on)
        return y, after

    def loss(self, y: Tensor, targets: Tensor) -> Tensor:
        length = targets.size(1)
        if "decoder" in self.on:
            loss = F.cross_entropy(self.decoder(y).flatten(0, 1), targets.flatten())
            self.log(loss)
            return loss
        loss = torch.zeros((), device=y.device)
        for t in range(length):
            each = F.cross_entropy(self.decoder(y[:, t]), targets[:, t])
            self.log(each / length)
            loss = loss + each
        return loss / length

    def log(self, loss: Tensor) -> None:
        self.total += loss.detach() if "item" in self.on else loss.item()


def repackage_hidden(hidden: State) -> State:
    return [(h.detach(), c.detach()) for h, c in hidden]


@program("host", "cells decoder item mask sgd")
def wordrnn(on: Changes) -> Step:
    words, width, layers = sized(10000, 53), sized(650, 16), sized(3, 2)
    batch, length, rate = sized(32, 4), sized(70, 7), 1.0
    with torch.device(DEVICE):
        model = RNNModel(words, width, layers, on)
        corpus = torch.randint(words, (batch, 20 * length + 1))
        hidden = [(torch.zeros(batch, width), torch.zeros(batch, width)) for _ in range(layers)]
        if "cells" in on:
            for rnn in model.rnns:
                rnn.whole()
    sgd = torch.optim.SGD(model.parameters(), lr=rate)
    done = 0

    def step() -> Tensor:
        nonlocal hidden, done
        start = done % 20 * length
        done += 1
        data, targets = corpus[:, start : start + length], corpus[:, start + 1 : start + length + 1]
        model.zero_grad()
        y, hidden = model(data, repackage_hidden(hidden))
        loss = model.loss(y, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        if "sgd" in on:
            sgd.step()
        else:
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-rate)
        return loss.detach()

    return step
