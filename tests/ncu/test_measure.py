"""`pyprof ncu -- python train.py`: ncu gets the right words, the script runs as it does alone, the files are whole."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from pyprof.ncu import counter_access
from pyprof.ncu.cli import main
from pyprof.ncu.gpu_metrics import KNOWN, METRICS, chosen, metrics
from pyprof.ncu.marked_command import PythonProgram, python_program
from tests.answered import answer
from tests.paths import ROOT

TABLE = (  # two columns of a table of ncu 2025.3
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","dram__bytes_read.sum","gpu__time_duration.sum"\n'
    '"","","","","","","","","","","","byte","ns"\n'
    '"0","560","python3.12","127.0.0.1","gemm","1","7","(384, 1, 1)","(2, 66, 1)","0","9.0","81,332,480","176,896"\n'
)
TRAIN = """
import os, sys, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print(sys.argv, __name__, os.environ.get("UNDER_NCU"))
"""
BASE = (
    "gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,lts__t_sectors_srcunit_tex_op_read.sum,"
    "lts__t_sectors_srcunit_tex_op_write.sum,sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active,"
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed,smsp__inst_executed.sum,"
    "sm__cycles_elapsed.avg.per_second"
)


PRETEND = """
import torch
torch.cuda.is_available = torch.cuda.is_initialized = lambda: True
torch.cuda.synchronize = lambda: None
torch.cuda.profiler.start, torch.cuda.profiler.stop = lambda: print("start"), lambda: print("stop")
"""


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


class Bench(NamedTuple):
    """A folder with a script, and an ncu that only writes down what it was asked."""

    folder: Path
    environ: dict[str, str]

    def calls(self) -> list[list[str]]:
        log = Path(self.environ["FAKE_NCU_LOG"])
        return [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []

    def run(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        code = "import sys; from pyprof.ncu.cli import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=self.folder,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    tools = tmp_path / "tools"
    tools.mkdir()
    ncu = tools / "ncu"
    ncu.write_text(f"#!{sys.executable}\n{Path(__file__).with_name('fake_ncu.py').read_text('utf-8')}", "utf-8")
    smi = tools / "nvidia-smi"
    smi.write_text('#!/bin/sh\n[ "$1" = --query-gpu=compute_cap ] && echo "${FAKE_CC:-9.0}"\n', "utf-8")
    for tool in (ncu, smi):
        tool.chmod(0o755)
    (tools / "table.csv").write_text(TABLE, "utf-8")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN, "utf-8")
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "HOME") if name in os.environ}
    return Bench(
        folder,
        {
            **kept,
            "PATH": f"{tools}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "FAKE_NCU_LOG": str(tools / "log"),
            "FAKE_NCU_TABLE": str(tools / "table.csv"),
        },
    )


def test_ncu_measures_one_step_after_one_of_warmup(bench: Bench) -> None:
    pytest.importorskip("torch")
    done = bench.run("-o", "net", "--", sys.executable, "-u", "train.py", "--lr", "1", "--", "x")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['train.py', '--lr', '1', '--', 'x'] __main__ 1\n"  # nothing of ncu's or ours among it
    measured, imported = bench.calls()
    assert measured[:14] == [
        *("--target-processes", "all", "--profile-from-start", "off", "--nvtx", "--replay-mode", "kernel"),
        *("--clock-control", "none", "--cache-control", "all", "--metrics", BASE, "--log-file"),
    ]
    program = measured[measured.index(sys.executable) :]
    assert program[1:4] == ["-u", "-m", "pyprof.ncu.marked_script"]
    assert program[6:] == [
        *("--trace", "user", "--warmup", "1", "--steps", "1", "--", "train.py", "--lr", "1", "--", "x")
    ]
    assert imported[:2] == ["--import", f"{measured[measured.index('--export') + 1]}.ncu-rep"]
    assert imported[2:7] == ["--csv", "--page", "raw", "--print-units", "base"]
    assert (bench.folder / "net.ncu-rep").read_bytes() == b"NVR\0report"
    rows = list(csv.reader((bench.folder / "net.csv").read_text("utf-8").splitlines()))
    assert rows[2][-2:] == ["81,332,480", "176,896"]
    assert sorted(path.name for path in bench.folder.iterdir()) == ["net.csv", "net.ncu-rep", "train.py"]
    assert done.stderr.splitlines() == [
        "pyprof ncu: measured 1 kernel, in 3 passes each",
        "pyprof ncu: wrote net.ncu-rep",
        "pyprof ncu: wrote net.csv",
        "pyprof ncu: next: pyprof ncu net.csv",
    ]


@pytest.mark.parametrize(("text", "code"), [("import sys; sys.exit(7)", 7), ("1 / 0", 1)])
def test_the_script_s_exit_code_is_the_command_s(bench: Bench, text: str, code: int) -> None:
    pytest.importorskip("torch")
    (bench.folder / "train.py").write_text(text, "utf-8")
    done = bench.run("--capture-range", "all", "--", "./train.py")
    assert done.returncode == code
    assert (bench.folder / "counters.csv").exists() and (bench.folder / "counters.ncu-rep").exists()


def test_the_iterations_are_those_of_pyprof_run(bench: Bench) -> None:
    """cudaProfilerStart comes after the warmup, and Stop after the steps; too few iterations are reported.

    Other windows: test_run.py in tests/capture. The words of `--warmup 1 --steps 1`, which are the default: above.
    """
    pretend(bench)

    def order_of(*words: str) -> list[str]:
        return order(bench.run("--force", *words, "--", sys.executable, "train.py"))

    assert order_of("--steps", "2") == ["step", "start", "step", "step", "stop", "step"]
    assert order_of("--warmup", "9") == ["step", "step", "step", "step", "warning:"]
    assert order_of("--capture-range", "cudaProfilerApi") == ["step"] * 4


def pretend(bench: Bench) -> None:
    """The script has a GPU, and says when a step ends and when measuring starts and stops."""
    torch = pytest.importorskip("torch")
    assert not torch.cuda.is_available()
    script = PRETEND + TRAIN.replace("optimizer.step()", "print('step'); optimizer.step()")
    (bench.folder / "train.py").write_text(script, "utf-8")


def order(done: "subprocess.CompletedProcess[str]") -> list[str]:
    return [word for word in (done.stdout + done.stderr).split() if word in ("start", "step", "stop", "warning:")]


def test_options_reach_ncu(bench: Bench) -> None:
    pretend(bench)
    words = "--capture-range all --clock-control base --cache-control none --replay-mode application -o a.csv.gz"
    more = ["--metrics", "sm__warps_active.sum,gpu__time_duration.sum", "--ncu-options", "--launch-count 3"]
    done = bench.run(*words.split(), *more, "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert order(done) == ["step"] * 4
    measured = bench.calls()[0]
    given = ["--profile-from-start", "--clock-control", "--cache-control", "--replay-mode", "--launch-count"]
    assert [value(measured, option) for option in given] == ["on", "base", "none", "application", "3"]
    assert value(measured, "--metrics") == f"{BASE},sm__warps_active.sum"  # none twice
    assert "--steps" not in measured
    assert sorted(path.name for path in bench.folder.iterdir()) == ["a.csv.gz", "train.py"]


def test_an_option_behind_the_script_is_told_before_it_runs(bench: Bench) -> None:
    pytest.importorskip("torch")
    (bench.folder / "train.py").write_text("print('ran')", "utf-8")
    done = bench.run("--", sys.executable, "train.py", "--warmup", "3")
    right = f"pyprof ncu --warmup 3 -- {sys.executable} train.py"
    assert done.stderr.splitlines()[0] == (
        "pyprof ncu: warning: train.py gets --warmup, which its text does not name: "
        f"an option of pyprof ncu stands before the script ({right})"
    )


def test_other_programs_run_as_they_are(bench: Bench) -> None:
    done = bench.run("--", "/bin/sh", "-c", "echo $UNDER_NCU; exit 3")
    assert (done.returncode, done.stdout) == (3, "1\n")
    measured = bench.calls()[0]
    assert measured[-3:] == ["/bin/sh", "-c", "echo $UNDER_NCU; exit 3"]
    assert value(measured, "--profile-from-start") == "on"
    assert (
        "warning: /bin/sh runs as it is, no script that pyprof ncu marks: all its kernels are measured" in done.stderr
    )


PROGRAMS = [
    ("python train.py --lr 1", (("python",), "train.py", False, ("--lr", "1"))),
    ("/v/python3.12 -u -X dev a.py -m", (("/v/python3.12", "-u", "-X", "dev"), "a.py", False, ("-m",))),
    ("python -Wx -W ignore a.py", (("python", "-Wx", "-W", "ignore"), "a.py", False, ())),
    ("python -OO -Xdev -m pkg.train -u", (("python", "-OO", "-Xdev"), "pkg.train", True, ("-u",))),
    ("python -um pkg.train", (("python", "-u"), "pkg.train", True, ())),
    ("python -mpkg.train -x", (("python",), "pkg.train", True, ("-x",))),
    ("./train.py a", ((sys.executable,), "./train.py", False, ("a",))),
    ("python -c pass", None),
    ("python -", None),
    ("python", None),
    ("python -m", None),
    ("python -m pyprof run train.py", None),
    ("torchrun --nproc-per-node 2 train.py", None),
]  # fmt: skip


@pytest.mark.parametrize(("command", "parts"), PROGRAMS, ids=[command for command, _ in PROGRAMS])
def test_the_script_in_a_command(command: str, parts: "tuple[object, ...] | None") -> None:
    assert python_program(command.split()) == (None if parts is None else PythonProgram(*parts))  # type: ignore[arg-type]


# What ncu and the driver say


def test_a_generation_that_we_do_not_know_is_queried(bench: Bench) -> None:
    done = bench.run("--", "/bin/true", FAKE_CC="13.0")
    assert done.returncode == 0
    query, measured, _ = bench.calls()
    assert query == ["--query-metrics"]
    assert value(measured, "--metrics") == (
        "gpu__time_duration.sum,dram__bytes_op_read.sum,dram__bytes_op_write.sum,"
        "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_active,"
        "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed,smsp__inst_executed.sum"
    )


def test_known_generations_are_not_queried() -> None:
    assert ",".join(metrics("/no/ncu", (9, 0))) == BASE
    assert metrics("/no/ncu", (12, 0))[1:3] == ["dram__bytes_op_read.sum", "dram__bytes_op_write.sum"]
    known = {name for metric in METRICS for name in metric.counters}
    assert all(names <= known for names in KNOWN.values())
    assert chosen(()) == []


def test_different_gpus_are_queried(bench: Bench) -> None:
    bench.run("--", "/bin/true", FAKE_CC="9.0\n8.0")
    assert bench.calls()[0] == ["--query-metrics"]


DENIED = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n"
FAILURES = [
    (DENIED, "ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0"),
    ("==ERROR== Failed to find metric regex:^nosuch.sum$\n", "Failed to find metric", "take a newer ncu"),
    ("==ERROR== Failed to initialize: LibraryNotLoaded.\n", "LibraryNotLoaded", "NVIDIA_DRIVER_CAPABILITIES"),
    ("==WARNING== No kernels were profiled.\n", "no kernel was measured", "--capture-range all"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "error", "remedy"), FAILURES, ids=[error for _, error, _ in FAILURES])
def test_ncu_s_failure_is_one_line_with_a_remedy(bench: Bench, said: str, error: str, remedy: str) -> None:
    done = bench.run("--", "/bin/true", FAKE_NCU_SAYS=said, FAKE_NCU_MODE="no report")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert error in line and remedy in line
    assert [path.name for path in bench.folder.iterdir()] == ["train.py"]


def test_where_the_script_fails_nothing_is_blamed_on_ncu(bench: Bench) -> None:
    said = "==ERROR== The application returned an error code (3).\n==WARNING== No kernels were profiled.\n"
    done = bench.run("--", "/bin/sh", "-c", "exit 3", FAKE_NCU_SAYS=said, FAKE_NCU_MODE="no report")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "pyprof ncu: nothing was measured"


def test_no_ncu_is_one_line(bench: Bench) -> None:
    done = bench.run("--", "/bin/true", PATH="/bin", NCU="/no/such/ncu")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) or "warning" in done.stderr
    assert "/no/such/ncu: expected the program ncu, which the variable NCU names, found none" in done.stderr


def test_an_existing_file_is_kept_and_the_script_not_run(bench: Bench) -> None:
    (bench.folder / "counters.csv").write_bytes(b"mine")
    done = bench.run("--", sys.executable, "train.py")
    assert done.returncode == 1 and "--force" in done.stderr and done.stdout == ""
    assert bench.calls() == [] and (bench.folder / "counters.csv").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--"], "a command is missing"),
        (["--steps", "1", "--", "/bin/true"], "--warmup and --steps need a Python script"),
        (["--steps", "1", "--capture-range", "all", "--", "python", "x.py"], "do not go together"),
        (["-o", "-", "--", "/bin/true"], "argument -o"),
    ],
)
def test_wrong_usage(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2 and complaint in capsys.readouterr().err


def test_json_says_what_was_measured(bench: Bench) -> None:
    done = bench.run("--json", "-o", "net.csv", "--", "/bin/echo", "hello")
    found = answer(done.stdout.encode(), "ncu-run", "ncu")
    assert "hello" in done.stderr  # the program's output
    assert (found["program"], found["marked"], found["exit_code"]) == (["/bin/echo", "hello"], False, 0)
    assert (found["kernels"], found["passes"], ",".join(found["metrics"])) == (1, 3, BASE)
    assert found["outputs"] == [{"name": "net.csv", "bytes": len(TABLE)}]
    assert len(found["warnings"]) == 1


# Whether the counters may be read

Machine = Callable[..., Path]
NOBODY, ADMIN, PERFMON, ROOT_IN_CONTAINER = "0", "000001ffffffffff", "0000004000000000", "00000000a80425fb"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A root folder with the files of a driver and a process."""

    def make(admin_only: str = "1", capabilities: str = NOBODY, driver: str = "580.65.06", **files: str) -> Path:
        contents = {
            "proc/driver/nvidia/params": f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {admin_only}\n",
            "proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Sun Jul 27\n",
            "proc/self/status": f"Name:\tpython\nCapEff:\t{capabilities}\n",
            **files,
        }
        for name, text in contents.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        return tmp_path

    return make


