"""The reason of each row without an op, found again from the raw files: the trace's JSON, the export's SQLite tables.

Nothing here uses the package's readers: a row's class follows from its call and the events around it, one by one.
"""

import gzip
import json
import shutil
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof.errors import PyprofError
from pyprof.parse.attribute import reasons
from pyprof.table.columns import NULL
from tests.paths import GOLDEN
from tests.tables import parsed

KINETO = [
    "kineto/AMD-AGI+TraceLens__tests__traces__b200__eager_trace_e443f32f14.json.gz",
    "kineto/AMD-AGI+TraceLens__tests__traces__h100__Qwen_Qwen1.5-0.5B-Chat__1016005_6f3f5884fc.json.gz",
    "kineto/pytorch+kineto__tb_plugin__samples__resnet50_autograd_api_num_workers_0__worker0.pt.trace_4a9c9ae521.json.gz",
    *(f"round2/{name}.json.gz" for name in (
        "deepseek_h800_train", "hta_negative_queue_rank0", "param_dlrm_adagrad", "tracelens_h100_owlv2",
        "tracelens_mi210_gpu_only", "tracelens_sglang_capture", "tracelens_sglang_decode", "tracelens_vllm_capture",
        "tracelens_vllm_decode", "kineto_v100_workers0",
    )),
]  # fmt: skip
NSYS = [
    "Athrun0109+CS336", "h100_2gpu_1s", "healthy_1pct", "mfu_2gpu_before", "NVIDIA+Fuser", "power_iteration",
    "Mordred", "perlmutter-cloverleaf", "saxpy-mpi", "jsun-012", "yyhtbs", "result_2_7B.", "result_2_7B_clean",
    "result_2_7B_compile_ro", "h200_gpt2_cudagraph_node", "h200_lenet",
]  # fmt: skip

GPU = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"}
FRAMES, OPS = {"python_function"}, {"cpu_op", "Operator"}
RANGES = FRAMES | OPS | {"user_annotation"}
PYTHON, USER = reasons.ONLY_PYTHON, reasons.ONLY_USER_RANGES


def without_op(file: Path) -> Counter[tuple[int, str]]:
    """The rows without an op: (correlation id, reason without a range's name)."""
    table = parsed(file)
    ids, op, why = table.ints("corr").tolist(), table.coded("op").texts(), table.coded("reason").texts()
    assert all(why[i] for i in range(len(table)) if not op[i])
    return Counter((ids[i], reasons.general(why[i])) for i in range(len(table)) if not op[i])


