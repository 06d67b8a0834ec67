"""Programs that call a module several times in a step, run on the CPU: whether one call would do is known by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

import pyprof
from pyprof.prof.advice import Run
from pyprof.prof.edits.edit import Edit
from pyprof.prof.edits.rules import EDIT_RULES
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


class MLP(nn.Module):
    def __init__(self, taken, made, width=64):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(taken, width), nn.Linear(width, width), nn.Linear(width, made)

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


class Other(MLP):
    pass


class Cell(nn.Module):
    """A state of 32 goes from call to call; the result is another tensor."""

    def __init__(self):
        super().__init__()
        self.mlp, self.out = MLP(48, 32), nn.Linear(32, 9)

    def forward(self, x, state):
        state = self.mlp(torch.cat([x, state], -1))
        return self.out(state), state


class Memory(nn.Module):
    """The first two places of a sequence are the memory of the next one."""

    def __init__(self):
        super().__init__()
        self.memory, self.mlp, self.out = nn.Parameter(torch.randn(4, 2, 32)), MLP(32, 32), nn.Linear(32, 7)

    def forward(self, x, memory):
        y = self.mlp(torch.cat([memory, x], 1))
        return self.out(y[:, 2:]), y[:, :2]


class Shared(nn.Module):
    """One layer applied three times, as in ALBERT."""

    def __init__(self):
        super().__init__()
        self.words, self.layer, self.out = nn.Embedding(50, 32), MLP(32, 32), nn.Linear(32, 50)

    def forward(self, x):
        x = self.words(x)
        for _ in range(3):
            x = self.layer(x)
        return self.out(x)


class Images(nn.Module):
    """A small ViT, but for attention."""

    def __init__(self):
        super().__init__()
        self.patches, self.layer, self.out = nn.Conv2d(3, 32, 4, 4), MLP(32, 32), nn.Linear(32, 6)
        self.cls, self.places = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(torch.zeros(1, 17, 32))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.places
        return self.out((x + self.layer(x))[:, 0])


X, WORDS = torch.randn(32, 16), torch.randint(50, (4, 6))


def guidance(model):
    c, u = model(X), model(X)
    v = u + 3.0 * (c - u)
    return X + 0.1 * v


def conditioned_on_itself(model):
    y = model(model(X))
    return y + 0.5 * (X - y) + 0.1 * torch.randn_like(X)


def heun(model):
    d = model(X)
    return X + 0.05 * (d + model(X + 0.1 * d))


def euler(model):
    x = X
    for _ in range(4):
        x = x + 0.1 * model(x)
    return x


def idempotent(model):
    y = model(X)
    return (model(y) - y).abs().mean()


def recurrent(cell):
    state, results = torch.zeros(4, 32), []
    for x in torch.randn(3, 4, 16):
        y, state = cell(x, state)
        results.append(y)
    return torch.stack(results)


def remembered(model):
    first, memory = model(torch.randn(4, 6, 32), model.memory)
    return first.sum() + model(torch.randn(4, 6, 32), memory)[0].sum()


def judged(critic):
    return F.softplus(-critic(X)).mean() + F.softplus(critic(2 * X)).mean()


def pairs(model, x, other):
    return (F.normalize(model(x), dim=-1) * F.normalize(model(other), dim=-1)).sum()


def pictures(model):
    return pairs(model, torch.randn(4, 3, 16, 16), torch.randn(4, 3, 16, 16))


def target(model):
    with torch.no_grad():
        wanted = model(2 * X)
    return (model(X) - wanted).pow(2).mean()


def twins(models):
    return (models[0](X) - models[1](X)).pow(2).mean()


def perceived(models):
    made = models[0](X)
    return (models[1](2 * X) - models[1](made)).abs().mean()


CASES = [
    # inference: (program, module, training, what is proposed)
    (guidance, MLP(16, 16), False, "MLP"),
    (conditioned_on_itself, MLP(16, 16), False, ""),
    (heun, MLP(16, 16), False, ""),
    (euler, MLP(16, 16), False, ""),
    (idempotent, MLP(16, 16), False, ""),
    (recurrent, Cell(), False, ""),
    (remembered, Memory(), False, ""),
    (pictures, Images(), False, ""),
    (twins, [MLP(16, 1), MLP(16, 1)], False, ""),
    # training
    (judged, MLP(16, 1), True, "MLP"),
    (pictures, Images(), True, "Images"),
    (lambda model: pairs(model, WORDS, WORDS.flip(0)), Shared(), True, "Shared"),
    (perceived, [Other(16, 16), MLP(16, 8)], True, "MLP"),
    (lambda model: model(WORDS).sum(), Shared(), True, ""),
    (idempotent, MLP(16, 16), True, ""),
    (recurrent, Cell(), True, ""),
    (remembered, Memory(), True, ""),
    (target, MLP(16, 1), True, ""),
    (twins, [MLP(16, 1), MLP(16, 1)], True, ""),
]


def proposed(file):
    """The module whose calls the rule would join; empty if it abstains."""
    table = load_table(str(file)).table
    none = np.zeros(0, np.int64)
    calls = SimpleNamespace(before=none, among=lambda *kinds: none.astype(bool))
    base = SimpleNamespace(recorded=SimpleNamespace(calls=calls), pauses=none.astype(bool))
    run = Run(table, annotate(table))
    scenario = SimpleNamespace(run=run, table=table, before=None, calls=lambda rows: none, base=base)
    (only,) = EDIT_RULES["joined_calls"](scenario)
    return only.change.split()[1] if isinstance(only, Edit) else ""


@pytest.mark.parametrize(("program", "model", "training", "module"), CASES)
def test_it_is_known_whether_one_call_would_do(tmp_path, program, model, training, module):
    def step():
        with torch.set_grad_enabled(training):
            made = program(model)
        if training:
            made.sum().backward()

    step()
    with pyprof.profile(tmp_path / "net.json"):
        for _ in range(2):
            step()
            pyprof.step()
    assert proposed(tmp_path / "net.json") == module
