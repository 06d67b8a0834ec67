"""`pyprof run` and `pyprof.profile`: the script runs unchanged and its trace is written, whole and valid."""

import atexit
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof.capture.kineto_turns import without_noise  # noqa: E402
from pyprof.capture.run import build_parser, main  # noqa: E402
from pyprof.capture.run_script import end_process, rank_file  # noqa: E402
from pyprof.marker import Marker, parse_marker  # noqa: E402

from .conftest import Domain  # noqa: E402


def events(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as text:
        return list(json.load(text)["traceEvents"])


def markers(file: Path) -> list[Marker]:
    found = [parse_marker(event["name"]) for event in events(file) if event.get("cat") == "user_annotation"]
    return [marker for marker in found if marker is not None]


LIBRARIES = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}  # torch may need it


def pyprof_run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from pyprof.cli import main; sys.exit(main(['run', *sys.argv[1:]]))"
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=folder,
        env={**LIBRARIES, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def script(folder: Path, text: str) -> str:
    (folder / "script.py").write_text(text, encoding="utf-8")
    return "script.py"


def test_lenet_runs_alone_and_under_pyprof_with_the_same_loss(tmp_path: Path) -> None:
    lenet = str(ROOT / "examples" / "lenet.py")
    alone = subprocess.run(
        [sys.executable, lenet],
        env={**LIBRARIES, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    under = pyprof_run(tmp_path, "-o", "net.json.gz", lenet)
    assert alone.returncode == under.returncode == 0
    assert alone.stdout == under.stdout != ""
    ops = [marker.op for marker in markers(tmp_path / "net.json.gz")]
    # one training step, for start() and stop() enclose one: warm-up steps are left out
    assert ops[:4] == ["conv2d", "relu", "max_pool2d", "conv2d"]
    assert (ops.count("linear"), ops.count("cross_entropy")) == (3, 1)
    layers = [e["name"] for e in events(tmp_path / "net.json.gz") if str(e.get("name")).startswith("layer:")]
    assert layers == ["layer:LeNet", "layer:conv1", "layer:conv2", "layer:fc1", "layer:fc2", "layer:fc3"]


def test_trace_names_the_script_s_line(tmp_path: Path) -> None:
    """And it ends as it says; how else scripts end is in test_script_first.py."""
    name = script(tmp_path, "import torch\nx = torch.ones(3)\ntorch.relu(x)\nraise SystemExit\n")
    done = pyprof_run(tmp_path, "-o", "net.json.gz", name)
    assert (done.returncode, done.stdout) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.json.gz", "script.py"]
    relu = [marker for marker in markers(tmp_path / "net.json.gz") if marker.op == "relu"]
    assert [marker.trace for marker in relu] == [["script.py:3"]]


def test_module_mode(tmp_path: Path) -> None:
    lines = ["import sys, torch", "torch.relu(torch.ones(2))", "print(sys.argv[1:], 'torch._inductor' in sys.modules)"]
    script(tmp_path, "\n".join(lines))
    done = pyprof_run(tmp_path, "-o", "net.json.gz", "-m", "script", "a")
    # PyTorch's profiler would import inductor, which takes a second
    assert (done.returncode, done.stdout) == (0, "['a'] False\n")


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "script.py").write_text("import torch; print(torch.ones(1))", encoding="utf-8")
    out = tmp_path / "net.json.gz"
    out.write_bytes(b"mine")
    assert main(["-o", str(out), str(tmp_path / "script.py")]) == 1
    told = capsys.readouterr()
    assert told.out == "" and "--force" in told.err and told.err.count("\n") == 1
    assert out.read_bytes() == b"mine"
    assert main(["-o", str(out), "--force", str(tmp_path / "script.py")]) == 0
    assert out.read_bytes() != b"mine"


LOOP = """
import torch, pyprof
for i in range(1, 6):
    torch.relu(torch.ones(i))
    pyprof.step()
"""
WINDOWS = [  # options, the iterations in the file
    ([], [1, 2, 3, 4, 5]),
    (["--warmup", "2"], [3, 4, 5]),
    (["--warmup", "2", "--steps", "2"], [3, 4]),
    (["--steps", "1"], [1]),
]


@pytest.mark.parametrize(("options", "kept"), WINDOWS, ids=[" ".join(w[0]) or "all" for w in WINDOWS])
def test_warmup_and_steps_choose_the_iterations(tmp_path: Path, options: list[str], kept: list[int]) -> None:
    (tmp_path / "script.py").write_text(LOOP, encoding="utf-8")
    assert main(["-o", str(tmp_path / "net.json.gz"), *options, str(tmp_path / "script.py")]) == 0
    relus = [marker for marker in markers(tmp_path / "net.json.gz") if marker.op == "relu"]
    assert [marker.args[0]["shape"] for marker in relus] == [[i] for i in kept]


def test_nothing_collected_is_one_line_and_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "script.py").write_text(LOOP, encoding="utf-8")
    words = ["--capture-range", "cudaProfilerApi", str(tmp_path / "script.py")]
    assert main(["-o", str(tmp_path / "net.json.gz"), *words]) == 1
    assert "never called start()" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_a_script_s_own_exit_code_comes_before_that_of_nothing_collected(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit(3)", encoding="utf-8")
    words = ["--capture-range", "cudaProfilerApi", str(tmp_path / "script.py")]
    assert main(["-o", str(tmp_path / "net.json.gz"), *words]) == 3


def test_capture_range_waits_for_start(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch, pyprof\ntorch.abs(torch.ones(1))\npyprof.start()\ntorch.relu(torch.ones(1))\npyprof.stop()",
        encoding="utf-8",
    )
    out = tmp_path / "net.json.gz"
    assert main(["-o", str(out), "--capture-range", "cudaProfilerApi", str(tmp_path / "script.py")]) == 0
    assert [marker.op for marker in markers(out)] == ["ones", "relu"]


def test_a_script_that_changes_the_folder_leaves_its_trace_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    assert (
        main(["-o", "net.json.gz", script(tmp_path, "import os, torch\nos.chdir('elsewhere')\ntorch.ones(1)\n")]) == 0
    )
    assert (tmp_path / "net.json.gz").is_file() and list((tmp_path / "elsewhere").iterdir()) == []


def test_a_second_range_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pyprof.profile(tmp_path / "net.json.gz"):
        for op in (torch.relu, torch.abs):
            pyprof.start()
            op(torch.zeros(1))
            pyprof.stop()
    assert [marker.op for marker in markers(tmp_path / "net.json.gz")] == ["zeros", "relu"]
    assert "left out" in capsys.readouterr().err


@pytest.mark.parametrize(("warmup", "alone"), [(3, []), (5, [4]), (8, [5, 6, 7])])
def test_the_last_of_several_iterations_before_the_window_begin_on_an_idle_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warmup: int, alone: list[int]
) -> None:
    monkeypatch.setattr("pyprof.step_timer.wait_for_gpu", lambda: True)
    weight = torch.ones(4, requires_grad=True)
    with pyprof.profile(tmp_path / "net.json.gz", warmup=warmup, steps=1):
        for _ in range(warmup + 1):
            weight.sum().backward()
            pyprof.step()
    with gzip.open(tmp_path / "net.json.gz", "rt") as file:
        steps = json.load(file)["pyprof"]["steps"]["steps"]
    assert [step["number"] for step in steps if step.get("alone")] == alone
    assert [step["number"] for step in steps] == list(range(1, warmup))


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "net.json.gz"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "net.json.gz"),
        ({"RANK": "3", "WORLD_SIZE": "8"}, "net.rank3.json.gz"),
        ({"RANK": "../x", "WORLD_SIZE": "8"}, "net.json.gz"),
    ],
)
def test_each_rank_has_its_own_file(environ: dict[str, str], name: str) -> None:
    assert rank_file(Path("out/net.json.gz"), environ) == Path("out") / name


