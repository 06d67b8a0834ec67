"""`pyprof run` begins with the program's first call of PyTorch, so that a child that was forked before can use a GPU.

Kineto and the questions that PyTorch asks CUDA initialize CUDA's driver, which does not work in a child of a process
that has done so. A machine without a GPU shows it all the same: here each of these functions writes a line.
"""

import gzip
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.paths import ROOT

torch = pytest.importorskip("torch")
if not hasattr(os, "fork"):
    pytest.skip("forks and signals as on Linux", allow_module_level=True)

from pyprof.capture.collector import all_threads  # noqa: E402
from pyprof.marker import parse_marker  # noqa: E402

pytestmark = pytest.mark.skipif(not all_threads(), reason="a profiler of one thread begins with the program")
LIBRARIES = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
ENVIRON = {**LIBRARIES, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}

# The command, with a line in the file LOG for each call of what initializes CUDA or CUPTI.
TOLD = """
import functools, os, sys, torch
from torch.autograd import profiler

def tell(what):
    with open("log", "a") as log:
        print("child" if os.getpid() != PARENT else "parent", what, file=log)

def telling(owner, name):
    call = getattr(owner, name)
    @functools.wraps(call)
    def told(*args, **kwargs):
        tell(name)
        return call(*args, **kwargs)
    setattr(owner, name, told)

PARENT = os.getpid()
for name in ("is_available", "device_count", "current_device", "synchronize", "_lazy_init", "init"):
    telling(torch.cuda, name)
for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler"):
    telling(profiler, name)
import __main__
sys.modules["told"] = __main__
from pyprof.__main__ import main
sys.exit(main(["run", *sys.argv[1:]]))
"""


def run(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    Path(folder, "script.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-c", TOLD, *options, "script.py"]
    return subprocess.run(command, cwd=folder, env=ENVIRON, capture_output=True, text=True, timeout=300)


def log(folder: Path) -> list[str]:
    return Path(folder, "log").read_text(encoding="utf-8").splitlines()


def ops(folder: Path) -> dict[str, list[str]]:
    """The marked calls of each capture: of the child, and of the parent."""
    found = {}
    for file in folder.glob("*.json.gz"):
        with gzip.open(file, "rt", encoding="utf-8") as text:
            markers = [parse_marker(event["name"]) for event in json.load(text)["traceEvents"] if "name" in event]
        found["parent" if file.name == "net.json.gz" else "child"] = [m.op for m in markers if m is not None]
    return found


WORK = """
import os, sys, torch
from told import tell
def work():
    tell("works")
    sys.stdout.write("")
    tell("first call")
    torch.relu(torch.ones(3))
"""
FORKS = {
    "os.fork": """
if os.fork() == 0:
    work(); os._exit(0)
os.wait()
""",
    "multiprocessing": """
import multiprocessing
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
""",
    "pool": """
import multiprocessing
with multiprocessing.get_context("fork").Pool(1) as pool:
    pool.apply(work)
""",
}


@pytest.mark.parametrize("way", FORKS)
@pytest.mark.parametrize("options", [[], ["--warmup", "1"]], ids=["all", "warmup"])
def test_nothing_of_a_profiler_runs_before_a_fork_and_the_child_s_first_call(
    tmp_path: Path, way: str, options: list[str]
) -> None:
    done = run(tmp_path, WORK + FORKS[way] + 'tell("ends")\n', *options)
    assert done.returncode == 0, done.stderr
    lines = log(tmp_path)
    assert lines[:2] == ["child works", "child first call"]
    assert lines[2:4] == ["child is_available", "child _prepare_profiler"]  # as the child's first call begins
    assert [line for line in lines if line.startswith("parent")] == ["parent ends"]
    assert ops(tmp_path) == {"child": ["ones", "relu"]}


def test_a_forked_child_that_makes_no_call_has_no_profiler(tmp_path: Path) -> None:
    done = run(tmp_path, WORK + "if os.fork() == 0: sys.exit()\nos.wait()\nwork()\n")
    assert done.returncode == 0, done.stderr
    assert not [line for line in log(tmp_path) if line.startswith("child")]


def test_a_parent_s_profiler_begins_with_its_first_call(tmp_path: Path) -> None:
    """What the program itself asks CUDA does not begin it."""
    program = 'import torch\nfrom told import tell\ntorch.cuda.is_available()\ntell("calls")\ntorch.ones(2).relu()\n'
    assert run(tmp_path, program).returncode == 0
    asked = "parent is_available"
    assert log(tmp_path)[:4] == [asked, "parent calls", asked, "parent _prepare_profiler"]
    assert ops(tmp_path) == {"parent": ["ones", "relu"]}


def test_iterations_before_the_window_ask_cuda_nothing(tmp_path: Path) -> None:
    """A parent that trains on a CPU may fork children that use a GPU until its window begins."""
    program = """
import torch
from told import tell
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for number in range(8):
    tell(number)
    net(torch.ones(3, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""
    done = run(tmp_path, program, "--warmup", "4", "--steps", "2")
    assert done.returncode == 0, done.stderr
    lines = log(tmp_path)
    assert lines[:4] == [f"parent {number}" for number in range(4)]
    assert lines[4] == "parent is_available"


@pytest.mark.parametrize(
    "first",
    [
        "import pyprof; pyprof.init()",
        "import pyprof; pyprof.init(); pyprof.deinit()",
        "import pyprof; pyprof.start()",
        "import pyprof; pyprof.step()",
    ],
)
def test_programs_that_use_pyprof_before_their_first_call(tmp_path: Path, first: str) -> None:
    done = run(tmp_path, f"import torch\n{first}\ntorch.ones(2).relu()\n")
    assert done.returncode == 0, done.stderr
    names = ["aten::ones", "aten::relu"] if "deinit" in first else ["ones", "relu"]
    with gzip.open(tmp_path / "net.json.gz", "rt", encoding="utf-8") as text:
        found = [event.get("name") for event in json.load(text)["traceEvents"]]
    marked = ops(tmp_path)["parent"]
    assert marked == names if "deinit" not in first else set(names) <= set(found)


def test_a_first_call_on_a_thread_that_ends(tmp_path: Path) -> None:
    program = """
import threading, torch
def work():
    torch.ones(2).relu()
for _ in range(2):
    thread = threading.Thread(target=work); thread.start(); thread.join()
torch.zeros(3)
"""
    assert run(tmp_path, program).returncode == 0
    assert ops(tmp_path) == {"parent": ["ones", "relu", "ones", "relu", "zeros"]}


def test_a_scripted_module_is_a_first_call(tmp_path: Path) -> None:
    """Its own calls are not seen, nor is that which makes a tensor of an array."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(torch.nn.ReLU()), tmp_path / "net.pt")
    program = 'import numpy, torch\nnet = torch.jit.load("net.pt")\nnet(torch.from_numpy(numpy.ones(3)))\n'
    done = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    with gzip.open(tmp_path / "net.json.gz", "rt", encoding="utf-8") as text:
        assert "aten::relu" in [event.get("name") for event in json.load(text)["traceEvents"]]
