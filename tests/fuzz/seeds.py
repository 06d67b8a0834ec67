"""Whole files of each format, from which the fuzzer starts: small ones out of literal rows, and two real captures."""

import gzip
import json
import pickle
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from pyprof.parse.cli import main as parse
from tests.parse.databases import test_database_damage
from tests.parse.formats import test_rocprof_json
from tests.parse.formats.test_memory_snapshot import BACKWARD, FORWARD, block, event, segment, snapshot
from tests.parse.kineto.kineto_file import AUTOGRAD, begin, call, kernel, op, x
from tests.parse.ncu.ncu_table import launch, raw
from tests.paths import GOLDEN

MARKER = json.dumps(
    {
        "pyprof": 1,
        "op": "linear",
        "mod": "torch.nn.functional",
        "args": [
            {"type": "tensor", "shape": [64, 32], "dtype": "float32"},
            {"type": "tensor", "shape": [16, 32], "dtype": "float32"},
        ],
    }
)
OLD_MARKER = (
    "{'mod': 'torch', 'op': 'mm', 'args': [{'name': '', 'type': 'tensor', 'shape': (8, 4), 'dtype': 'float16'}]}"
)


class Seed(NamedTuple):
    """A file, or a folder of files."""

    kind: str
    suffix: str
    content: bytes | dict[str, bytes]  # a folder's by name


@cache
def seeds() -> dict[str, list[Seed]]:
    """By kind, always in the same order."""
    with tempfile.TemporaryDirectory() as folder:
        found = list(_seeds(Path(folder)))
    kinds: dict[str, list[Seed]] = {}
    for seed in found:
        kinds.setdefault(seed.kind, []).append(seed)
    return kinds


def _seeds(folder: Path) -> Iterator[Seed]:
    for kind, make in test_database_damage.WHOLE.items():
        yield Seed(kind, ".sqlite", make(folder / kind).read_bytes())
    lenet = gzip.decompress((GOLDEN / "h200_lenet_init.sqlite.gz").read_bytes())
    yield Seed("nsys", ".sqlite", lenet)
    yield from (Seed("kineto", ".json", _text(document)) for document in _traces())
    real = gzip.decompress((GOLDEN / "h200_lenet_fp32.json.gz").read_bytes())
    yield Seed("kineto", ".json", real)
    yield Seed("rocprof_json", ".json", _text({"rocprofiler-sdk-tool": [test_rocprof_json.document()]}))
    yield Seed("snapshot", ".pickle", pickle.dumps(_snapshot(), protocol=2))
    yield from _ncu()
    yield Seed("peaks", ".json", _text(_peaks()))
    timings = json.loads((GOLDEN / "timings" / "h200_advice.json").read_bytes())
    yield Seed("timings", ".json", _text({**timings, "calls": timings["calls"][:12]}))
    yield Seed("parquet_folder", "", _folder(GOLDEN / "h200_tiny_pqtdir"))
    yield from _parsed(folder, {"nsys": lenet, "kineto": real, "traced": _text(next(_traces()))})


def _parsed(folder: Path, captures: dict[str, bytes]) -> Iterator[Seed]:
    """Tables that parse.py makes of captures."""
    for name, content in captures.items():
        capture = folder / name
        capture.write_bytes(content)
        for kind, suffix in (("netdict", ".dict"), ("parquet", ".parquet"), ("container", ".pyprof")):
            made = folder / f"{name}{suffix}"
            with redirect_stderr(StringIO()):
                assert parse([str(capture), "-o", str(made), "-q"]) == 0
            yield Seed(kind, suffix, _folder(made) if made.is_dir() else made.read_bytes())
        shutil.rmtree(folder / f"{name}.pyprof")