def test_options_are_these() -> None:
    options = {name for action in build_parser()._actions for name in action.option_strings}
    assert options == {"-h", "--help", "-o", "--output", "--force", "--trace", "--warmup", "--steps"} | {
        "--capture-range",
        "--dispatch",
        "--no-children",
        "--no-graph-captures",
        "--memory",
        "--nvml",
        "--json",
        "--version",
        "-m",
        "--report",
        "-q",
        "--quiet",
    }


@pytest.mark.parametrize("where", ["missing.py", "folder"])
def test_a_missing_script_is_one_line(tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    assert main(["-o", str(tmp_path / "net.json.gz"), str(tmp_path / where)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "net.json.gz").exists()


def test_names_are_exact_whatever_they_hold(tmp_path: Path) -> None:
    names = ['a "b"', "back\\slash", "ünï", "new\nline", "{'mod': 1}"]
    with pyprof.profile(tmp_path / "net.json.gz"):
        for name in names:
            with pyprof.annotate(name):
                torch.relu(torch.ones(2))
        with torch.profiler.record_function('of the user\'s "own"'):
            torch.relu(torch.ones(2))
    found = [event["name"] for event in events(tmp_path / "net.json.gz") if event.get("cat") == "user_annotation"]
    assert [name for name in found if name.startswith("layer:")] == ["layer:" + name for name in names]
    # Kineto of PyTorch 2.15 writes apostrophes for the quotes in names that are not ours.
    assert {'of the user\'s "own"', "of the user's 'own'"} & {*found}


def test_the_file_tells_nothing_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setenv("PYPROF_TEST_SECRET", "xyzzy-secret")
    with pyprof.profile(tmp_path / "net.json.gz", trace=True):
        torch.relu(torch.ones(2))
    with gzip.open(tmp_path / "net.json.gz", "rt", encoding="utf-8") as file:
        text = file.read()
    trace = json.loads(text)
    assert trace.get("host_name", "") == trace.get("traceName", "") == ""
    assert "xyzzy-secret" not in text and str(tmp_path) not in text and str(Path.home()) + "/" not in text
    assert f'"{socket.gethostname()}"' not in text


def test_profile_refuses_an_existing_file_before_it_runs(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("mine", encoding="utf-8")
    ran = []
    with pytest.raises(pyprof.PyprofError, match=r"x\.json: exists"), pyprof.profile(tmp_path / "x.json"):
        ran.append("an exception here would give way to that of the file at the end")
    assert ran == []
    assert pyprof.capture.session.current() is None  # type: ignore[attr-defined]


def test_profile_writes_when_the_block_raises_and_leaves_nothing_changed(tmp_path: Path) -> None:
    call = torch.nn.Module.__call__
    with pytest.raises(ZeroDivisionError), pyprof.profile(tmp_path / "x.json"):
        torch.relu(torch.ones(2))
        1 / 0  # noqa: B018
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["traceEvents"]
    assert torch.nn.Module.__call__ is call


def test_steps_are_ranges(tmp_path: Path) -> None:
    with pyprof.profile(tmp_path / "net.json.gz"):
        for _ in range(3):
            torch.relu(torch.ones(2))
            pyprof.step()
        pyprof.stop()
    steps = [e["name"] for e in events(tmp_path / "net.json.gz") if "ProfilerStep" in str(e.get("name"))]
    assert steps == ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]


def test_kinetos_lines_of_both_forms_are_repaired() -> None:
    from pyprof.capture.trace_file import repaired

    text = '{"v":1,"mod":"torch","op":"relu","args":[]}'
    # copied from files that PyTorch 2.11 and 2.13 wrote
    until_212 = [
        '  {\n    "ph": "X", "cat": "cpu_op", "name": "pyprof#43", "pid": 469, "tid": 469,\n',
        '    "ts": 4388463313072.145, "dur": 2414.433\n  }',
        ",\n  {\n",
        '    "ph": "X", "cat": "user_annotation", "name": "a "quoted", "pid": 3", "pid": 469, "tid": 469\n  }\n',
    ]
    since_213 = [
        "  {\n",
        '    "ph": "X",\n',
        '    "cat": "cpu_op",\n',
        '    "name": "pyprof#43",\n',
        '    "pid": 469\n  }',
        ",\n  {\n",
        '    "ph": "X",\n',
        '    "cat": "user_annotation",\n',
        '    "name": "a "quoted", "pid": 3",\n',
        '    "pid": 469\n  }\n',
    ]
    for lines in (until_212, since_213):
        single = "".join(lines).splitlines(keepends=True)
        events = json.loads("[" + "".join(repaired(single, {"pyprof#43": text})) + "]")
        assert [(event["cat"], event["name"]) for event in events] == [
            ("user_annotation", text),
            ("user_annotation", 'a "quoted", "pid": 3'),
        ]


RANKS = r"""
import torch, torch.distributed as dist, pyprof
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
for _ in range(3):
    net(torch.ones(3 + dist.get_rank(), 4)).sum().backward()
    pyprof.step()
print(f"rank {dist.get_rank()}\n", end="", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_under_torchrun_each_rank_has_its_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, "-m", "pyprof", "run", "-o", "net.json.gz", "--steps", "2", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.split("\n")) == ["", "rank 0", "rank 1"]
    for rank in range(2):
        linear = [m for m in markers(tmp_path / f"net.rank{rank}.json.gz") if m.op == "linear"]
        assert [m.args[0]["shape"] for m in linear] == [[3 + rank, 4]] * 2  # two steps of three


class TestUnderATool:
    """nsys, nvprof or ncu is attached: it collects, not PyTorch's profiler, which would take CUPTI from it."""

    @pytest.fixture(autouse=True)
    def tool(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        from pyprof.capture import collector, sinks

        self.domain = Domain()
        self.calls: list[str] = []
        monkeypatch.setattr(sinks, "_nvtx_domain", lambda: self.domain)
        monkeypatch.setattr(collector, "cuda_profiler", self.calls.append)
        monkeypatch.chdir(tmp_path)

    def test_it_has_the_markers_and_no_trace_is_written(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        name = script(tmp_path, "import torch\ntorch.relu(torch.ones(3))\nraise SystemExit(3)\n")
        assert main([name]) == 3
        found = [parse_marker(text) for _, text in self.domain.seen]
        relu = next(marker for marker in found if marker is not None and marker.op == "relu")
        assert "script.py:2" in relu.trace[-1]
        assert [file.name for file in tmp_path.iterdir()] == ["script.py"]
        assert capsys.readouterr().err.startswith("pyprof run: the tool that is attached collected\npyprof run: next: ")
        assert (self.calls, self.domain.open, pyprof.capture.session.current()) == ([], [], None)

    STEPS = "import pyprof, torch\nfor i in range(6):\n    torch.relu(torch.ones(i))\n    pyprof.step()\n"

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ([], []),
            (["--warmup", "2"], [(0, "start"), (4, "stop")]),
            (["--warmup", "1", "--steps", "3"], [(0, "start"), (3, "stop")]),
            (["--steps", "2"], [(0, "start"), (2, "stop")]),
            (["--warmup", "9"], []),
        ],
    )
    def test_the_window_is_where_cuda_s_profiler_is_on(
        self,
        options: list[str],
        expected: list[tuple[int, str]],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        from pyprof.capture import collector

        told: list[tuple[int, str]] = []

        def cuda_profiler(what: str) -> None:
            told.append((sum("relu" in text for _, text in self.domain.seen), what))

        monkeypatch.setattr(collector, "cuda_profiler", cuda_profiler)
        assert main([*options, script(tmp_path, self.STEPS)]) == 0
        assert told == expected

    def test_the_program_s_own_range(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        lines = ["import pyprof", "pyprof.start()", *["pyprof.step()"] * 2, "pyprof.stop()", "pyprof.start()"]
        name = script(tmp_path, "\n".join([*lines, "pyprof.stop()"]))
        assert main(["--steps", "1", "--capture-range", "cudaProfilerApi", name]) == 0
        assert self.calls == ["start", "stop"] * 2

    def test_json_says_that_there_is_no_file(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert main(["--json", script(tmp_path, "print('out')\n")]) == 0
        out, err = capfd.readouterr()
        assert json.loads(out)["output"] is None and err == "out\n"

    def test_a_trace_that_is_asked_for_is_written(self, tmp_path: Path) -> None:
        assert main(["-o", "net.json.gz", script(tmp_path, "import torch\ntorch.relu(torch.ones(3))\n")]) == 0
        assert [marker.op for marker in markers(tmp_path / "net.json.gz")].count("relu") == 1


def test_collecting_goes_on_after_the_program_s_own_profiler(tmp_path: Path) -> None:
    file = tmp_path / "net.json.gz"
    with pyprof.profile(file):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            torch.ones(2).sin()
        torch.ones(2).cos()
    assert [marker.op for marker in markers(file)] == ["ones", "cos"]


def test_a_forked_child_s_output_is_written_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    output = io.TextIOWrapper(written)
    output.write("said")
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: None)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        end_process(259)
    assert (ended.value.code, written.getvalue()) == (3, b"said")  # 259 = 256 + 3


def test_kinetos_noise_is_left_out_of_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with without_noise():
        os.write(2, b"USDT: no probes\nERROR: what a user should see\n")
    assert capfd.readouterr().err == "ERROR: what a user should see\n"
