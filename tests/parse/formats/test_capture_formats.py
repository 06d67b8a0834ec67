"""Every capture at hand: a table whose counts and time are the file's own, or one clear line and nothing written."""

import gzip
import json
import os
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pyprof.parse.cli import main
from pyprof.parse.databases.unpacked_file import unpacked
from pyprof.parse.detect import reader
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL
from pyprof.table.read_table import read_table
from tests.tables import parsed

DATA = os.environ.get("PYPROF_DATA", "")
pytestmark = pytest.mark.skipif(not DATA, reason="PYPROF_DATA does not name the folder of captures")
FOLDERS = ("nsys", "nvprof", "pyprof_golden", "kineto", "ncu")
FILES = [path for name in FOLDERS if DATA for path in sorted((Path(DATA) / name).iterdir())]
REFUSED = {  # by a part of the name: what the line says
    "IhorAtlanov": "found an nsys export with none",
    "amir-ghz": "found an nsys export with none",
    "YoonKyonghwan": "found none; no GPU activity",
    "josiahdavis": "without any GPU activity",
    "xstupi00": "found XML",
    "lm.csv": "found text that starts",
    "net.dict": "give it to prof.py",
    "MACOSX": "what macOS keeps",
    "cpu_only__rank-34": "found none; no GPU activity",
    "details.csv": "a table of Nsight Compute",
    "raw.csv": "a table of Nsight Compute",
    ".ncu-rep": "an Nsight Compute report",
}
KINETO = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "gpu_memset": "memset",
    "Kernel": "kernel",
    "Memcpy": "memcpy",
    "Memset": "memset",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[-40:])
def test_a_table_with_the_files_own_counts_or_one_line(path, tmp_path, capsys):
    output = tmp_path / "net.parquet"
    refused = next((words for part, words in REFUSED.items() if part in path.name), None)
    code = main([str(path), "-o", str(output)])
    out, err = capsys.readouterr()
    assert out == ""
    if refused:
        assert code == 1
        assert err.startswith(f"parse.py: {path}: expected ")
        assert refused in err
        assert err.count("\n") == 1
        assert list(tmp_path.iterdir()) == []
        return
    assert code == 0
    table = read_table(output)
    kinds = np.array(table.coded("kind").texts())
    duration = table.ints("kDuration")
    found = {kind: (int((kinds == kind).sum()), int(duration[kinds == kind].sum())) for kind in set(kinds.tolist())}
    assert found == own(path)
    reasons = np.array(table.coded("reason").texts())
    assert all(reasons[table.coded("op").codes < 0]), "a row without an op has a reason"


def own(path: Path) -> dict[str, tuple[int, int]]:
    """Operations and nanoseconds by kind, as the file itself has them."""
    with unpacked(path) as (plain, _):
        if plain.read_bytes()[:6] == b"SQLite":
            with closing(sqlite3.connect(plain)) as connection:
                return of_database(connection)
    return of_trace(gzip.open(path).read() if path.name.endswith(".gz") else path.read_bytes())


def of_database(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    names = {
        "KERNEL": "kernel",
        "CONCURRENT_KERNEL": "kernel",
        "MEMCPY": "memcpy",
        "MEMSET": "memset",
        "GRAPH_TRACE": "graph",
    }
    found = {}
    for name, kind in names.items():
        if f"CUPTI_ACTIVITY_KIND_{name}" in tables:
            query = f"SELECT count(*), coalesce(sum(end - start), 0) FROM CUPTI_ACTIVITY_KIND_{name}"
            count, total = connection.execute(query).fetchone()
            if count:
                found[kind] = (count, total)
    return found


def of_trace(data: bytes) -> dict[str, tuple[int, int]]:
    text = data.decode("utf-8", "replace")
    try:
        loaded = json.loads(text, strict=False)
    except json.JSONDecodeError:  # backslashes of Windows' paths
        loaded = json.loads(re.sub(r'\\(?!["\\/bfnrtu])', r"\\\\", text), strict=False)
    events = loaded if isinstance(loaded, list) else loaded["traceEvents"]
    count, total = Counter[str](), Counter[str]()
    for event in events:
        kind = KINETO.get(event.get("cat", ""))
        if kind and event.get("ph") == "X":
            count[kind] += 1
            total[kind] += round(event["dur"] * 1000)
    return {kind: (count[kind], total[kind]) for kind in count}


def test_two_processes_never_mix():
    path = Path(DATA) / "nsys" / "h200x2_gpt2_ddp.sqlite.gz"
    capture = reader(path)(path)
    table = correlate(capture)
    kernels = np.array(table.coded("kind").texts()) == "kernel"
    assert sorted(Counter(table.ints("pid")[kernels].tolist()).values()) == [490, 490]
    with unpacked(path) as (plain, _), closing(sqlite3.connect(plain)) as connection:
        # the thread of the only API call of the same process with the same correlation id
        query = """SELECT (k.globalPid >> 24) & 0xFFFFFF, k.correlationId, r.globalTid & 0xFFFFFF, r.start
            FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
            AND (r.globalTid >> 24) = (k.globalPid >> 24) AND r.eventClass IN (0, 1)"""
        expected = sorted(connection.execute(query).fetchall())
    columns = [table.ints(key)[kernels].tolist() for key in ("pid", "corr", "tid", "apiStart")]
    assert sorted(zip(*columns, strict=True)) == expected
    assert len({corr for _, corr, *_ in expected}) < 980  # ids do repeat across the two
    # forward ops come from the row's own process
    of_thread = {tid: pid for pid, tid in capture.threads}
    assert all(of_thread[tid] == pid for pid, _, tid, _ in zip(*columns, strict=True))


def test_a_compiled_capture_is_busy_in_its_graphs():
    path = next(path for path in FILES if "compile_ro" in path.name)
    table = parsed(path)
    graphs = np.array(table.coded("kind").texts()) == "graph"
    assert int(graphs.sum()) == 10
    assert int(table.ints("kDuration")[graphs].sum()) > 7_800_000_000


def test_kernels_of_graph_nodes_carry_ops():
    path = Path(DATA) / "nsys" / "h200_gpt2_cudagraph_node.sqlite.gz"
    table = parsed(path)
    nodes = table.ints("graphNode") != NULL
    assert int(nodes.sum()) >= 124
    assert table.coded("op").codes[nodes].min() >= 0