def _folder(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def _text(document: Any) -> bytes:
    return json.dumps(document).encode()


def _traces() -> Iterator[dict[str, Any]]:
    """A step of forward and backward with layers, lines and markers; allocations; a collective and waits."""
    header = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132,
                              "totalGlobalMem": 150_000_000_000}],
        "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
    }  # fmt: skip
    shapes = {"Input_Dims": [[8, 4], [4, 16]], "Input_type": ["float", "float"], "Concrete_Inputs": ["", ""]}
    step = [
        begin(0),
        x("user_annotation", "ProfilerStep#3", 1, 90),
        x("user_annotation", MARKER, 5, 40),
        x("python_function", "train.py(12): step", 2, 80),
        x("python_function", "nn.Module: Linear_0", 4, 42),
        op("aten::linear", 10, 30, Sequence_number=7, External_id=1, **shapes),
        op("aten::mm", 12, 20, Sequence_number=7, External_id=2, **shapes),
        call(20, 5, External_id=2),
        kernel(100, 10, 5, External_id=2, est_achieved_occupancy_=31),
        op("autograd::engine::evaluate_function: MmBackward0", 50, 30, AUTOGRAD, Sequence_number=7, Fwd_thread_id=1),
        op("aten::mm", 52, 20, AUTOGRAD, External_id=3, Input_Dims=[[4, 8], [8, 16]], Input_type=["float", "float"]),
        call(60, 6, AUTOGRAD, External_id=3),
        kernel(120, 10, 6, External_id=3),
        x("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 135, 5, tid=7, pid=0, correlation=8, bytes=4096, device=0,
          stream=7),
        x("cuda_runtime", "cudaMemcpyAsync", 70, 5, correlation=8),
        x("cuda_runtime", "cudaStreamSynchronize", 80, 60, correlation=9),
    ]  # fmt: skip
    yield {**header, "traceEvents": step, "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    memory = [
        {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 70, "ts": 11 + i,
         "args": {"Device Type": 1, "Device Id": 0, "Addr": 4096 + 64 * (i % 2), "Bytes": size,
                  "Total Allocated": 8192, "Total Reserved": 1 << 21, "Ev Idx": i}}
        for i, size in enumerate((512, 1024, -512, 2048))
    ]  # fmt: skip
    yield {**header, "traceEvents": [*step, *memory]}
    nccl = {"Collective_name": "allreduce", "In_msg_nelems": 1024, "Out_msg_nelems": 1024, "Group_size": 2,
            "dtype": "Float", "Process_Group_Ranks": "[0, 1]"}  # fmt: skip
    reduce = [
        op("record_param_comms", 84, 10, External_id=4),
        call(86, 10, External_id=4),
        kernel(140, 30, 10, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", **nccl),
        {"ph": "s", "id": 10, "cat": "ac2g", "name": "ac2g", "pid": 7, "tid": 70, "ts": 86},
        {"ph": "f", "id": 10, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 140, "bp": "e"},
        x("user_annotation", OLD_MARKER, 83, 15),
        x("cuda_sync", "Stream Wait Event", 141, 2, tid=7, pid=0, stream=7, correlation=10, wait_on_stream=8),
    ]
    yield {**header, "traceEvents": [*step, *reduce]}


def _snapshot() -> dict[str, Any]:
    trace = [event("alloc", 0x1000, 512, 10, FORWARD), event("alloc", 0x2000, 1024, 20, BACKWARD),
             event("free_requested", 0x1000, 512, 30), event("free_completed", 0x1000, 512, 31)]  # fmt: skip
    return snapshot(trace, segments=[segment(block(1024, frames=FORWARD), block(512, "inactive"))])


def _ncu() -> Iterator[Seed]:
    metrics = [("gpu__time_duration.sum", "ns"), ("dram__bytes_read.sum", "byte"), ("dram__bytes_write.sum", "Mbyte"),
               ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%")]  # fmt: skip
    rows = [[*launch(i, "void gemm<float>(int)"), "1,536", "4,096", "0.5", "77.5"] for i in range(3)]
    yield Seed("ncu", ".csv", raw(metrics, rows, "==PROF== Connected to process 7\n").encode())
    details = gzip.decompress((GOLDEN / "ncu" / "h200_lenet_subset.details.csv.gz").read_bytes())
    yield Seed("ncu", ".csv", b"".join(details.splitlines(keepends=True)[:120]))


def _peaks() -> dict[str, Any]:
    curve = [[256, 1e12], [4096, 6e14]]
    return {
        "format": "pyprof peaks", "version": 1, "device": "NVIDIA H200", "arch": "sm_90", "torch": "2.11.0", "sms": 132,
        "memory_bytes": 150_000_000_000, "cache_bytes": 50 << 20, "flop_per_s": {"bf16_tc": 7.1e14, "fp32": 5.1e13},
        "lasting_flop_per_s": {"bf16_tc": 6e14}, "byte_per_s": 4.1e12, "link_byte_per_s": {"host to gpu": 5e10},
        "curves": {"products_flop_per_s": {"bf16": curve}, "memory_byte_per_s": {"copy": curve},
                   "elementwise_byte_per_s": {"float32": {"relu": 3e12}}},
        "skipped": {"fp8": "no such product"},
    }  # fmt: skip
