"""rocprofv3's JSON: a document made by hand, the same run as test_rocpd's database, and a real file."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof.errors import InputError, SchemaError
from pyprof.parse.detect import reader
from pyprof.parse.formats import rocprof_json
from pyprof.parse.formats.rocm_events import EXPERIMENTAL
from pyprof.prof.replay.cli import main as replay
from tests.parse.formats.test_rocpd import CPU, GPU, V3, rocprof
from tests.parse.formats.test_rocpd import write as write_database
from tests.tables import parsed

Document = dict[str, Any]


def record(kind: int, operation: int, corr: int, start: int, end: int, **more: Any) -> Document:
    times = {"start_timestamp": start, "end_timestamp": end, "correlation_id": {"internal": corr, "external": 0}}
    return {"size": 64, "kind": kind, "operation": operation, "thread_id": 4712, **times, **more}


def document() -> Document:
    """A relu in a ROCTX range, and a copy to the GPU: what ``test_rocpd.rocprof`` has as tables."""
    extents = {"workgroup_size": {"x": 256, "y": 1, "z": 1}, "grid_size": {"x": 1000, "y": 2, "z": 1}}
    dispatch = {"agent_id": {"handle": 22}, "kernel_id": 9, **extents}
    agents = {"dst_agent_id": {"handle": 22}, "src_agent_id": {"handle": 11}, "bytes": 4096}
    kinds = [
        ("NONE", []),
        ("HIP_RUNTIME_API", ["hipLaunchKernel", "hipMemcpyAsync"]),
        ("MARKER_CORE_RANGE_API", ["roctxMarkA", "roctxThreadRangeA", "roctxProcessRangeA"]),
        ("KERNEL_DISPATCH", ["NONE", "ENQUEUE", "COMPLETE"]),
        ("MEMORY_COPY", ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]),
    ]
    return {
        "metadata": {"pid": 4711},
        "agents": [{"id": {"handle": 11}, **CPU}, {"id": {"handle": 22}, **GPU}],
        "strings": {
            "buffer_records": [{"kind": kind, "operations": operations} for kind, operations in kinds],
            "marker_api": [{"key": 10, "value": "aten::relu, seq = 5, op_id = 3, sizes = [[8, 2]]"}],
        },
        "kernel_symbols": [{"kernel_id": 9, "kernel_name": "_ZN2at4reluEPf.kd", "formatted_kernel_name": "relu"}],
        "buffer_records": {
            "kernel_dispatch": [record(3, 2, 11, 1500, 1600, dispatch_info=dispatch, stream_id={"handle": 3})],
            "memory_copy": [record(4, 1, 12, 1700, 1710, stream_id={"handle": 0}, **agents)],
            "hip_api": [record(1, 1, 12, 1200, 1210), record(1, 0, 11, 1020, 1030)],
            "marker_api": [record(2, 0, 9, 900, 900), record(2, 2, 8, 950, 1300), record(2, 1, 10, 1000, 1100)],
        },
    }


def write(path: Path, *processes: Document) -> Path:
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes)}))
    return path


def test_it_is_read_as_the_database_of_the_same_run(tmp_path):
    layout = {**V3, "rocpd_info_agent": "id, extdata"}
    rows = {**rocprof(), "rocpd_info_agent": [(2, json.dumps(GPU))]}
    ours, theirs = (
        parsed(write(tmp_path / "a.json", document())),
        parsed(write_database(tmp_path / "a.db", layout, rows)),
    )
    assert ours.coded("op").texts() == ['["relu"]', ""]
    assert ours.coded("api").texts() == ["hipLaunchKernel", "hipMemcpyAsync"]
    assert ours.ints("device").tolist() == [0, 0]
    for key in "kind kShortName kLongName op dir api grid block gpu gpuInfo sizes".split():
        assert ours.coded(key).texts() == theirs.coded(key).texts(), key
    for key in "start kDuration pid tid device stream bytes apiStart apiDuration".split():
        assert ours.ints(key).tolist() == theirs.ints(key).tolist(), key


def test_each_document_is_a_process(tmp_path):
    other = document()
    other["metadata"]["pid"] = 5000
    other["buffer_records"]["hip_api"][1]["start_timestamp"] = 1000
    table = parsed(write(tmp_path / "a.json", document(), other))
    assert sorted(zip(table.ints("pid").tolist(), table.coded("kind").texts(), strict=True)) == [
        (4711, "kernel"),
        (4711, "memcpy"),
        (5000, "kernel"),
        (5000, "memcpy"),
    ]
    assert table.coded("op").texts().count('["relu"]') == 2
    assert table.ints("start").tolist() == [500, 500, 700, 700]  # since 1000, the first range and call of all


def test_kernels_alone_have_no_call(tmp_path):
    only = document()
    only["buffer_records"] = {"kernel_dispatch": only["buffer_records"]["kernel_dispatch"]}
    path = write(tmp_path / "a.json", only)
    assert parsed(path).coded("reason").texts() == ["no API row"]
    assert reader(path)(path).warnings == [EXPERIMENTAL]


def test_records_that_name_nothing_are_kept(tmp_path):
    strange = document()
    strange["kernel_symbols"] = []
    strange["agents"] = [{"id": None}, {"type": 2}]
    strange["strings"] = {}
    strange["buffer_records"]["hip_api"][0].update(kind=-1, operation=10**6)
    table = parsed(write(tmp_path / "a.json", strange))
    assert table.coded("kind").texts() == ["kernel", "memcpy"]
    assert table.coded("gpu").texts() == ["", ""]


BROKEN = [
    ('{"rocprofiler-sdk-tool":[{"buffer', InputError, "whole JSON, found broken text"),
    ('{"rocprofiler-sdk-tool":[{}]}', SchemaError, "another form: Object missing required field `buffer_records`"),
    ('{"rocprofiler-sdk-tool":7}', SchemaError, "another form: Expected `array`, got `int`"),
    ('{"rocprofiler-sdk-tool":[{"buffer_records":{}}]}', InputError, "without any GPU activity"),
]


@pytest.mark.parametrize(("text", "error", "words"), BROKEN)
def test_a_broken_file_gives_one_line(tmp_path, text, error, words):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(error) as raised:
        reader(path)(path)
    assert words in str(raised.value)
    assert str(raised.value).startswith(f"{path}: expected ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("value", ["soon", 1.5, None, 2**70])
def test_a_time_that_is_none_is_unknown_and_its_kernel_stays(tmp_path, value):
    broken = document()
    broken["buffer_records"]["kernel_dispatch"][0]["start_timestamp"] = value
    path = write(tmp_path / "a.json", broken)
    table = parsed(path)
    assert dict(zip(table.coded("kind").texts(), table.ints("kDuration").tolist(), strict=True)) == {
        "kernel": 0,
        "memcpy": 10,
    }
    said = "1 GPU operations, which take 0 ns, have values that are not whole numbers, which are unknown"
    assert (f"{said} (start_timestamp)" in reader(path)(path).warnings) == (value is not None)


def test_it_is_recognised_by_its_content(tmp_path):
    path = tmp_path / "results.txt"
    path.write_bytes(gzip.compress(json.dumps({"rocprofiler-sdk-tool": [document()]}, indent=4).encode()))
    assert reader(path) is rocprof_json.read
    assert len(parsed(path)) == 2


def test_a_real_file_has_every_dispatch(data):
    path = data / "round2" / "rocprofv3_908.json.gz"
    records = json.loads(gzip.decompress(path.read_bytes()))["rocprofiler-sdk-tool"][0]
    dispatches = records["buffer_records"]["kernel_dispatch"]
    table = parsed(path)
    assert len(table) == len(dispatches) == 43_915
    total = sum(kernel["end_timestamp"] - kernel["start_timestamp"] for kernel in dispatches)
    assert table.ints("kDuration").sum() == total
    assert set(table.coded("gpu").texts()) == {"AMD Instinct MI350X"}
    first = min(dispatches, key=lambda kernel: kernel["start_timestamp"])["dispatch_info"]
    blocks = [first["grid_size"][axis] // first["workgroup_size"][axis] for axis in "xyz"]
    assert table.coded("grid").texts()[0] == str(blocks)
    assert np.all(table.ints("pid") == 908)


def test_agents_that_are_no_records_are_none(tmp_path):
    """Found by the fuzzer."""
    broken = document()
    broken["agents"] = [None, 7, broken["agents"][1]]
    table = parsed(write(tmp_path / "net.json", broken))
    assert table.coded("kind").texts() == ["kernel", "memcpy"]
    assert len(set(table.coded("gpu").texts())) == 1


def test_calls_that_overlap_on_one_thread_have_a_critical_path(tmp_path, capsys):
    """Found by the fuzzer: each call waited for the other, and the path had no end."""
    broken = document()
    broken["buffer_records"]["hip_api"][0]["start_timestamp"] = -964226905136
    assert replay([str(write(tmp_path / "net.json", broken))]) == 0
    assert "Critical path" in capsys.readouterr().out
