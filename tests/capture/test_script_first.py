"""Programs run by plain Python and by `pyprof run`: their output and their exit code are identical."""

import os
import py_compile
import signal
import subprocess
import sys
import time
import zipapp
from pathlib import Path
from types import ModuleType

import pytest

from tests.paths import ROOT

pytest.importorskip("torch")

from pyprof.capture.collector import all_threads
from pyprof.capture.run_script import _set_main

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
    "profilers of its own": NET
    + """
train()
with profile(activities=[ProfilerActivity.CPU]) as p:
    train()
print(names(p))
p.export_chrome_trace("own.json")
train()
with torch.autograd.profiler.profile() as p:
    train()
print(names(p))
with torch.autograd.profiler.profile(use_kineto=False) as p:
    train()
print(names(p))
with profile(activities=[ProfilerActivity.CPU], with_stack=True) as p:  # with the Python stack of modules
    train()
print(sorted((e.name(), e.dtypes()) for e in p.profiler.kineto_results.events() if e.name().startswith("aten::add")))
def ready(p):
    print(p.step_num, names(p))
    p.export_chrome_trace(f"own{p.step_num}.json")
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
                 on_trace_ready=ready) as p:
        for _ in range(12):  # the last four after its cycles
            train(); p.step()
with profile(activities=[ProfilerActivity.CPU]):
    train(); 1 / 0
""",
    "what a script sees, and what lives longer than it": """
import argparse, atexit, os, pickle, sys, threading, time, __main__
print(__file__, sys.argv, sys.path, __name__, __package__, __spec__, __cached__, __doc__, __builtins__)
print(sorted(vars(__main__)), vars(__main__) is globals(), sys.modules["__main__"] is __main__)
parser = argparse.ArgumentParser(); parser.add_argument("--lr", type=float); parser.add_argument("--name")
print(parser.parse_args())
class Last:
    def __del__(self): print("deleted", flush=True)
last = Last()
def bye():
    import __main__
    print(os.getcwd(), sys.argv, __main__.last is last, type(pickle.loads(pickle.dumps(Last()))) is Last, flush=True)
atexit.register(bye)
def late():
    time.sleep(0.3); print(sys.argv, os.getcwd(), sys.modules["__main__"].__file__)
os.chdir("/")
print(open(__file__).readline(), os.path.samefile(__file__, __main__.__file__))
threading.Thread(target=late).start()
sys.exit(5)
""",
    "an exception that is no Exception": """
import asyncio
class Stop(BaseException): pass
try:
    raise Stop("here")
except Stop as stop:
    raise asyncio.CancelledError("there") from stop
""",
    "the traceback of a failed op": """
import torch
def product(a, b): return torch.mm(a, b)
try:
    product(torch.ones(2, 3), torch.ones(2, 3))
except RuntimeError as error:
    raise ValueError("no product") from error
""",
    "excepthook that fails": """
import sys
def hook(*args): 1 / 0
sys.excepthook = hook
raise ValueError("no")
""",
    "excepthook that exits": """
import sys
sys.excepthook = lambda *args: sys.exit(5)
raise ValueError("no")
""",
    "the interpreter ends by SIGINT": "raise KeyboardInterrupt('by hand')\n",
    "excepthook": """
import sys
def hook(kind, error, traceback):
    print("hook", kind, error, traceback.tb_frame.f_code.co_name)
sys.excepthook = hook
raise ValueError("no")
""",
    "fork, and a pool left open": """
import os, sys, torch
from concurrent.futures import ThreadPoolExecutor
child = os.fork()
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 3
print("parent of" if child else "child", code, torch.relu(torch.ones(2)).sum().item(), flush=True)
if child == 0:
    sys.exit(code)
pool = ThreadPoolExecutor(2)
print(pool.submit(lambda: torch.relu(torch.ones(3)).sum().item()).result())
later = pool.submit(print, "the last task", flush=True)
sys.exit(code)
""",
    "processes, and objects of the script's classes from them": """
import multiprocessing, sys, torch
class Point:
    x = 3
def work(x):
    return torch.relu(torch.full((2,), float(x))).sum().item(), __name__, Point()
if __name__ == "__main__":
    for method, count in (("fork", 2), ("spawn", 1)):
        with multiprocessing.get_context(method).Pool(count) as pool:
            for found, name, point in pool.map_async(work, [1, 2]).get(timeout=200):
                print(method, found, name, point.x, type(point) is Point)
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
WITHOUT_OPS = (
    "what a script sees, and what lives longer than it",
    "an exception that is no Exception",
    "excepthook that fails",
    "excepthook that exits",
    "the interpreter ends by SIGINT",
    "excepthook",
)
ONLY_CHILDREN = "processes, and objects of the script's classes from them"
ARGUMENTS = ("--lr", "0.5", "--name", "x y")


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words, *ARGUMENTS], cwd=folder, env=ENVIRON, capture_output=True, text=True, timeout=300
    )


def told(stderr: str) -> list[str]:
    """The lines of standard error that are the program's, not pyprof's or Kineto's."""
    lines = [line for line in stderr.splitlines() if not line.startswith(("USDT:", "pyprof"))]
    return [line for line in lines if "gpuGetDeviceCount failed" not in line]  # a PyTorch for GPUs on a machine without


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks as on Linux")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_it_does_without_pyprof(tmp_path: Path, name: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAMS[name], encoding="utf-8")
    alone = run_in(tmp_path, "script.py")
    own = {path.name for path in tmp_path.glob("own*.json")}
    under = run_in(tmp_path, "-m", "pyprof", "run", "-o", "net.json.gz", "script.py")
    assert (under.returncode, under.stdout, told(under.stderr)) == (alone.returncode, alone.stdout, told(alone.stderr))
    assert "USDT:" not in under.stderr and "gpuGetDeviceCount" not in under.stderr
    if name in WITHOUT_OPS:
        assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
        assert under.stderr.count("not written, for no operation of PyTorch ran") == 1
        return
    children = {path.name for path in tmp_path.glob("net.[0-9]*.json.gz")}
    traces = children | (set() if name == ONLY_CHILDREN else {"net.json.gz"})
    assert {path.name for path in tmp_path.iterdir()} == own | traces | {"script.py"}
    assert bool(children) == (name in (ONLY_CHILDREN, "fork, and a pool left open"))
    for trace in traces:
        events(tmp_path / trace)  # whole and valid
    assert ("uses PyTorch's profiler itself" in under.stderr) == ("profilers" in name)
    # what is written is told once, by the parent, and then what reads it
    assert under.stderr.count(".json.gz\n") == (1 if name == "sigterm" else len(traces) + 1)
    if own:  # the user's own traces have none of our marks
        assert own == {"own.json", "own4.json", "own8.json"}
        assert all("pyprof" not in (tmp_path / file).read_text(encoding="utf-8") for file in own)
        # of all steps, those between the schedule's cycles and the last profiler
        assert [marker.op for marker in markers(tmp_path / "net.json.gz")].count("linear") == 4


