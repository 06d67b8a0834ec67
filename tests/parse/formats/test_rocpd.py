"""AMD's databases: some made by hand after the definitions of their views, and a real one of a HIP program."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyprof.errors import InputError, SchemaError
from pyprof.parse.detect import reader
from pyprof.parse.formats.rocm_events import EXPERIMENTAL
from pyprof.table.columns import NULL
from tests.tables import parsed

V3 = {  # tables carry the run's identifier, and views stand before them
    "rocpd_metadata": "id, tag, value",
    "rocpd_string": "id, guid, string",
    "rocpd_info_process": "id, guid, nid, ppid, pid",
    "rocpd_info_thread": "id, guid, nid, ppid, pid, tid",
    "rocpd_info_kernel_symbol": "id, guid, kernel_name, display_name",
    "rocpd_event": "id, guid, category_id, stack_id, parent_stack_id, correlation_id, extdata",
    "rocpd_region": "id, guid, nid, pid, tid, start, end, name_id, event_id",
    "rocpd_kernel_dispatch": "id, guid, nid, pid, tid, agent_id, kernel_id, dispatch_id, queue_id, stream_id, start,"
    " end, workgroup_size_x, workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, grid_size_z, event_id",
    "rocpd_memory_copy": "id, guid, nid, pid, tid, start, end, name_id, dst_agent_id, size, event_id",
}
RPD = {
    "rocpd_string": "id, string",
    "rocpd_api": "id, pid, tid, start, end, apiName_id, args_id",
    "rocpd_op": "id, gpuId, queueId, sequenceId, start, end, description_id, opType_id",
    "rocpd_api_ops": "id, api_id, op_id",
}
Rows = dict[str, list[tuple[Any, ...]]]


def write(path: Path, layout: dict[str, str], rows: Rows, suffix: str = "", drop: str = "") -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, columns in layout.items():
            names = ", ".join(f'"{name.strip()}"' for name in columns.split(",") if name.strip() != drop)
            connection.execute(f'CREATE TABLE "{table}{suffix}" ({names})')
            if suffix:
                connection.execute(f'CREATE VIEW "{table}" AS SELECT * FROM "{table}{suffix}"')
            for row in rows.get(table, []):
                connection.execute(f'INSERT INTO "{table}{suffix}" VALUES ({", ".join("?" * len(row))})', row)
    return path


def rocprof() -> Rows:
    message = json.dumps({"message": "aten::relu, seq = 5, op_id = 3, sizes = [[8, 2]]"})
    return {
        "rocpd_metadata": [(1, "schema_version", "3")],
        "rocpd_string": [
            (1, "g", "MARKER_CORE_RANGE_API"),
            (2, "g", "HIP_RUNTIME_API"),
            (3, "g", "hipLaunchKernel"),
            (4, "g", "roctxThreadRangeA"),
            (5, "g", "MEMORY_COPY_HOST_TO_DEVICE"),
            (6, "g", "hipMemcpyAsync"),
        ],
        "rocpd_info_process": [(1, "g", 1, 0, 4711)],
        "rocpd_info_thread": [(1, "g", 1, 0, 1, 4712)],
        "rocpd_info_kernel_symbol": [(9, "g", "_ZN2at4reluEPf.kd", "relu")],
        "rocpd_event": [
            (1, "g", 1, 10, 0, 0, message),
            (2, "g", 2, 11, 10, 0, "{}"),
            (3, "g", 2, 11, 10, 0, "{}"),
            (4, "g", 2, 12, 0, 0, "{}"),
            (5, "g", 2, 12, 0, 0, "{}"),
        ],
        "rocpd_region": [
            (1, "g", 1, 1, 1, 1000, 1100, 4, 1),
            (2, "g", 1, 1, 1, 1020, 1030, 3, 2),
            (3, "g", 1, 1, 1, 1200, 1210, 6, 4),
        ],
        "rocpd_kernel_dispatch": [(1, "g", 1, 1, 1, 2, 9, 1, 1, 3, 1500, 1600, 256, 1, 1, 1000, 2, 1, 3)],
        "rocpd_memory_copy": [(1, "g", 1, 1, 1, 1700, 1710, 5, 2, 4096, 5)],
    }


def rpd() -> Rows:
    return {
        "rocpd_string": [
            (1, "UserMarker"),
            (2, "aten::relu, seq = 5, op_id = 3"),
            (3, "hipLaunchKernel"),
            (4, ""),
            (5, "KernelExecution"),
            (6, "relu_kernel"),
            (7, "CopyHostToDevice"),
        ],
        "rocpd_api": [(1, 7, 8, 100, 200, 1, 2), (2, 7, 8, 110, 115, 3, 4)],
        "rocpd_op": [(1, 2, 0, 1, 300, 340, 6, 5), (2, 2, 0, 2, 350, 360, 4, 7)],
        "rocpd_api_ops": [(1, 2, 1)],
    }


def test_rocprofv3(tmp_path):
    table = parsed(write(tmp_path / "a.db", V3, rocprof(), suffix="_0000b0b_1c"))
    texts = {
        key: table.coded(key).texts()
        for key in ("kind", "kShortName", "kLongName", "op", "dir", "api", "grid", "block")
    }
    assert texts == {
        "kind": ["kernel", "memcpy"],
        "kShortName": ["relu", "[HIP memcpy Host-to-Device]"],
        "kLongName": ["at::relu(float*)", "[HIP memcpy Host-to-Device]"],
        "op": ['["relu"]', ""],
        "dir": ["fprop", ""],
        "api": ["hipLaunchKernel", "hipMemcpyAsync"],
        "grid": ["[4, 2, 1]", ""],
        "block": ["[256, 1, 1]", ""],
    }
    numbers = {
        key: table.ints(key).tolist() for key in ("start", "kDuration", "pid", "tid", "device", "stream", "bytes")
    }
    assert numbers == {
        "start": [500, 700],
        "kDuration": [100, 10],
        "pid": [4711, 4711],
        "tid": [4712, 4712],
        "device": [2, 2],
        "stream": [3, 0],
        "bytes": [NULL, 4096],
    }
    assert table.ragged("seqId").lists() == [[5], []]


def test_rocm_profile_data(tmp_path):
    table = parsed(write(tmp_path / "a.rpd", RPD, rpd()))
    assert table.coded("kind").texts() == ["kernel", "memcpy"]
    assert table.coded("kShortName").texts() == ["relu_kernel", "[HIP memcpy Host-to-Device]"]
    assert table.coded("op").texts() == ['["relu"]', ""]
    assert table.coded("reason").texts() == ["", "no API row"]
    assert table.ints("start").tolist() == [200, 250]
    assert table.ints("pid").tolist() == [7, 7]


def test_both_say_that_they_are_experimental(tmp_path):
    for path in (write(tmp_path / "a.db", V3, rocprof()), write(tmp_path / "a.rpd", RPD, rpd())):
        assert reader(path)(path).warnings == [EXPERIMENTAL]


# Agents as rocprofiler-sdk 1.0 records them: a CPU and a GPU, which is the machine's agent 2 and its GPU 0
CPU = {"type": 1, "name": "AMD EPYC", "logical_node_type_id": 0, "cu_count": 128}
GPU = {
    "type": 2,
    "name": "gfx942",
    "product_name": "AMD Instinct MI300X",
    "logical_node_type_id": 0,
    "cu_count": 304,
    "max_engine_clk_fcompute": 2100,  # MHz
    "gfx_target_version": 90402,
    "wave_front_size": 64,
    "mem_banks": [{"heap_type": 1, "size_in_bytes": 206141652992}],
}
INFO = {
    "smCount": 304,
    "clockRate": 2_100_000_000,
    "computeMajor": 9,
    "computeMinor": 4,
    "totalMemory": 206141652992,
    "threadsPerWarp": 64,
}


def test_agents_name_the_gpu_and_number_it_among_the_gpus(tmp_path):
    layout = {**V3, "rocpd_info_agent": "id, extdata"}
    layout["rocpd_memory_copy"] = (
        "id, guid, nid, pid, tid, start, end, name_id, dst_agent_id, src_agent_id, size, event_id"
    )
    rows = rocprof()
    rows["rocpd_info_agent"] = [(1, json.dumps(CPU)), (2, json.dumps(GPU))]
    rows["rocpd_memory_copy"] = [
        (1, "g", 1, 1, 1, 1700, 1710, 5, 2, 1, 4096, 5),
        (2, "g", 1, 1, 1, 1800, 1810, 5, 1, 2, 64, 5),  # back to the host: still the GPU's
    ]
    table = parsed(write(tmp_path / "a.db", layout, rows))
    assert table.ints("device").tolist() == [0, 0, 0]
    assert table.coded("gpu").texts() == ["AMD Instinct MI300X"] * 3
    assert [json.loads(text) for text in table.coded("gpuInfo").texts()] == [INFO] * 3


# symbol, the name that rocprofv3 displays: by default, with -T, with -M, of a kernel written in C -> the long name
NAMES = [
    ("_Z4reluPDF16b.kd", "relu(std::bfloat16_t*)", "relu(std::bfloat16_t*)"),  # GNU's demangler fails on DF16b
    ("_ZN2at4reluEPf.kd", "relu", "at::relu(float*)"),
    ("_ZN2at4reluEPf.kd", "_ZN2at4reluEPf", "at::relu(float*)"),
    ("__amd_rocclr_copyBuffer.kd", "__amd_rocclr_copyBuffer", "__amd_rocclr_copyBuffer"),
    ("Cijk_Ailk_Bjlk_HHS_BH.kd", "Cijk_Ailk_Bjlk_HHS_BH", "Cijk_Ailk_Bjlk_HHS_BH"),
]


@pytest.mark.parametrize(("symbol", "display", "long"), NAMES)
def test_the_display_name_is_used_where_it_is_whole(tmp_path, symbol, display, long):
    rows = rocprof()
    rows["rocpd_info_kernel_symbol"] = [(9, "g", symbol, display)]
    assert parsed(write(tmp_path / "a.db", V3, rows)).coded("kLongName").texts()[0] == long


def test_marks_and_ranges_of_the_process_are_no_ranges_of_a_thread(tmp_path):
    rows = rocprof()
    rows["rocpd_string"] += [(7, "g", "roctxMarkA"), (8, "g", "roctxProcessRangeA")]
    rows["rocpd_region"] += [(4, "g", 1, 1, 1, 1010, 1300, 7, 1), (5, "g", 1, 1, 1, 1010, 1300, 8, 1)]
    path = write(tmp_path / "a.db", V3, rows)
    assert len(reader(path)(path).ranges) == 1


def test_a_real_database_has_its_kernels_and_gpu(data):
    """Its own tables: 301 dispatches, 150 of the program's kernels by hipLaunchKernel and 151 fills by hipMemset."""
    path = data / "round2" / "rocpd_mi300x_batched_gemm.db.gz"
    table = parsed(path)
    names = Counter(zip(table.coded("kShortName").texts(), table.coded("api").texts(), strict=True))
    assert sum(names.values()) == 301
    assert {name for name, _ in names} == {
        "__amd_rocclr_fillBufferAligned",
        "batched_matrix_multiplication_matrix_core_64x64x4",
    }
    assert {api: sum(n for (_, a), n in names.items() if a == api) for api in ("hipLaunchKernel", "hipMemset")} == {
        "hipLaunchKernel": 150,
        "hipMemset": 151,
    }
    assert set(table.coded("gpu").texts()) == {"AMD Instinct MI300X"}
    assert set(table.ints("device").tolist()) == {0}
    assert any("std::bfloat16_t const*" in name for name in table.coded("kLongName").texts())


