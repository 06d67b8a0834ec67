"""Each column that is read, in each format, with a value of each wrong type in one row: no other row changes.

No file is refused and no GPU operation lost, and a warning counts the row. Traces: ``kineto/test_wrong_types``.
"""

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.databases.database import Source
from pyprof.parse.detect import lean_reader, reader
from pyprof.parse.formats import nvprof, rocpd
from pyprof.parse.nsys import tables as nsys
from pyprof.parse.read import read_brief
from pyprof.parse.stats.cli import main as stats
from pyprof.parse.stats.recording import recording
from pyprof.parse.stats.reports import REPORTS, wanted
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import Coded, Table
from tests.parse.databases.test_database_damage import TABLES
from tests.parse.formats import test_rocpd, test_rocprof_json
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, process, push, startend, thread
from tests.parse.nsys.nsys_file import write as nsys_file
from tests.parse.nsys.test_parquet_folder import as_parquet
from tests.parse.stats.stats_rows import nvprof_file
from tests.paths import GOLDEN

NSYS = TABLES | {
    "CUPTI_ACTIVITY_KIND_MEMSET": [(320, 330, 0, 7, 9, process(7), 64, 0)],
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [(340, 350, 0, 7, 10, process(7), 5)],
    NVTX: [
        push(18, 25, "aten::mm, seq = 3, op_id = 4, sizes = [[2, 3], [3, 4]]"),
        push(38, 50, 60),
        startend(5, 95, "step"),
        (0, None, 75, "NCCL", None, thread(7, 0), 3),
    ],
    "OSRT_API": [(1, 2, 27, thread(7, 1), 50)],
    "ThreadNames": [(50, 1, thread(7, 1))],
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": [(3, 1, 0, "Message size [bytes]", 18, 0)],
    "NVTX_PAYLOAD_ENUMS": [(3, 2, 4)],
    "NVTX_PAYLOAD_ENUM_ENTRIES": [(3, 2, 0, "sum", 1)],
}
NVPROF = tuple(value for value in vars(nvprof).values() if isinstance(value, Source)) + nvprof.KERNELS
ROCPD = tuple(value for value in vars(rocpd).values() if isinstance(value, Source))
FILES: dict[str, tuple[Callable[[Path], Path], tuple[Source, ...]]] = {
    "nsys": (lambda path: nsys_file(path, **NSYS), nsys.EVERY),
    "nvprof": (nvprof_file, NVPROF),
    "rocpd": (lambda path: test_rocpd.write(path, test_rocpd.V3, test_rocpd.rocprof()), ROCPD),
    "rpd": (lambda path: test_rocpd.write(path, test_rocpd.RPD, test_rocpd.rpd()), ROCPD),
}
TEXTS = {
    ("StringIds", "value"), ("StringTable", "value"), (NVTX, "text"), (NVTX, "jsonText"), (NVTX, "binaryData"),
    ("NVTX_PAYLOAD_SCHEMA_ENTRIES", "name"), ("NVTX_PAYLOAD_ENUM_ENTRIES", "name"), ("TARGET_INFO_GPU", "name"),
    ("DIAGNOSTIC_EVENT", "text"), ("rocpd_string", "string"), ("rocpd_event", "extdata"),
    ("rocpd_info_kernel_symbol", "kernel_name"), ("rocpd_info_kernel_symbol", "display_name"),
}  # fmt: skip
# Only sort rows, or are not needed in the row that is changed: its text is in the row, its thread ended the range, and
# its owner may be a text. What a call returned is only read where launches lack kernels.
NOT_NEEDED = {
    ("DIAGNOSTIC_EVENT", "timestamp"), ("CUPTI_ACTIVITY_KIND_MARKER", "_id_"),
    ("CUPTI_ACTIVITY_KIND_MARKER", "objectId"), (NVTX, "textId"), (NVTX, "jsonTextId"), (NVTX, "endGlobalTid"),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "returnValue"),
}  # fmt: skip
OF_STATS = {KERNEL, API, NVTX, "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MARKER", "OSRT_API", "rocpd_region"}
WRONG = ("soon", b"\x00\xff", 2.5, float(2**70))  # SQLite stores a larger integer as a float
UNKNOWN = (None, -5, (1 << 63) - 1, -(1 << 63))  # numbers of the right type, or none
FACTS = ("kind", "kLongName", "kDuration", "device", "stream", "grid", "block", "bytes", "registers")


