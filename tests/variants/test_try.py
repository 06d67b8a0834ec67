"""`pyprof try`: runs of small scripts on the CPU, each in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

pytest.importorskip("torch")

LIBRARIES = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}  # torch may need it

# Under autocast the layer's result is bf16, which this module refuses; without, it computes in fp32.
TRAINING = """
import sys, torch
torch.manual_seed(3)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)
    def forward(self, x):
        y = self.layer(x)
        if y.dtype != torch.float32:
            print("goodbye")
            raise ValueError(f"no {y.dtype} here")
        return y
model = Model()
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
for i in range(12):
    loss = model(torch.ones(4, 32)).square().sum()
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    if i < 3:
        print(f"loss {loss.item():.6f}")
print("the end", sys.argv[1:])
sys.exit(3)
"""


def pyprof_try(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `pyprof try` with `script.py` in the place of the word SCRIPT."""
    (folder / "script.py").write_text(text, encoding="utf-8")
    code = "import sys; from pyprof.cli import main; sys.exit(main(['try', *sys.argv[1:]]))"
    given = [word if word != "SCRIPT" else "script.py" for word in words]
    return subprocess.run(
        [sys.executable, "-c", code, *given],
        cwd=folder,
        env={**LIBRARIES, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=500,
    )


def alone(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "script.py", *args]
    return subprocess.run(
        command, cwd=folder, env={**LIBRARIES, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("try")
    words = "--repeat 1 --warmup 2 --steps 6 SCRIPT --with amp,optimizer,zero_grad,channels_last,tf32 --lr 7"
    return folder, pyprof_try(folder, TRAINING, *words.split())


def test_the_script_has_its_own_output_exit_code_and_arguments(
    tried: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = tried
    own = alone(folder, "--lr", "7")
    assert (done.returncode, own.returncode) == (3, 3)
    assert done.stdout == own.stdout
    assert done.stdout.endswith("the end ['--lr', '7']\n")
    assert [path.name for path in folder.iterdir()] == ["script.py"]  # nothing is written beside it


def test_a_variant_that_fails_says_its_error_and_the_others_are_measured(
    tried: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    lines = tried[1].stderr.splitlines()
    assert any(line.split() == "amp ValueError: no torch.bfloat16 here".split() for line in lines)
    measured = [line.split()[0] for line in lines if line.endswith(("%", "noise"))]
    assert measured == ["optimizer", "zero_grad"]


def test_a_variant_that_changes_nothing_says_why(tried: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    text = " ".join(tried[1].stderr.split())
    assert "channels_last the modules that the script calls have no 2-d or 3-d convolutions" in text
    assert "tf32 the script uses no GPU" in text


def test_losses_stand_beside_the_original_s(tried: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    printed = [float(line.split()[1]) for line in tried[1].stdout.splitlines() if line.startswith("loss")]
    lines = tried[1].stderr.splitlines()
    rows = lines[next(i for i, line in enumerate(lines) if line.startswith("loss")) + 1 :][:3]
    assert [row.split()[0] for row in rows] == ["as", "optimizer", "zero_grad"]
    for row in (rows[0].removeprefix("as it is"), rows[1], rows[2]):
        shown = [float(word) for word in row.split() if word[0].isdigit()][:3]
        assert shown == pytest.approx(printed, rel=1e-4)


INFERENCE = """
import torch, time
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
with torch.no_grad():
    for i in range({calls}):
        model(torch.ones(2, 8))
        time.sleep(0.02)
print("late")
"""


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_json_has_the_runs_and_the_script_prints_on_standard_error(tmp_path: Path) -> None:
    words = "--json --repeat 1 --warmup 1 --steps 4 --with compile SCRIPT"
    done = pyprof_try(tmp_path, TRAINING, *words.split())
    document = answer(done)
    assert done.returncode == document["exit_code"] == 3
    assert "the end" in done.stderr
    assert (document["schema"], document["steps_by"], document["device"]) == ("pyprof/try/1", "optimizer.step()", "")
    assert document["as_it_is"]["steps"] == 8  # 4 of the first run, and 4 of the last, which shows the noise
    (variant,) = document["variants"]
    assert variant["changes"] == ["compile"]
    assert variant["loss_difference"] < 1e-5
    assert variant["done"] == ["torch.compile(Model)"]
    import jsonschema

    from pyprof.command.schemas import schemas

    jsonschema.validate(document, schemas("try"))


def test_steps_of_inference_are_calls_and_a_variant_stops_after_them(tmp_path: Path) -> None:
    words = "--json --repeat 1 --warmup 2 --steps 3 --rest 0 --with amp --logs logs SCRIPT"
    done = pyprof_try(tmp_path, INFERENCE.format(calls=3000), *words.split())  # which take a minute
    document = answer(done)
    assert done.returncode == 0
    assert document["steps_by"] == "module calls"
    assert document["as_it_is"]["ms"] >= 20  # the pause
    assert document["as_it_is"]["losses"] == []
    assert "late" not in done.stderr  # the first run was stopped, too: --rest 0
    assert sorted(path.name for path in (tmp_path / "logs").glob("02*")) == [
        "02-amp.err",
        "02-amp.json",
        "02-amp.out",
        "02-amp.settings.json",
    ]


def test_a_script_without_steps_is_an_error_and_a_failing_one_keeps_its_code(tmp_path: Path) -> None:
    none = pyprof_try(tmp_path, "print('nothing')", "--with", "amp", "SCRIPT")
    assert (none.returncode, none.stdout) == (1, "nothing\n")
    assert "expected two steps or more, found fewer" in none.stderr
    failing = pyprof_try(tmp_path, "import sys\nsys.exit(7)", "--with", "amp", "SCRIPT")
    assert failing.returncode == 7


def test_wrong_usage(tmp_path: Path) -> None:
    unknown = pyprof_try(tmp_path, "", "--with", "magic", "SCRIPT")
    assert unknown.returncode == 2
    assert "expected changes among tf32, cudnn_benchmark, amp" in unknown.stderr
    unplanned = pyprof_try(tmp_path, "", "SCRIPT", "--plan")
    assert unplanned.returncode == 2
    assert "a capture has to say what to plan" in unplanned.stderr
    missing = pyprof_try(tmp_path, "", "none.py")
    assert missing.returncode == 1
    assert "none.py: no such file" in missing.stderr