def test_a_missing_column_is_named(tmp_path):
    rows = {table: [] for table in V3}
    path = write(tmp_path / "a.db", V3, rows, drop="kernel_id")
    with pytest.raises(SchemaError, match="table rocpd_kernel_dispatch has no column kernel_id"):
        reader(path)(path)


def test_a_database_without_kernels_says_so(tmp_path):
    path = write(tmp_path / "a.db", V3, {})
    with pytest.raises(InputError, match="expected kernels, found a rocprofv3 database without any GPU activity"):
        reader(path)(path)


@pytest.mark.parametrize("value", ["soon", 2**70 * 1.0])
def test_a_value_that_is_no_number_is_unknown_and_its_kernel_stays(tmp_path, value):
    rows = rpd()
    rows["rocpd_op"] = [(1, 2, 0, 1, 300, value, 6, 5), (2, value, 0, 2, 350, 360, 4, 7)]
    path = write(tmp_path / "a.rpd", RPD, rows)
    table = parsed(path)
    assert table.ints("kDuration").tolist() == [0, 10]
    assert table.ints("device").tolist() == [2, NULL]
    assert table.coded("op").texts() == ['["relu"]', ""]
    what = "2 GPU operations, which take 10 ns, have values that are not whole numbers, which are unknown (end, gpuId)"
    assert what in reader(path)(path).warnings