def test_a_profiler_on_another_thread_keeps_its_profile(tmp_path: Path) -> None:
    """Where ours records one thread, another cannot end it; ending it later was a segmentation fault."""
    in_a_thread = (
        NET
        + """
import threading
def job():
    with profile(activities=[ProfilerActivity.CPU]) as p:
        train()
    print(names(p))
train()
thread = threading.Thread(target=job); thread.start(); thread.join()
train()
"""
    )
    (tmp_path / "script.py").write_text(in_a_thread, encoding="utf-8")
    alone = run_in(tmp_path, "script.py")
    under = run_in(tmp_path, "-m", "pyprof", "run", "-o", "net.json.gz", "script.py")
    assert "aten::addmm" in alone.stdout
    assert under.stdout == alone.stdout
    assert alone.returncode == 0
    if all_threads():
        assert under.returncode == 0
        assert [marker.op for marker in markers(tmp_path / "net.json.gz")].count("linear") == 1
    else:
        assert under.returncode == 1
        assert "net.json.gz: not written, for the program's own profiler was on" in under.stderr


def test_folders_zip_files_and_compiled_files_are_scripts(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "helper.py").write_text("print('helper', __file__)\n", encoding="utf-8")
    (tmp_path / "app" / "__main__.py").write_text(
        "import sys, helper\nprint(sys.argv, __file__, sys.path[0], __spec__ and __spec__.name)\n1 / 0\n", "utf-8"
    )
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    py_compile.compile(str(tmp_path / "app" / "__main__.py"), str(tmp_path / "app" / "main.pyc"))
    for number, name in enumerate(("app", "app.pyz", "app/main.pyc")):
        alone, under = (run_in(tmp_path, *words, name) for words in ((), ("-m", "pyprof", "run", "-o", f"{number}.gz")))
        assert alone.returncode == 1 and "helper" in alone.stdout
        assert (under.returncode, under.stdout, told(under.stderr)) == (1, alone.stdout, told(alone.stderr))


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


def test_the_range_with_most_records_is_written_and_not_the_one_that_lasts_longest(tmp_path: Path) -> None:
    program = NET + "train()\nwith profile(activities=[ProfilerActivity.CPU]): train()\nimport time; time.sleep(2)\n"
    (tmp_path / "script.py").write_text(program, encoding="utf-8")
    assert run_in(tmp_path, "-m", "pyprof", "run", "-o", "net.json.gz", "script.py").returncode == 0
    assert [marker.op for marker in markers(tmp_path / "net.json.gz")].count("linear") == 1


def test_a_block_that_is_never_left_is_written_at_the_end(tmp_path: Path) -> None:
    """As in a generator that is not used up; Python closes it when `open` is already gone."""
    program = """
import pyprof, torch
def batches():
    with pyprof.profile("net.json.gz"):
        yield torch.relu(torch.ones(2))
left_open = batches()
print(next(left_open).sum().item())
"""
    (tmp_path / "script.py").write_text(program, encoding="utf-8")
    done = run_in(tmp_path, "script.py")
    assert (done.returncode, done.stdout, told(done.stderr)) == (0, "2.0\n", [])
    assert [marker.op for marker in markers(tmp_path / "net.json.gz")] == ["ones", "relu", "sum"]


def test_the_script_s_classes_are_found_under_both_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawned child of multiprocessing pickles them as of __mp_main__, and the script's process loads them."""
    before, main = ModuleType("__main__"), ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", before)
    monkeypatch.setitem(sys.modules, "__mp_main__", before)
    _set_main(main)
    assert sys.modules["__main__"] is sys.modules["__mp_main__"] is main
