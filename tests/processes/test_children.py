"""`pyprof run` of programs that start others: who is collected, into which file, and what the run says of it."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.paths import ROOT

torch = pytest.importorskip("torch")
if not hasattr(os, "fork"):
    pytest.skip("forks and signals as on Linux", allow_module_level=True)

from pyprof.capture.collector import all_threads  # noqa: E402
from pyprof.marker import parse_marker  # noqa: E402
from pyprof.processes.child_capture import VARIABLE, Orders, Report  # noqa: E402
from pyprof.processes.children import Children, following  # noqa: E402

LIBRARIES = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
BIN = os.path.dirname(sys.executable)
ENVIRON = {**LIBRARIES, "PYTHONPATH": str(ROOT), "PATH": f"{BIN}:/usr/bin:/bin", "OMP_NUM_THREADS": "1"}


def run(folder: Path, *words: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pyprof", "run", *words]
    return subprocess.run(command, cwd=folder, env=ENVIRON, capture_output=True, text=True, timeout=300)


def script(folder: Path, text: str, name: str = "script.py") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return name


def ops(file: Path) -> Counter[str]:
    """The calls that a capture marks, by op. Fails if the file is not whole."""
    with gzip.open(file, "rt", encoding="utf-8") as text:
        found = [parse_marker(event["name"]) for event in json.load(text)["traceEvents"] if "name" in event]
    return Counter(marker.op for marker in found if marker is not None)


def files(folder: Path) -> list[str]:
    """The names of the captures, with N for the numbers of processes."""
    return sorted(re.sub(r"\.\d{2,}\.", ".N.", path.name) for path in folder.glob("*.json.gz"))


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the run says, with N for the numbers of processes."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("pyprof")]
    return [re.sub(r"\b\d{2,}\b", "N", line.removeprefix("pyprof run: ")) for line in lines]


JOB = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    net(torch.ones(3, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()
dist.destroy_process_group()
"""
with_distributed = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no gloo")


@with_distributed
@pytest.mark.parametrize("launcher", [["-m", "torch.distributed.run"], ["torchrun"]], ids=["module", "command"])
def test_two_ranks_by_one_command(tmp_path: Path, launcher: list[str]) -> None:
    """The launcher itself runs no op, and leaves no file. --warmup and --steps are those of each rank."""
    if launcher == ["torchrun"] and not Path(BIN, "torchrun").exists():
        pytest.skip("torch's commands are elsewhere")
    options = ["--warmup", "1", "--steps", "2"]
    done = run(tmp_path, *options, *launcher, "--nproc-per-node", "2", script(tmp_path, JOB))
    assert done.returncode == 0, done.stderr
    names = ["net.rank0.json.gz", "net.rank1.json.gz"]
    assert files(tmp_path) == names
    assert told(done)[:3] == [*(f"wrote {name}" for name in names), f"next: pyprof prof --summary {' '.join(names)}"]
    for name in names:
        assert (ops(tmp_path / name)["linear"], ops(tmp_path / name)["sum"]) == (2, 2)  # two of four iterations
    words = [sys.executable, "-m", "pyprof.prof", "--group", "rank", "--csv", *names]
    read = subprocess.run(words, cwd=tmp_path, env=ENVIRON, capture_output=True, text=True, timeout=100)
    assert read.returncode == 0 and sorted(line.partition(",")[0] for line in read.stdout.splitlines()[1:]) == [
        '"0"',
        '"1"',
    ]
    words = [sys.executable, "-m", "pyprof", "ranks", *names, "-o", "job"]
    compared = subprocess.run(words, cwd=tmp_path, env=ENVIRON, capture_output=True, text=True, timeout=100)
    assert (compared.returncode, compared.stderr) == (0, "pyprof ranks: wrote job: 2 of 2 files\n")