def columns() -> Iterator[tuple[str, str, str]]:
    """Each format, table and column that is in the format's file and is read."""
    for name, (_, sources) in FILES.items():
        read = {(source.table, column) for source in sources for _, column in source.columns}
        yield from ((name, table, column) for table, column in in_file(name) if (table, column) in read)


@cache
def in_file(name: str) -> tuple[tuple[str, str], ...]:
    with closing(sqlite3.connect(":memory:")) as db, closing(sqlite3.connect(whole_file(name))) as file:
        file.backup(db)
        tables = [table for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return tuple((table, row[1]) for table in tables for row in db.execute(f'PRAGMA table_info("{table}")'))


@cache
def whole_table(name: str) -> Table:
    path = whole_file(name)
    return correlate(reader(path)(path))


@cache
def whole_file(name: str) -> Path:
    return FILES[name][0](Path(tempfile.mkdtemp(prefix="pyprof-test-")) / "net.db")


def facts(table: Table, *keys: str) -> Counter[tuple[object, ...]]:
    """What is known of each GPU operation by itself, except by when it ran."""
    data = (table.columns[key] for key in keys)
    columns = [column.texts() if isinstance(column, Coded) else np.asarray(column).tolist() for column in data]
    return Counter(zip(*columns, strict=True))


def changed(name: str, table: str, column: str, value: object, folder: Path) -> Path:
    path = folder / "wrong.db"
    shutil.copy(whole_file(name), path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = (SELECT min(rowid) FROM "{table}")', (value,))
        db.commit()
    return path


def check(capture: Capture, whole: Table) -> None:
    """All rows, of which at most one is known less than in the whole file, and at most one has no op now."""
    table = correlate(capture)
    assert table.rows == whole.rows
    for keys in (FACTS, ("op",)):
        assert sum((facts(whole, *keys) - facts(table, *keys)).values()) <= 1, keys


@pytest.mark.parametrize(("name", "table", "column"), list(columns()))
def test_a_value_of_a_wrong_type_is_unknown_and_said(name, table, column, tmp_path):
    whole = whole_table(name)
    for value in (*WRONG, *UNKNOWN):
        path = changed(name, table, column, value, tmp_path)
        capture = reader(path)(path)
        check(capture, whole)
        lean = value not in WRONG[1:]  # which are unknown like the first, in the one place that all readers share
        if lean:
            check(lean_reader(path)(path), whole)
        if value in WRONG and (table, column) not in TEXTS | NOT_NEEDED and table != "OSRT_API":
            said = [text for text in capture.warnings if "which are unknown" in text and column in text]
            assert len(said) == 1 and said[0].startswith("1 "), (value, capture.warnings)
            if lean:
                notes, _ = read_brief(path)  # which reads fewer columns
                assert {text for text in notes.warnings if "which are unknown" in text} <= set(said)


@pytest.mark.parametrize(("name", "table", "column"), list(columns()))
def test_stats_warns_in_the_same_words(name, table, column, tmp_path):
    path = changed(name, table, column, "soon", tmp_path)
    with recording(path) as events:
        for report in REPORTS:
            wanted(report.name).rows(events)
        warnings = events.warnings
    said = [text for text in warnings if f"which are unknown ({column})" in text]
    assert said or table not in OF_STATS or (table, column) in TEXTS | NOT_NEEDED
    if table != "OSRT_API" and (table, column) not in NOT_NEEDED:  # which only these tables read
        assert set(said) <= set(reader(path)(path).warnings)


JSON_FIELDS = [
    (*place, key)
    for place, record in (
        (("metadata",), test_rocprof_json.document()["metadata"]),
        *((("buffer_records", kind, 0), records[0])
          for kind, records in test_rocprof_json.document()["buffer_records"].items()),
        (("buffer_records", "kernel_dispatch", 0, "dispatch_info"),
         test_rocprof_json.document()["buffer_records"]["kernel_dispatch"][0]["dispatch_info"]),
        (("strings", "marker_api", 0), {"key": 0, "value": 0}),
        (("strings", "buffer_records", 1), {"kind": 0, "operations": 0}),
        (("kernel_symbols", 0), test_rocprof_json.document()["kernel_symbols"][0]),
    )
    for key in record if key != "size"
]  # fmt: skip


@pytest.mark.parametrize("place", JSON_FIELDS, ids=lambda place: "-".join(map(str, place)))
def test_a_field_of_a_wrong_type_in_rocprofv3s_json(place, tmp_path):
    path = test_rocprof_json.write(tmp_path / "net.json", test_rocprof_json.document())
    whole = correlate(reader(path)(path))
    for value in ("soon", 5, 2.5, 2**70, -5, None, [1], {"a": 1}, True):
        document = test_rocprof_json.document()
        record = document
        for key in place[:-1]:
            record = record[key]
        if type(record[place[-1]]) is type(value):
            continue
        record[place[-1]] = value
        capture = reader(path)(test_rocprof_json.write(path, document))
        check(capture, whole)
        if value is not None and capture.columns["kDuration"].sum() < whole.ints("kDuration").sum():
            assert any("which are unknown" in text for text in capture.warnings), value
        if isinstance(value, (str, bool)):
            assert any("unknown" in text and place[-1] in text for text in capture.warnings), (value, capture.warnings)


def test_a_parquet_column_of_texts_is_unknown_and_the_rows_stay(tmp_path):
    path = whole_file("nsys")
    whole = correlate(reader(path)(path))
    for number, (table, column) in enumerate([(KERNEL, "streamId"), (NVTX, "domainId"), (API, "eventClass")]):
        database = tmp_path / f"{number}.db"
        shutil.copy(path, database)
        with closing(sqlite3.connect(database)) as db:
            db.execute(f'UPDATE "{table}" SET "{column}" = \'soon\'')
            db.commit()
        folder = as_parquet(database, tmp_path / str(number))
        capture = reader(folder)(folder)
        assert correlate(capture).ints("kDuration").tolist() == whole.ints("kDuration").tolist()
        assert sum(f"which are unknown ({column})" in text for text in capture.warnings) == 1, column


@pytest.mark.parametrize("value", [[1], {"a": 1}, Decimal("1.5"), datetime(2026, 1, 1), "soon", b"\xff", 1.5], ids=str)
def test_a_parquet_column_of_any_type_is_unknown_and_the_rows_stay(value, tmp_path):
    folder = tmp_path / "tiny"
    shutil.copytree(GOLDEN / "h200_tiny_pqtdir", folder)
    file = folder / f"{KERNEL}.parquet"
    whole, rows = parquet.read_table(file), correlate(reader(folder)(folder))
    file.unlink()
    place, column = whole.schema.get_field_index("streamId"), pa.array([value] * whole.num_rows)
    parquet.write_table(whole.set_column(place, "streamId", column), file)
    capture = reader(folder)(folder)
    assert correlate(capture).ints("kDuration").tolist() == rows.ints("kDuration").tolist()
    said = f"{whole.num_rows:,} GPU operations, which take "
    assert sum(text.startswith(said) and text.endswith("(streamId)") for text in capture.warnings) == 1


def test_the_command_prints_the_warning(tmp_path, capsys):
    path = changed("nsys", KERNEL, "streamId", "soon", tmp_path)
    assert stats([str(path), "-r", "cuda_gpu_kern_sum"]) == 0
    what = "1 GPU operations, which take 10 ns, have values that are not whole numbers, which are unknown (streamId)"
    assert capsys.readouterr().err == f"pyprof stats: warning: {what}\n"
