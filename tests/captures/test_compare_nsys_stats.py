"""tools/compare_nsys_stats.py against an nsys that is a few lines of Python."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write

# prints what pyprof stats does, after nsys's own lines, and with some cells as nsys may write them
FAKE = """
import sys
sys.path.insert(0, {root!r})
import contextlib, io
from pyprof.parse.stats.cli import main
report, file = sys.argv[3], sys.argv[6]
assert sys.argv[2:6] == ["--report", report, "--format", "csv"]
print(f"Processing [{{file}}] with [/reports/{{report}}.py]... \\n", flush=True)
buffer = io.TextIOWrapper(io.BytesIO(), write_through=True)
with contextlib.redirect_stdout(buffer), contextlib.redirect_stderr(io.StringIO()):
    main([file, "-r", report, "-f", "csv"])
text = buffer.buffer.getvalue().decode()
print({change} if text else f"SKIPPED: {{file}} does not contain data.")
"""


@pytest.fixture
def file(tmp_path):
    tables = {KERNEL: [kernel(20, 1), kernel(40, 2, name=2)], API: [call(10, 1), call(15, 2)], NVTX: [push(0, 99, "s")]}
    return write(tmp_path / "net.sqlite", StringIds=[(1, "a"), (101, "a<int>"), (2, "b"), (102, "b<int>")], **tables)


def run(root: Path, file: Path, change: str, *options: str) -> subprocess.CompletedProcess[str]:
    fake = file.parent / "nsys.py"
    fake.write_text(FAKE.format(root=str(root), change=change))
    command = [sys.executable, str(root / "tools/compare_nsys_stats.py"), "--nsys", f"{sys.executable} {fake}"]
    return subprocess.run([*command, *options, str(file)], capture_output=True, text=True)


def test_equal_tables(root, file):
    names = "cuda_gpu_kern_sum:mangled,osrt_sum,nvtx_gpu_proj_trace"
    done = run(root, file, "text", "--report", names)
    assert (done.returncode, done.stderr) == (0, "")
    assert "cuda_gpu_kern_sum:mangled: 2 rows are equal\n" in done.stdout
    assert "osrt_sum: 0 rows are equal\n" in done.stdout
    assert done.stdout.endswith("all 3 reports are equal\n")


def test_no_table_and_no_error_is_an_empty_table(root, file):
    done = run(root, file, "''", "--report", "nvtx_startend_sum,cuda_gpu_sum")
    assert "nvtx_startend_sum: 0 rows are equal\n" in done.stdout
    assert "cuda_gpu_sum: 0 rows of nsys, 2 of ours\n" in done.stdout


def test_ids_are_compared_too(root, file):
    done = run(root, file, "text.replace(',1,,:1', ',7,,:7')", "--report", "nvtx_gpu_proj_trace")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "differ: nvtx_gpu_proj_trace")


def test_quotes_inside_texts_as_nsys_writes_them(root, tmp_path):
    texts = ['{"op": "mm", "shape": [3, 4]}', '{"op": "mm"}', "a,b"]
    file = write(tmp_path / "net.sqlite", NVTX_EVENTS=[push(10 * i, 10 * i + 9 - i, t) for i, t in enumerate(texts)])
    done = run(root, file, """text.replace('""', '"')""", "--report", "nvtx_sum,nvtx_pushpop_sum")
    assert (done.returncode, done.stderr) == (0, "")
    assert "nvtx_sum: 3 rows are equal\n" in done.stdout
    done = run(root, file, """text.replace('""', '"').replace('3, 4', '3, 5')""", "--report", "nvtx_sum")
    assert (done.returncode, "{op: mm | shape: [3 | 4]}" in done.stdout) == (1, True)


def test_a_row_that_differs_is_printed_for_both(root, file):
    done = run(root, file, "text.replace('b<int>', 'c<int>')", "--report", "cuda_gpu_kern_sum,cuda_gpu_kern_sum:base")
    assert done.returncode == 1
    assert "  only nsys: 1\n    50.0 | 10 | 1 | 10.0 | 10.0 | 10 | 10 | 0.0 | c<int>\n" in done.stdout
    assert "  only ours: 1\n    50.0 | 10 | 1 | 10.0 | 10.0 | 10 | 10 | 0.0 | b<int>\n" in done.stdout
    assert "cuda_gpu_kern_sum:base: 2 rows are equal\n" in done.stdout
    assert done.stdout.endswith("differ: cuda_gpu_kern_sum\n")


def test_columns_that_differ_and_an_nsys_that_fails(root, file):
    done = run(root, file, "text.replace('Instances', 'Calls')", "--report", "cuda_gpu_kern_sum")
    assert done.returncode == 1
    assert "cuda_gpu_kern_sum: the columns differ\n  nsys: Time (%), Total Time (ns), Calls," in done.stdout
    done = run(root, file, "exit('no such report')", "--report", "cuda_gpu_kern_sum")
    assert done.returncode == 1
    assert "nsys (exit 1) printed no table: no such report\n" in done.stdout


def test_no_nsys(root, file):
    command = [sys.executable, str(root / "tools/compare_nsys_stats.py"), "--nsys", "no-such-nsys", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no-such-nsys: No such file or directory: name it with --nsys" in done.stderr
