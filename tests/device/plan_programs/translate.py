"""Translation with LSTMs: padded sentences packed, a decoder that goes word by word and reads each word's loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, optimizer, precision, program, sized
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD = 0


class Encoder(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=PAD)
        self.lstm = nn.LSTM(width, width // 2, 2, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.words(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=ids.shape[1])
        return states


class Decoder(nn.Module):
    """``rnn``: all words of a sentence at once, since the words before are known in training."""

    def __init__(self, words: int, width: int, on: Changes) -> None:
        super().__init__()
        self.on, self.width = on, width
        self.words = nn.Embedding(words, width, padding_idx=PAD)
        if "rnn" in on:
            self.lstm = nn.LSTM(width, width, batch_first=True)
        else:
            self.cell = nn.LSTMCell(width, width)
        self.join, self.head = nn.Linear(2 * width, width), nn.Linear(width, words)

    def attended(self, state: Tensor, source: Tensor, there: Tensor) -> Tensor:
        """``state`` [batch, words, width]"""
        scores = torch.bmm(state, source.transpose(1, 2).to(state.dtype)).masked_fill(~there[:, None], -1e4)
        seen = torch.bmm(scores.softmax(-1).to(state.dtype), source.to(state.dtype))
        return torch.tanh(self.join(torch.cat([state, seen], dim=-1)))

    def forward(self, source: Tensor, there: Tensor, ids: Tensor, targets: Tensor) -> tuple[Tensor, float]:
        if "rnn" in self.on:
            outputs = self.attended(self.lstm(self.words(ids))[0], source, there)
            return self.loss(outputs.flatten(0, 1), targets.flatten()), 0.0
        state = source.new_zeros(len(ids), self.width), source.new_zeros(len(ids), self.width)
        outputs, losses, read = [], [], 0.0
        for place in range(ids.shape[1]):
            state = self.cell(self.words(ids[:, place]), state)
            output = self.attended(state[0][:, None], source, there)[:, 0]
            if "logits" in self.on:
                outputs.append(output)
                continue
            losses.append(self.loss(output, targets[:, place]))
            if "item" not in self.on:
                read += losses[-1].item()
        if "logits" in self.on:
            return self.loss(torch.stack(outputs, dim=1).flatten(0, 1), targets.flatten()), 0.0
        return torch.stack(losses).mean(), read

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.head(output), targets, ignore_index=PAD)


class Translator(nn.Module):
    def __init__(self, words: int, width: int, on: Changes) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(words, width), Decoder(words, width, on)

    def forward(self, source: Tensor, lengths: Tensor, ids: Tensor, targets: Tensor) -> tuple[Tensor, float]:
        there = torch.arange(source.shape[1], device=source.device) < lengths[:, None]
        return self.decoder(self.encoder(source, lengths), there, ids, targets)


@program("host", "item logits rnn tf32 amp vocabulary clip fused")
def translate(on: Changes) -> Step:
    precision(on)
    words, batch, length = sized(20011, 61), sized(96, 3), sized(40, 6)
    vocabulary = sized(20032, 64) if "vocabulary" in on else words
    with torch.device(DEVICE):
        model = Translator(vocabulary, sized(512, 16), on)
        source = torch.randint(1, words, (batch, length))
        lengths = torch.randint(length // 2, length + 1, (batch,))
        source = source.where(torch.arange(length) < lengths[:, None], PAD)
        target = torch.randint(1, words, (batch, length + 1))
    adam = optimizer(torch.optim.Adam, model.parameters(), on, lr=1e-3, foreach=False)
    history: list[float] = []

    def step() -> Tensor:
        adam.zero_grad()
        with autocast(on):
            loss, read = model(source, lengths, target[:, :-1], target[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0, foreach="clip" in on)
        adam.step()
        history.append(read)
        return loss.detach()

    return step