def test_rows_whose_names_or_times_are_lost_stay(tmp_path):
    rows = rocprof() | {"rocpd_info_kernel_symbol": []}
    assert parsed(write(tmp_path / "a.db", V3, rows)).coded("kLongName").texts() == ["", "[HIP memcpy Host-to-Device]"]
    lost = rpd() | {"rocpd_op": [(1, 2, 0, 1, 300, None, 6, 5), (2, 2, 0, 2, 350, 360, 4, 7)]}
    assert parsed(write(tmp_path / "a.rpd", RPD, lost)).ints("kDuration").tolist() == [0, 10]


@pytest.mark.parametrize(("start", "end"), [(-(2**63) + 100, 200), (100, 2**63 - 1), (2**62, 2**62 + 9)])
def test_a_marker_at_an_impossible_time_is_left_out(tmp_path, start, end):
    rows = rpd() | {"rocpd_api": [(1, 7, 8, start, end, 1, 2), (2, 7, 8, 110, 115, 3, 4)]}
    path = write(tmp_path / "a.rpd", RPD, rows)
    assert parsed(path).coded("op").texts() == ["", ""]  # relu's range
    assert parsed(path).ints("kDuration").tolist() == [40, 10]
    assert "1 ranges without a time or a thread are left out" in reader(path)(path).warnings


@pytest.mark.parametrize(("sizes", "read"), [("[[2, 3]]", "[[2, 3]]"), ("[[, 2]]", ""), ("[2]", ""), ("[[2] 3]", "")])
def test_sizes_that_are_no_list_of_shapes_are_unknown(tmp_path, sizes, read):
    """Columns of JSON hold JSON: the tables of counts decode them without a further check."""
    strings = [(id_, f"{text}, sizes = {sizes}" if id_ == 2 else text) for id_, text in rpd()["rocpd_string"]]
    table = parsed(write(tmp_path / "a.rpd", RPD, rpd() | {"rocpd_string": strings}))
    assert table.coded("op").texts() == ['["relu"]', ""]
    assert table.coded("sizes").texts() == [read, ""]