@with_distributed
@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 9)", "raise ValueError('no')"], ids=["killed", "fails"])
def test_a_rank_that_crashes_leaves_the_other_s_capture_whole(tmp_path: Path, how: str) -> None:
    program = JOB.replace("    net(", f"    if dist.get_rank() == 1 and _ == 2: import os; {how}\n    net(")
    done = run(tmp_path, "-m", "torch.distributed.run", "--nproc-per-node", "2", script(tmp_path, program))
    assert done.returncode == 1
    assert ops(tmp_path / "net.rank0.json.gz")["linear"] in (2, 3)  # the third call waits for the other rank
    if "kill" in how:
        assert files(tmp_path) == ["net.rank0.json.gz"]
        missing = "warning: rank 1 (process N) has no capture: it was ended before it could write one"
        assert told(done)[:2] == [missing, "wrote net.rank0.json.gz"]
    else:
        assert ops(tmp_path / "net.rank1.json.gz")["linear"] == 2
        assert told(done)[:2] == ["wrote net.rank0.json.gz", "wrote net.rank1.json.gz"]


@with_distributed
def test_control_c_leaves_all_captures_whole(tmp_path: Path) -> None:
    """torchrun hands on the SIGINT that its workers have got from the terminal already."""
    program = JOB.replace("range(4)", "range(10**9)").replace("optimizer.zero_grad()", "print('ran', flush=True)")
    command = [sys.executable, "-m", "pyprof", "run", "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    with subprocess.Popen(
        [*command, script(tmp_path, program)],
        cwd=tmp_path,
        env=ENVIRON,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as job:
        assert job.stdout is not None
        for _ in range(20):
            assert job.stdout.readline().strip("ran\n") == ""
        os.killpg(job.pid, signal.SIGINT)
        _, stderr = job.communicate(timeout=120)
    names = ["net.rank0.json.gz", "net.rank1.json.gz"]
    assert files(tmp_path) == names and all(f"pyprof run: wrote {name}\n" in stderr for name in names)
    assert sum(ops(tmp_path / name)["linear"] for name in names) >= 19  # two prints may have become one line


WORK = """
import multiprocessing, os, sys, torch
def work(n):
    return torch.relu(torch.ones(n)).sum().item()
def serve(requests, answers):  # the engine of an inference server
    while (n := requests.get()) is not None:
        answers.put(work(n))
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    requests, answers = context.Queue(), context.Queue()
    engine = context.Process(target=serve, args=(requests, answers))
    engine.start()
    for n in (3, 4):
        requests.put(n)
        assert answers.get() == n
    requests.put(None)
    engine.join()
    with context.Pool(1) as pool:  # which it ends by SIGTERM
        print(pool.map(work, [5, 6, 7]))
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_an_engine_and_a_pool_of_multiprocessing(tmp_path: Path, method: str) -> None:
    """The parent runs no op. Neither it nor the servers of multiprocessing leave a file."""
    done = run(tmp_path, script(tmp_path, WORK), method)
    assert (done.returncode, done.stdout) == (0, "[5.0, 6.0, 7.0]\n"), done.stderr
    assert files(tmp_path) == ["net.N.json.gz"] * 2
    assert told(done)[:2] == ["wrote net.N.json.gz"] * 2
    assert sorted(ops(path)["relu"] for path in tmp_path.glob("*.gz")) == [2, 3]


def test_training_in_children_of_torch_multiprocessing(tmp_path: Path) -> None:
    program = """
import torch, torch.multiprocessing
def train(rank):
    net = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        net(torch.ones(8, 64)).pow(2).sum().backward(); optimizer.step(); optimizer.zero_grad()
if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=2)
"""
    done = run(tmp_path, script(tmp_path, program))
    assert (done.returncode, files(tmp_path)) == (0, ["net.N.json.gz"] * 2), done.stderr
    assert told(done)[:2] == ["wrote net.N.json.gz"] * 2
    assert [ops(path)["linear"] for path in tmp_path.glob("*.gz")] == [3, 3]


def test_accelerate_launch(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    program = """
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
net = torch.nn.Linear(64, 64)
net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1))
for _ in range(3):
    accelerator.backward(net(torch.ones(8, 64)).sum()); optimizer.step(); optimizer.zero_grad()
