"""--warmup and --steps on scripts that do not import pyprof: what ends an iteration."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402

from .test_run import main, markers  # noqa: E402

# Each iteration's batches have its number as their size, so a marker's shape says which iteration it belongs to.
PLAIN = """
import torch
net = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(1, 6):
    net(torch.ones(i, 2)).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""
ACCUMULATED = """
import torch
net = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(1, 6):
    for _ in range(3):
        net(torch.ones(i, 2)).sum().backward()
    optimizer.step(); optimizer.zero_grad()
"""
TWO_OPTIMIZERS = """
import torch
d, g = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
first, second = torch.optim.Adam(d.parameters()), torch.optim.SGD(g.parameters(), lr=0.1)
for i in range(1, 6):
    d(torch.ones(i, 2)).sum().backward(); first.step()
    g(torch.ones(i, 2)).sum().backward(); second.step()
"""
SCALED = """
import torch
net = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for i in range(1, 6):
    loss = net(torch.ones(i, 2)).sum() * (float("inf") if i in (1, 3) else 1)
    scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
"""
TOLD = PLAIN.replace("zero_grad()", "zero_grad(); pyprof.step()").replace("import torch", "import torch, pyprof")
CASES = [  # the script, its options, the iteration of each `linear` in the file
    (PLAIN, ["--steps", "2"], [1, 2]),
    (PLAIN, ["--warmup", "2", "--steps", "2"], [3, 4]),
    (PLAIN, ["--warmup", "1", "--steps", "1"], [2]),
    (PLAIN, ["--warmup", "3"], [4, 5]),
    (ACCUMULATED, ["--warmup", "2", "--steps", "2"], [3, 3, 3, 4, 4, 4]),
    (TWO_OPTIMIZERS, ["--warmup", "2", "--steps", "2"], [2, 3, 3, 4]),  # from the end of one first.step() to another
    (SCALED, ["--warmup", "1", "--steps", "2"], [2, 3]),  # the first and the third are skipped
    (TOLD, ["--warmup", "1", "--steps", "2"], [2, 3]),
    (TOLD, ["--steps", "2"], [1, 2]),
]


def linears(file: Path) -> list[int]:
    return [marker.args[0]["shape"][0] for marker in markers(file) if marker.op == "linear"]


@pytest.mark.parametrize(("text", "options", "kept"), CASES)
def test_an_iteration_is_a_period_of_the_first_optimizer(
    tmp_path: Path, text: str, options: list[str], kept: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.py").write_text(text, encoding="utf-8")
    assert main(["-o", str(tmp_path / "net.json.gz"), *options, str(tmp_path / "script.py")]) == 0
    assert linears(tmp_path / "net.json.gz") == kept
    assert "warning" not in capsys.readouterr().err
    from torch.optim import optimizer

    assert not optimizer._global_optimizer_post_hooks


def test_the_last_iteration_has_its_optimizer_s_range(tmp_path: Path) -> None:
    from .test_run import events

    (tmp_path / "script.py").write_text(PLAIN, encoding="utf-8")
    assert main(["-o", str(tmp_path / "net.json.gz"), "--steps", "2", str(tmp_path / "script.py")]) == 0
    names = [str(event.get("name")) for event in events(tmp_path / "net.json.gz")]
    assert names.count("Optimizer.step#SGD.step") == 2


NOT_REACHED = [  # the script, its options, what the file has, what is said
    (PLAIN, ["--steps", "9"], [1, 2, 3, 4, 5], "--steps 9 was not reached: the program ended after 5 iterations"),
    ("import torch\ntorch.nn.Linear(2, 1)(torch.ones(3, 2))", ["--warmup", "1"], [3], "neither optimizer.step() nor"),
]


@pytest.mark.parametrize(("text", "options", "kept", "warning"), NOT_REACHED)
def test_what_there_is_is_written_if_the_limit_is_not_reached(
    tmp_path: Path, text: str, options: list[str], kept: list[int], warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.py").write_text(text, encoding="utf-8")
    assert main(["-o", str(tmp_path / "net.json.gz"), *options, str(tmp_path / "script.py")]) == 0
    assert linears(tmp_path / "net.json.gz") == kept
    assert warning in capsys.readouterr().err


def test_nothing_is_written_where_timed_iterations_did_not_reach_the_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Iterations of a warmup of two or more are timed, and so nothing is profiled before the window."""
    (tmp_path / "script.py").write_text(PLAIN, encoding="utf-8")
    assert main(["-o", str(tmp_path / "net.json.gz"), "--warmup", "9", str(tmp_path / "script.py")]) == 1
    assert not (tmp_path / "net.json.gz").exists()
    told = capsys.readouterr().err
    assert "--warmup 9 was not reached: the program ended after 5 iterations; a lower --warmup" in told


class TestFrameworks:
    """Trainers of the form of Lightning's and of Hugging Face's, under their modules' names."""

    @pytest.mark.parametrize("name", ["pytorch_lightning", "lightning.pytorch", "transformers"])
    def test_a_callback_ends_the_iteration(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hugging_face = name == "transformers"
        package, trainer = types.ModuleType(name), types.ModuleType(f"{name}.trainer")
        code = """
import torch
class Callback:
    on_step_end = on_train_batch_end = lambda *args: None
class Trainer:
    def fit(self):
        net = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(1, 7):
            net(torch.ones(i, 2)).sum().backward()
            if i % 2 == 0: optimizer.step()
            net(torch.ones(10 * i, 2))
            if EVENT == "on_train_batch_end" or i % 2 == 0:
                for callback in list(self.found()): getattr(callback, EVENT)(self, None)
"""
        vars(trainer)["EVENT"] = "on_step_end" if hugging_face else "on_train_batch_end"
        exec(code, vars(trainer))  # noqa: S102  (this test's own text)
        package.Callback = package.TrainerCallback = trainer.Callback  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, package)
        made: Any = trainer.Trainer()
        callbacks: list[Any] = []
        if hugging_face:
            made.callback_handler = types.SimpleNamespace(callbacks=callbacks)
        else:
            made.callbacks = callbacks
        made.found = lambda: callbacks
        with pyprof.profile(tmp_path / "net.json.gz", warmup=1, steps=1):
            made.fit()
        # two batches and one step an iteration, which ends after what the trainer does after the step
        assert linears(tmp_path / "net.json.gz") == [3, 30, 4, 40]
        assert callbacks == []
