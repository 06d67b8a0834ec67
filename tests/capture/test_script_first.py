"""Programs run by plain Python and by `pyprof run`: their output and their exit code are identical."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.paths import ROOT

pytest.importorskip("torch")

from .test_run import LIBRARIES, events, markers

ENVIRON = {**LIBRARIES, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
NET = """
import torch
from torch.profiler import ProfilerActivity, profile, schedule
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def train():
    net(torch.ones(3, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
def names(p):
    return sorted((e.key, e.count) for e in p.key_averages())
"""
PROGRAMS = {
    "profiler": NET
    + """
train()
with profile(activities=[ProfilerActivity.CPU]) as p:
    train()
train()
print(names(p))
p.export_chrome_trace("own.json")
""",
    "profiler with a schedule": NET
    + """
import warnings; warnings.simplefilter("ignore")
def ready(p):
    print(p.step_num, names(p))
    p.export_chrome_trace(f"own{p.step_num}.json")
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
             on_trace_ready=ready) as p:
    for _ in range(10):
        train(); p.step()
""",
    "profilers of the autograd module": NET
    + """
with torch.autograd.profiler.profile() as p:
    train()
print(names(p))
with torch.autograd.profiler.profile(use_kineto=False) as p:
    train()
print(names(p))
""",
    "profiler around a failure": NET + "with profile(activities=[ProfilerActivity.CPU]):\n    train(); 1 / 0\n",
    "what a script sees": """
import os, sys, __main__
print(__file__, sys.argv, sys.path, __name__, __package__, __spec__, __cached__, __doc__, __builtins__)
print(sorted(vars(__main__)), vars(__main__) is globals(), sys.modules["__main__"] is __main__)
os.chdir("/")
print(open(__file__).readline(), os.path.samefile(__file__, __main__.__file__))
""",
    "exit code and handlers": """
import argparse, atexit, sys, threading, time
parser = argparse.ArgumentParser(); parser.add_argument("--lr", type=float); parser.add_argument("--name")
print(parser.parse_args())
""",
    "a thread that outlives the script": """
import os, sys, threading, time
def late():
    time.sleep(0.3); print(sys.argv, os.getcwd(), sys.modules["__main__"].__file__)
threading.Thread(target=late).start()
os.chdir("/")
sys.exit(5)
""",
    "excepthook": """
import sys
def hook(kind, error, traceback):
    print("hook", kind, error, traceback.tb_frame.f_code.co_name)
sys.excepthook = hook
raise ValueError("no")
""",
    "fork": """
import os, sys, torch
child = os.fork()
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 3
print("parent of" if child else "child", code, torch.relu(torch.ones(2)).sum().item(), flush=True)
if child == 0:
    sys.exit(code)
""",
    "a pool left open": """
from concurrent.futures import ThreadPoolExecutor
import torch
pool = ThreadPoolExecutor(2)
print(pool.submit(lambda: torch.relu(torch.ones(3)).sum().item()).result())
later = pool.submit(print, "the last task", flush=True)
""",
    "processes": """
import multiprocessing, sys, torch
def work(x):
    return torch.relu(torch.full((2,), float(x))).sum().item(), __name__
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(work, [1, 2]))
""",
    "signals": """
import os, signal, sys, torch
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"handled {number} {frame.f_code.co_name}"))
signal.signal(signal.SIGUSR1, lambda number, frame: print("usr1"))
os.kill(os.getpid(), signal.SIGUSR1); torch.relu(torch.ones(2)); os.kill(os.getpid(), signal.SIGTERM)
""",
    "sigterm": """
import os, signal, torch
try:
    torch.relu(torch.ones(2)); os.kill(os.getpid(), signal.SIGTERM)
finally:
    print("not reached", flush=True)
""",
}
ARGUMENTS = ("--lr", "0.5", "--name", "x y")


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words, *ARGUMENTS], cwd=folder, env=ENVIRON, capture_output=True, text=True, timeout=300
    )


def told(stderr: str) -> list[str]:
    """The lines of standard error that are the program's."""
    return [line for line in stderr.splitlines() if not line.startswith(("USDT:", "pyprof"))]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks as on Linux")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_it_does_without_pyprof(tmp_path: Path, name: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAMS[name], encoding="utf-8")
    alone = run_in(tmp_path, "script.py")
    own = {path.name for path in tmp_path.glob("own*.json")}
    under = run_in(tmp_path, "-m", "pyprof", "run", "-o", "net.json.gz", "script.py")
    assert (under.returncode, under.stdout, told(under.stderr)) == (alone.returncode, alone.stdout, told(alone.stderr))
    assert "USDT:" not in under.stderr
    assert {path.name for path in tmp_path.iterdir()} == own | {"script.py", "net.json.gz"}
    events(tmp_path / "net.json.gz")  # whole and valid
    assert ("uses PyTorch's profiler itself" in under.stderr) == ("profile" in name)
    assert under.stderr.count("net.json.gz\n") == (1 if name == "sigterm" else 2)  # wrote, next: once, by the parent


def test_the_user_s_own_trace_has_none_of_our_marks(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAMS["profiler"], encoding="utf-8")
    assert run_in(tmp_path, "-m", "pyprof", "run", "-o", "net.json.gz", "script.py").returncode == 0
    assert "pyprof" not in (tmp_path / "own.json").read_text(encoding="utf-8")
    assert [marker.op for marker in markers(tmp_path / "net.json.gz")].count("linear") == 1  # of the three steps


def test_sigterm_from_outside_writes_what_was_collected(tmp_path: Path) -> None:
    loop = "import time, torch\ntorch.relu(torch.ones(2))\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)\n"
    (tmp_path / "script.py").write_text(loop, encoding="utf-8")
    words = [sys.executable, "-m", "pyprof", "run", "-o", "net.json.gz", "script.py"]
    with subprocess.Popen(
        words, cwd=tmp_path, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None and job.stdout.readline() == "ready\n"
        time.sleep(0.1)
        job.terminate()
        _, stderr = job.communicate(timeout=120)
    assert (job.returncode, stderr) == (-signal.SIGTERM, "pyprof: SIGTERM: wrote net.json.gz\n")
    assert [marker.op for marker in markers(tmp_path / "net.json.gz")] == ["ones", "relu"]