"""
    options = ["--cpu", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no"]
    launch = ["-m", "accelerate.commands.accelerate_cli", "launch", *options, "--dynamo_backend", "no"]
    done = run(tmp_path, *launch, script(tmp_path, program))
    assert (done.returncode, files(tmp_path)) == (0, ["net.N.json.gz"]), done.stderr
    (child,) = tmp_path.glob("*.gz")
    assert ops(child)["linear"] == 3


def test_a_server_whose_engine_is_a_thread(tmp_path: Path) -> None:
    program = """
import queue, threading, torch
net, requests, answers = torch.nn.Linear(64, 8), queue.Queue(), queue.Queue()
def engine():
    while (x := requests.get()) is not None:
        with torch.inference_mode():
            answers.put(net(x))
thread = threading.Thread(target=engine); thread.start()
for _ in range(5):
    requests.put(torch.ones(16, 64)); answers.get()
requests.put(None); thread.join()
"""
    done = run(tmp_path, script(tmp_path, program))
    assert (done.returncode, files(tmp_path)) == (0, ["net.json.gz"]), done.stderr
    if all_threads():
        assert ops(tmp_path / "net.json.gz")["linear"] == 5


def test_a_child_of_fork_has_its_own_ops_alone(tmp_path: Path) -> None:
    """It inherits a profiler that is on. A second child, which runs another program, is not collected."""
    program = """
import os, sys, torch
torch.relu(torch.ones(2))
if os.fork() == 0:
    torch.sin(torch.ones(3)); os._exit(0)
os.wait()
if os.fork() == 0:
    os.execv("/bin/echo", ["echo", "other"])
os.wait()
torch.cos(torch.ones(4))
"""
    done = run(tmp_path, script(tmp_path, program))
    assert (done.returncode, done.stdout, files(tmp_path)) == (0, "other\n", ["net.N.json.gz", "net.json.gz"])
    assert told(done)[:2] == ["wrote net.json.gz", "wrote net.N.json.gz"]
    (child,) = tmp_path.glob("net.[0-9]*.gz")
    assert ops(tmp_path / "net.json.gz") == {"ones": 2, "relu": 1, "cos": 1}
    assert ops(child) == {"ones": 1, "sin": 1}


ONE_CHILD = """
import subprocess, sys
child = "import sys, os; print('pyprof' in sys.modules, [p for p in sys.path if 'on_path' in p], flush=True); "
subprocess.run([sys.executable, "-c", child])
subprocess.run([sys.executable, "-c", child + "import torch; torch.relu(torch.ones(2)); " + sys.argv[1]])
"""


def test_a_child_without_torch_has_nothing_of_pyprof(tmp_path: Path) -> None:
    done = run(tmp_path, script(tmp_path, ONE_CHILD), "os._exit(3)")
    assert (done.returncode, done.stdout) == (0, "False []\nFalse []\n")
    assert files(tmp_path) == ["net.N.json.gz"] and told(done)[0] == "wrote net.N.json.gz"


def test_no_children_leaves_them_alone(tmp_path: Path) -> None:
    done = run(tmp_path, "--no-children", script(tmp_path, ONE_CHILD), "pass")
    assert (done.returncode, files(tmp_path)) == (1, [])
    assert told(done) == ["net.json.gz: not written, for no operation of PyTorch ran while it was collected"]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_of_a_dataloader_are_left_alone(tmp_path: Path, method: str) -> None:
    program = """
import sys, torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.ones(3).sin()
if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Data(), 2, num_workers=1, multiprocessing_context=sys.argv[1]):
        torch.relu(batch)
"""
    done = run(tmp_path, script(tmp_path, program), method)
    assert (done.returncode, files(tmp_path)) == (0, ["net.json.gz"]), done.stderr
    assert told(done) == ["wrote net.json.gz", "next: pyprof prof --summary net.json.gz"]


def test_the_user_s_sitecustomize_runs_in_children(tmp_path: Path) -> None:
    script(tmp_path, "import sys; sys.mine = 'mine'\n", "sitecustomize.py")
    code = "import sitecustomize, sys, torch; torch.ones(1).sin(); print(sys.mine, sitecustomize.__file__)"
    program = f"""