def events_of(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8", errors="replace") as text:
        return [event for event in json.load(text)["traceEvents"] if event.get("ph") == "X"]


class Trace:
    """A torch.profiler trace as plain events."""

    def __init__(self, file: Path) -> None:
        events = events_of(file)
        self.rows = [event for event in events if event.get("cat") in GPU]
        self.calls = {self.corr(e): e for e in events if e.get("cat") in CALLS and self.corr(e)}
        self.ids = {e["args"].get("External id", e["args"].get("external id")) for e in events if e.get("cat") in OPS}
        self.first = min((float(e["ts"]) for e in self.calls.values()), default=0.0)
        self.ranges: dict[tuple[Any, Any], list[dict[str, Any]]] = defaultdict(list)
        for event in events:
            if event.get("cat") in RANGES:
                self.ranges[event["pid"], event["tid"]].append(event)
        self.times = {
            thread: np.array([(float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in ranges])
            for thread, ranges in self.ranges.items()
        }

    @staticmethod
    def corr(event: dict[str, Any]) -> int:
        return int(event["args"].get("correlation") or 0)

    def reason(self, row: dict[str, Any]) -> str | None:
        """The reason that the raw events give; None where an op is around the launch."""
        call = self.calls.get(self.corr(row))
        if call is None:
            if not self.calls:
                return reasons.NO_CALLS
            if float(row["ts"]) < self.first or 0 < self.corr(row) < min(self.calls):
                return reasons.BEFORE_CAPTURE
            return reasons.NO_CALL if self.corr(row) else reasons.NO_CORRELATION
        inside = self.around(call)
        if any(e["cat"] in OPS or e["name"].startswith(("Optimizer.", "nccl:")) for e in inside):
            return None
        if "GraphLaunch" in call["name"]:
            return reasons.GRAPH_REPLAY
        if not inside:
            return reasons.NO_RANGE
        innermost = max(inside, key=lambda e: (float(e["ts"]), -float(e["dur"])))
        return PYTHON if innermost["cat"] in FRAMES else USER

    def around(self, call: dict[str, Any]) -> list[dict[str, Any]]:
        """The ranges of the call's thread that are open when it begins."""
        thread, at = (call["pid"], call["tid"]), float(call["ts"])
        if thread not in self.ranges:
            return []
        start, end = self.times[thread].T
        return [self.ranges[thread][i] for i in np.flatnonzero((start <= at) & (at < end)).tolist()]


@pytest.mark.parametrize("name", KINETO)
def test_the_reasons_of_a_trace(data: Path, name: str) -> None:
    trace, found = Trace(data / name), without_op(data / name)
    raw: dict[int, list[str | None]] = defaultdict(list)
    for row in trace.rows:
        raw[trace.corr(row)].append(trace.reason(row))
    expected = Counter((corr, why) for corr, whys in raw.items() for why in whys if why)
    assert found - expected == Counter()
    # Rows that the raw launch leaves without an op and that have one took it from the profiler's own op number.
    for corr, _ in expected - found:
        call = trace.calls[corr]
        assert call["args"].get("External id", call["args"].get("external id")) in trace.ids


class Export:
    """An nsys export as plain rows; only push/pop ranges (types 59 and 70) are around launches."""

    def __init__(self, file: Path, folder: Path) -> None:
        path = folder / "net.sqlite"
        with gzip.open(file) as packed, path.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        self.db = sqlite3.connect(path)
        self.db.text_factory = lambda text: text.decode(errors="replace")
        self.tables = {name for (name,) in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self.calls = {
            (self.process(tid), corr): (tid, start)
            for corr, tid, start in self.read("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId, globalTid, start")
        }
        self.first: dict[Any, tuple[int, int]] = {}
        for (pid, corr), (_, start) in self.calls.items():
            least = self.first.get(pid, (corr, start))
            self.first[pid] = min(least[0], corr), min(least[1], start)
        self.ranges = defaultdict(list)
        for tid, start, end, kind in self.read("NVTX_EVENTS", "globalTid, start, end, eventType"):
            if kind in (59, 70):
                self.ranges[tid].append((start, end if end is not None else 1 << 62))

    def read(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        if table not in self.tables:
            return []
        has = {name for _, name, *_ in self.db.execute(f"PRAGMA table_info({table})")}
        named = ", ".join(name if name in has else "NULL" for name in columns.split(", "))
        return self.db.execute(f"SELECT {named} FROM {table}").fetchall()

    @staticmethod
    def process(number: int | None) -> int:
        return (number or 0) >> 24 & 0xFFFFFF

    def rows(self) -> list[tuple[int, str]]:
        """(correlation id, reason) of every operation, as if no range were an op's."""
        found = []
        for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"):
            columns = "correlationId, globalPid, start, graphNodeId"
            for corr, pid, start, node in self.read(f"CUPTI_ACTIVITY_KIND_{kind}", columns):
                graph = kind == "GRAPH_TRACE" or node is not None
                found.append((corr, self.reason(corr, self.process(pid), start, graph=graph)))
        return found

    def reason(self, corr: int, pid: int, start: int, graph: bool) -> str:
        tid, at = self.calls.get((pid, corr), (None, 0))
        if tid is None:
            if pid not in self.first:
                return reasons.NO_CALLS
            early = corr < self.first[pid][0] or start < self.first[pid][1]
            return reasons.BEFORE_CAPTURE if early else reasons.NO_CALL
        if graph:
            return reasons.GRAPH_REPLAY
        around = any(begin <= at < end for begin, end in self.ranges[tid])
        return USER if around else reasons.NO_RANGE


@pytest.mark.parametrize("part", NSYS)
def test_the_reasons_of_an_export(data: Path, part: str, tmp_path: Path) -> None:
    (file,) = (path for path in (data / "nsys").iterdir() if part in path.name)
    found = without_op(file)
    export = Export(file, tmp_path)
    with closing(export.db):
        assert found - Counter(export.rows()) == Counter()


@pytest.mark.parametrize("name", ["h200_gpt2_cudagraph_node.sqlite.gz", "h200_graph_init.sqlite.gz"])
def test_a_replayed_row_that_has_an_op_says_whose(name: str) -> None:
    """The first file lacks the graph's capture, so its nodes have the op of the launch; the second has the capture."""
    table = parsed(GOLDEN / name)
    node = table.ints("graphNode") != NULL
    expected = reasons.GRAPH_LAUNCH if "cudagraph_node" in name else ""
    assert node.any() and set(table.coded("reason").take(node.nonzero()[0]).texts()) == {expected}


def test_every_trace_is_among_these(data: Path) -> None:
    """Each file that has a row without an op is tested above."""
    files = {*(data / "kineto").iterdir(), *(data / "round2").glob("*.json.gz")} - {data / name for name in KINETO}
    for file in sorted(files):
        if "rocprofv3" in file.name:  # recorded without HIP's calls, and said so: test_rocprof_json.py
            continue
        with suppress(PyprofError):  # not a capture of GPU work
            assert without_op(file) == Counter(), file
