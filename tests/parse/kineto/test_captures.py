"""Real torch.profiler traces, NVIDIA, AMD, 2021 to 2026, against plain json.loads loops over the same files."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyprof.errors import InputError
from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL
from tests.paths import GOLDEN

GPU = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime"}
# End of the file's name, GPU operations, their ns, and how many have their call in the file; as json.loads counts them.
FILES = [
    ("b200__eager_trace_e443f32f14", 929, 11_665_760, 929),
    ("h100__Qwen_Qwen1.5-0.5B-Chat__1016005_6f3f5884fc", 1707, 45_647_300, 1198),
    ("h100__gaunernst_bert-small-uncased__1016001_737b43a141", 61, 309_437, 61),
    ("mi300__gaunernst_bert-small-uncased__1016001_ec4563ad7f", 61, 390_748, 61),
    ("torch_compile_triton__trace_5c04d97c11", 12, 12_549_021, 12),
    ("mi250_minitoy_train_ROCm6_2_kineto_5ac5659786", 16, 149_042, 16),
    ("rank-34.Jul_15_10_52_41.1074.pt.trace_1aff90f85c", 0, 0, 0),
    ("nccl_parser_config__nccl_data_b4b6dcef87", 3774, 165_185_838, 3774),
    ("trace_diff__control__control_b1ceb4c081", 9450, 501_567_000, 9450),
    ("triton_example_c88eab3088", 1, 1760, 1),
    ("linear_kineto", 10_356, 370_983_000, 10_356),
    ("h200_gpt2_bf16", 1214, 23_758_245, 1214),
    ("h200_gpt2_compiled", 144, 4_144_535, 144),
    ("h200_infer_fp8", 3, 249_628, 3),
    ("h200_lenet_fp32", 57, 189_533, 57),
    ("h200_resnet50_bf16", 900, 9_007_968, 900),
    ("h200_tutorial_encoder", 77, 1_252_712, 77),
    ("h200x2_gpt2_ddp_rank0", 586, 13_911_953, 586),
    ("h200x2_gpt2_ddp_rank1", 586, 22_757_246, 586),
    ("worker0.pt.trace_4a9c9ae521", 10_133, 987_884_000, 10_133),
]


def _file(data: Path, name: str) -> Path:
    (found,) = (data / "kineto").glob(f"*{name}.json.gz")
    return found


def _events(file: Path) -> list[dict[str, Any]]:
    trace = json.loads(gzip.decompress(file.read_bytes()))
    events: list[dict[str, Any]] = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    return events


@pytest.mark.parametrize(("name", "rows", "ns", "launched"), FILES)
def test_counts_and_times_are_the_files(data, name, rows, ns, launched):
    got = read(_file(data, name))
    assert (got.rows, int(got.columns["kDuration"].sum()) if got.rows else 0) == (rows, ns)
    assert int((got.launch_time != NULL).sum()) == launched


@pytest.mark.parametrize(("name", "rows"), [(name, rows) for name, rows, *_ in FILES if rows])
def test_every_row_is_the_files_event(data, name, rows):
    file = _file(data, name)
    events = _events(file)
    first = min(event["ts"] for event in events if event["cat"] not in ("overhead", "gpu_user_annotation"))
    begin = next((event["ts"] for event in events if event["cat"] == "Trace"), first)
    got = read(file)
    wanted = Counter(
        (
            event["name"], round(event["dur"] * 1000), event["args"]["correlation"], event["args"]["stream"],
            round((event["ts"] - begin) * 1000),
            str(event["args"].get("grid", "")), str(event["args"].get("block", "")),
        )
        for event in events
        if event["cat"] in GPU
    )  # fmt: skip
    columns = got.columns
    names = columns["kLongName"].texts()
    mangled = {event["name"] for event in events if event["cat"] in GPU and event["name"].startswith("_Z")}
    found = Counter(
        zip(
            names, *(columns[key].tolist() for key in ("kDuration", "corr", "stream", "start")),
            columns["grid"].texts(), columns["block"].texts(), strict=True,
        )
    )  # fmt: skip
    if not mangled:
        assert found == wanted
    assert sum(found.values()) == rows


# Where external ids are unlike the ops' (2022) or name unrelated ones (2023), time alone decides.
@pytest.mark.parametrize("name", [name for name, rows, *_ in FILES if rows and name != "linear_kineto"])
def test_the_op_of_a_kernel_is_the_one_that_the_trace_names(data, name):
    file = _file(data, name)
    events = _events(file)
    ops = {
        event["args"].get("External id"): event["name"] for event in events if event["cat"] in ("cpu_op", "Operator")
    }
    named = {
        event["args"]["correlation"]: ops[event["args"].get("External id", event["args"].get("external id"))]
        for event in events
        if event["cat"] in GPU and event["args"].get("External id", event["args"].get("external id")) in ops
    }
    table = correlate(read(file))
    differ = Counter(
        (named[corr], aten)
        for corr, aten in zip(table.ints("corr").tolist(), table.coded("aten").texts(), strict=True)
        if corr in named and named[corr] != aten and named[corr].startswith("aten::")
    )
    assert not differ


def test_kernels_from_before_the_capture(data):
    table = correlate(read(_file(data, "Qwen_Qwen1.5-0.5B-Chat__1016005_6f3f5884fc")))
    reasons = Counter(table.coded("reason").texts())
    assert reasons == {"": 1198, "launched before the capture": 509}  # 1707 - 1198
    lost = table.ints("apiStart") == NULL
    assert 0.29 < table.ints("kDuration")[lost].sum() / table.ints("kDuration").sum() < 0.31


def test_backward_nodes_are_linked_to_their_forward_ops(data):
    for name, flows in (("h200_gpt2_bf16", 617), ("h200_resnet50_bf16", 235), ("h200_lenet_fp32", 17)):
        got = read(_file(data, name))
        forward = got.ranges.forward_range
        assert forward is not None
        linked = [(int(node), int(op)) for node, op in enumerate(forward) if op >= 0]
        assert len(linked) == flows  # as many as the file has fwdbwd flows
        for node, op in linked:
            assert got.ranges.seq[node] == got.ranges.seq[op]
            assert got.scopes[got.ranges.scope[node]].name.endswith(("Backward0", "Backward1"))


def test_ranks_and_gpus(data):
    for rank in (0, 1):
        got = read(_file(data, f"h200x2_gpt2_ddp_rank{rank}"))
        assert set(got.columns["rank"].tolist()) == {rank}
        assert set(got.columns["gpu"].texts()) == {"NVIDIA H200"}
        assert set(got.columns["device"].tolist()) == {rank}


def test_text_that_is_not_json_is_refused(data):
    (file,) = (data / "kineto").glob("*MACOSX*.json")
    with pytest.raises(InputError, match="found a binary file"):
        read(file)


def test_lenet_has_the_users_frames():
    table = correlate(read(GOLDEN / "h200_lenet_fp32.json.gz"))
    traces = {line for text in table.coded("trace").texts() if text for line in json.loads(text)}
    assert traces and all(line.partition(":")[0].endswith(".py") for line in traces)
    assert not any(line.startswith(("torch/", "<")) for line in traces)