def test_everybody_may_read_if_the_driver_says_so(machine: Machine) -> None:
    counter_access.check_access(machine(admin_only="0"), {})


@pytest.mark.parametrize(("capabilities", "driver"), [(ADMIN, "535.1.1"), (PERFMON, "565.57.01")])
def test_an_administrator_may_read(machine: Machine, capabilities: str, driver: str) -> None:
    counter_access.check_access(machine(capabilities=capabilities, driver=driver), {})


@pytest.mark.parametrize(
    ("capabilities", "driver"), [(NOBODY, "580.1"), (PERFMON, "550.54.15"), (ROOT_IN_CONTAINER, "580.1")]
)
def test_others_may_not(machine: Machine, capabilities: str, driver: str) -> None:
    with pytest.raises(counter_access.PyprofError, match="write `options nvidia NVreg_") as error:
        counter_access.check_access(machine(capabilities=capabilities, driver=driver), {})
    assert "RmProfilingAdminOnly is 1" in str(error.value) and "never" in str(error.value)


@pytest.mark.parametrize(
    ("files", "environ"),
    [
        ({".dockerenv": ""}, {}),
        ({"run/.containerenv": ""}, {}),
        ({"proc/1/cgroup": "0::/kubepods.slice/pod1\n"}, {}),
        ({}, {"container": "podman"}),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}),
    ],
)
def test_in_a_container_the_remedy_is_its_start(
    machine: Machine, files: dict[str, str], environ: dict[str, str]
) -> None:
    with pytest.raises(counter_access.PyprofError, match="--cap-add=SYS_ADMIN"):
        counter_access.check_access(machine(**files), environ)


def test_without_a_driver_s_file_ncu_finds_out(tmp_path: Path) -> None:
    counter_access.check_access(tmp_path, {})


def test_under_windows_the_control_panel_decides(machine: Machine) -> None:
    root = machine(**{"proc/version": "Linux version 6.6.87.2-microsoft-standard-WSL2"})
    assert "NVIDIA Control Panel" in counter_access.remedy(root, {})
