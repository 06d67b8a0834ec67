"""Speech to letters, in fp32: mel features and their masks made anew, gated recurrent units by hand, frame by frame."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, precision, program, sized
from torch import Tensor

RATE, WINDOW, HOP, BANDS, LETTERS = 16000, 400, 160, 80, 29
FREQUENCY_MASK, TIME_MASK = 20, 12


def mel_filters() -> Tensor:
    """Triangles on the mel scale: (BANDS, WINDOW // 2 + 1)."""
    top = 2595.0 * torch.log10(torch.tensor(1.0 + RATE / 2 / 700.0))
    edges = 700.0 * (10.0 ** (torch.linspace(0.0, float(top), BANDS + 2) / 2595.0) - 1.0)
    bins = torch.linspace(0.0, RATE / 2, WINDOW // 2 + 1)
    filters = torch.zeros(BANDS, len(bins))
    for band in range(BANDS):
        low, middle, high = edges[band : band + 3].tolist()
        filters[band] = torch.minimum((bins - low) / (middle - low), (high - bins) / (high - middle)).clamp(min=0.0)
    return filters


class Features(nn.Module):
    """Logarithms of mel energies, with bands and times masked out at random."""

    def __init__(self, on: Changes) -> None:
        super().__init__()
        self.on, self.dice = on, random.Random(5)
        self.register_buffer("window", torch.hann_window(WINDOW, device=DEVICE))
        self.register_buffer("filters", mel_filters().to(DEVICE))

    def forward(self, waves: Tensor) -> Tensor:
        if "tables" in self.on:
            window, filters = self.window, self.filters
        else:
            window, filters = torch.hann_window(WINDOW).to(waves.device), mel_filters().to(waves.device)
        spectrum = torch.stft(waves, WINDOW, HOP, window=window, return_complex=True)[:, :, :-1]
        mel = torch.log(torch.matmul(filters, spectrum.abs().pow(2)) + 1e-6)
        mel = (mel - mel.mean(dim=(1, 2), keepdim=True)) / mel.std(dim=(1, 2), keepdim=True)
        return self.masked(mel)

    def masked(self, mel: Tensor) -> Tensor:
        batch, bands, times = mel.shape
        drawn = []
        for _ in range(batch):
            band, time = self.dice.randrange(bands - FREQUENCY_MASK), self.dice.randrange(times - TIME_MASK)
            drawn.append((band, self.dice.randrange(FREQUENCY_MASK), time, self.dice.randrange(TIME_MASK)))
        if "masks" not in self.on:
            mel = mel.clone()
            for number, (band, high, time, long) in enumerate(drawn):
                mel[number, band : band + high, :] = 0.0
                mel[number, :, time : time + long] = 0.0
            return mel
        band, high, time, long = torch.tensor(drawn).to(mel.device).T[:, :, None]
        every_band, every_time = torch.arange(bands, device=mel.device), torch.arange(times, device=mel.device)
        hidden = ((every_band >= band) & (every_band < band + high))[:, :, None]
        hidden = hidden | ((every_time >= time) & (every_time < time + long))[:, None, :]
        return mel.masked_fill(hidden, 0.0)


class Recurrent(nn.Module):
    """A layer of gated recurrent units; sequences are (time, batch, width)."""

    def __init__(self, inner: int, width: int, on: Changes) -> None:
        super().__init__()
        self.given, self.back = nn.Linear(inner, 3 * width), nn.Linear(width, 3 * width)
        self.width, self.at_once = width, "inputs" in on

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[1], self.width, device=x.device)
        states = []
        given = self.given(x).unbind(0) if self.at_once else ()
        for time in range(x.shape[0]):
            now = given[time] if self.at_once else self.given(x[time])
            reset_x, update_x, new_x = now.chunk(3, dim=-1)
            reset_h, update_h, new_h = self.back(state).chunk(3, dim=-1)
            reset = torch.sigmoid(reset_x + reset_h)
            update = torch.sigmoid(update_x + update_h)
            new = torch.tanh(new_x + reset * new_h)
            state = (1.0 - update) * new + update * state
            states.append(state)
        return torch.stack(states)


class Library(nn.Module):
    """The same layer from the library."""

    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        self.gru = nn.GRU(layer.given.in_features, layer.width, device=layer.given.weight.device)
        with torch.no_grad():
            self.gru.weight_ih_l0.copy_(layer.given.weight)
            self.gru.weight_hh_l0.copy_(layer.back.weight)
            self.gru.bias_ih_l0.copy_(layer.given.bias)
            self.gru.bias_hh_l0.copy_(layer.back.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x)[0]


class Listener(nn.Module):
    def __init__(self, width: int, layers: int, on: Changes) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(BANDS, width, 11, 2, 5), nn.Conv1d(width, width, 5, 1, 2)
        recurrent = [Recurrent(width, width, on) for _ in range(layers)]
        norms = [nn.LayerNorm(width) for _ in range(layers)]
        self.recurrent, self.norms = nn.ModuleList(recurrent), nn.ModuleList(norms)
        self.hidden, self.head = nn.Linear(width, 2 * width), nn.Linear(2 * width, LETTERS)

    def from_library(self) -> None:
        self.recurrent = nn.ModuleList([Library(layer) for layer in self.recurrent])

    def forward(self, mel: Tensor) -> Tensor:
        """Logarithms of the letters' probabilities: (time, batch, LETTERS)."""
        x = F.relu(self.conv2(F.relu(self.conv1(mel)))).permute(2, 0, 1)
        for norm, recurrent in zip(self.norms, self.recurrent, strict=True):
            x = x + recurrent(norm(x))
        return F.log_softmax(self.head(F.relu(self.hidden(x))), dim=-1)


@program("host", "gru inputs tables tf32 masks lengths item")
def speech(on: Changes) -> Step:
    precision(on)
    batch, frames, letters = sized(32, 3), sized(200, 40), sized(20, 4)
    with torch.device(DEVICE):
        model = Listener(sized(640, 24), sized(3, 2), on)
        if "gru" in on:
            model.from_library()
    features = Features(on)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4)
    order = torch.Generator().manual_seed(11)
    recordings = [
        (
            torch.randn(batch, frames * HOP, generator=order),
            torch.randint(frames * 3 // 4, frames + 1, (batch,), generator=order),
            torch.randint(1, LETTERS, (batch, letters), generator=order),
            torch.randint(letters // 2, letters + 1, (batch,), generator=order),
        )
        for _ in range(8)
    ]
    number, history = 0, []

    def step() -> Tensor:
        nonlocal number
        waves, long, spelled, written = recordings[number % len(recordings)]
        number += 1
        times = long // 2  # the first convolution takes two frames at a time
        if "lengths" not in on:
            times, written = times.to(DEVICE), written.to(DEVICE)
        chances = model(features(waves.to(DEVICE)))
        loss = F.ctc_loss(chances, spelled.to(DEVICE), times, written, zero_infinity=True)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        adam.step()
        history.append(loss.detach() if "item" in on else loss.item())
        return loss.detach()

    return step