import os, subprocess, sys
os.environ["PYTHONPATH"] += os.pathsep + {str(tmp_path)!r}
subprocess.run([sys.executable, "-c", {code!r}])
"""
    done = run(tmp_path, script(tmp_path, program))
    assert done.stdout == f"mine {tmp_path / 'sitecustomize.py'}\n", done.stderr
    assert files(tmp_path) == ["net.N.json.gz"]


def test_a_library_that_only_looks_for_torch_does_not_end_the_waiting(tmp_path: Path) -> None:
    code = "from importlib.util import find_spec; find_spec('torch'); import torch; torch.ones(1).sin()"
    done = run(tmp_path, script(tmp_path, f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}])"))
    assert (done.returncode, files(tmp_path)) == (0, ["net.N.json.gz"])


@pytest.mark.parametrize("code", [0, 3])
def test_a_script_that_ends_by_os_exit_has_its_capture(tmp_path: Path, code: int) -> None:
    program = f"import os, torch\ntorch.relu(torch.ones(2))\nos._exit({code})\n"
    done = run(tmp_path, script(tmp_path, program))
    assert (done.returncode, files(tmp_path)) == (code, ["net.json.gz"])
    assert told(done) == ["wrote net.json.gz", "next: pyprof prof --summary net.json.gz"]
    assert ops(tmp_path / "net.json.gz") == {"ones": 1, "relu": 1}


def test_json_names_the_children(tmp_path: Path) -> None:
    done = run(tmp_path, "--json", script(tmp_path, ONE_CHILD), "pass")
    answer = json.loads(done.stdout)
    (child,) = tmp_path.glob("net.*.gz")
    number = int(child.name.split(".")[1])
    output = {"name": child.name, "bytes": child.stat().st_size}
    assert answer["output"] is None and answer["children"] == [{"pid": number, "rank": None, "output": output}]


def test_an_older_capture_of_the_rank_is_kept(tmp_path: Path) -> None:
    (tmp_path / "net.rank1.json.gz").write_bytes(b"mine")
    child = "import torch; torch.relu(torch.ones(2))"
    program = f"""
import os, subprocess, sys
subprocess.run([sys.executable, "-c", {child!r}], env={{**os.environ, "RANK": "1", "WORLD_SIZE": "2"}})
"""
    done = run(tmp_path, script(tmp_path, program))
    assert (done.returncode, files(tmp_path)) == (0, ["net.N.rank1.json.gz", "net.rank1.json.gz"])
    assert (tmp_path / "net.rank1.json.gz").read_bytes() == b"mine"
    assert told(done)[0] == "wrote net.N.rank1.json.gz"
    assert run(tmp_path, "--force", "script.py").returncode == 0
    assert ops(tmp_path / "net.rank1.json.gz")["relu"] == 1


def test_the_environment_is_as_before_when_the_run_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    orders = Orders("", None, "", False, (0, None, False), {})
    with following(orders):
        ours, _, mine = os.environ["PYTHONPATH"].partition(os.pathsep)
        assert (Path(ours).name, mine) == ("on_path", "/mine")
        reports = Path(json.loads(os.environ[VARIABLE])[0])
        assert reports.is_dir()
    assert os.environ["PYTHONPATH"] == "/mine" and VARIABLE not in os.environ and not reports.exists()


def test_one_line_says_why_several_processes_have_no_capture(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (1, 2, 3):
        Report(pid, "failed", warnings=("it was forked",)).save(str(tmp_path))
    Report(4, "written", "net.rank1.json.gz", 1, ("too short",)).save(str(tmp_path))
    Report(5, "written", "net.rank0.json.gz", 0).save(str(tmp_path))
    Report(6, "nothing").save(str(tmp_path))
    Report(ended.pid, "running", rank=2).save(str(tmp_path))
    children = Children(str(tmp_path))
    children.settle(interrupted=False)
    assert [report.pid for report in children.written] == [5, 4] and children.running == []
    assert children.warnings() == [
        "rank 1 (process 4): too short",
        "process 1 and 2 others have no capture: it was forked",
        f"rank 2 (process {ended.pid}) has no capture: it was ended before it could write one",
    ]
