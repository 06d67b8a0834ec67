"""AMD's databases, made by hand after the definitions of their views: no real one of a PyTorch run was at hand."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyprof.errors import InputError, SchemaError
from pyprof.parse.attribute.correlate import correlate
from pyprof.parse.detect import reader
from pyprof.parse.formats.rocpd import EXPERIMENTAL
from pyprof.table.columns import NULL, Table

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


def parsed(path: Path) -> Table:
    return correlate(reader(path)(path))


def test_rocprofv3(tmp_path):
    table = parsed(write(tmp_path / "a.db", V3, rocprof(), suffix="_0000b0b_1c"))
    texts = {
        key: table.coded(key).texts()
        for key in ("kind", "kShortName", "kLongName", "op", "dir", "api", "grid", "block")
    }
    assert texts == {
        "kind": ["kernel", "memcpy"],
        "kShortName": ["relu", "MEMORY_COPY_HOST_TO_DEVICE"],
        "kLongName": ["at::relu(float*)", "MEMORY_COPY_HOST_TO_DEVICE"],
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
    assert table.coded("kShortName").texts() == ["relu_kernel", "CopyHostToDevice"]
    assert table.coded("op").texts() == ['["relu"]', ""]
    assert table.coded("reason").texts() == ["", "no API row"]
    assert table.ints("start").tolist() == [200, 250]
    assert table.ints("pid").tolist() == [7, 7]


def test_both_say_that_they_are_experimental(tmp_path):
    for path in (write(tmp_path / "a.db", V3, rocprof()), write(tmp_path / "a.rpd", RPD, rpd())):
        assert reader(path)(path).warnings == [EXPERIMENTAL]


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
def test_a_value_that_is_no_number_is_refused(tmp_path, value):
    rows = rpd()
    rows["rocpd_op"] = [(1, 2, 0, 1, 300, value, 6, 5)]
    path = write(tmp_path / "a.rpd", RPD, rows)
    with pytest.raises(SchemaError, match="expected numbers as times"):
        reader(path)(path)


def test_rows_whose_names_or_times_are_lost_stay(tmp_path):
    rows = rocprof() | {"rocpd_info_kernel_symbol": []}
    assert parsed(write(tmp_path / "a.db", V3, rows)).coded("kLongName").texts() == ["", "MEMORY_COPY_HOST_TO_DEVICE"]
    lost = rpd() | {"rocpd_op": [(1, 2, 0, 1, 300, None, 6, 5), (2, 2, 0, 2, 350, 360, 4, 7)]}
    assert parsed(write(tmp_path / "a.rpd", RPD, lost)).ints("kDuration").tolist() == [0, 10]
