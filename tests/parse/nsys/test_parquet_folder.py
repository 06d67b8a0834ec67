"""Exports of nsys as a folder of Parquet files: a real one, and the golden databases written in nsys's types."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from pyprof.errors import InputError, SchemaError
from pyprof.parse.detect import brief_reader, is_table, lean_reader, reader
from pyprof.parse.nsys import overview
from pyprof.parse.nsys.tables import CAPTURE, EVERY, NVTX, OS_CALLS
from pyprof.parse.stats.cli import main as stats
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import Table
from pyprof.table.netdict import write_netdict
from tests.parse.nsys.nsys_file import API, KERNEL, kernel
from tests.parse.nsys.nsys_file import NVTX as NVTX_TABLE
from tests.parse.nsys.nsys_file import write as write_database
from tests.paths import GOLDEN

# The types that nsys 2025.3 gives these columns (of the real export in tests/golden); other integers are int64 here.
UNSIGNED = {"globalPid", "globalTid", "endGlobalTid", "streamId", "contextId", "domainId", "demangledName", "shortName"}


def as_parquet(database: Path, folder: Path) -> Path:
    """A database's tables as Parquet files."""
    folder.mkdir()
    with closing(sqlite3.connect(database)) as connection:
        connection.text_factory = bytes
        tables = [
            name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in tables:
            found = connection.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in found.description]
            columns = list(zip(*found.fetchall(), strict=True)) or [()] * len(names)
            arrays = [_array(name, list(values)) for name, values in zip(names, columns, strict=True)]
            parquet.write_table(pa.table(arrays, names), folder / f"{table}.parquet")
    return folder


def _array(name: str, values: list[object]) -> pa.Array:
    if any(isinstance(value, bytes) for value in values):
        raw = pa.array(
            [value if isinstance(value, bytes) or value is None else str(value).encode() for value in values]
        )
        return raw.cast(pa.large_binary()).view(pa.large_string())  # whatever the bytes are, as nsys does
    if name in UNSIGNED:
        return pa.array([None if value is None else int(value) % 2**64 for value in values], pa.uint64())
    return pa.array(values)


def test_a_column_whose_name_is_no_text_is_one_line(tmp_path: Path) -> None:
    database = write_database(tmp_path / "net.sqlite", **{KERNEL: [kernel(0, 1)]})
    folder = as_parquet(database, tmp_path / "net")
    part = folder / f"{KERNEL}.parquet"
    part.write_bytes(part.read_bytes().replace(b"correlationId", b"correlation\xff\xfe"))
    with pytest.raises(InputError, match=rf"{KERNEL}\.parquet: .*can't decode byte 0xff"):
        reader(folder)(folder)


def unpacked(name: str, tmp_path: Path) -> Path:
    path = tmp_path / name.removesuffix(".gz")
    path.write_bytes(gzip.decompress((GOLDEN / name).read_bytes()))
    return path


def same(one: Table, other: Table, tmp_path: Path) -> None:
    texts = []
    for table in (one, other):
        with (tmp_path / "net.dict").open("wb") as out:
            write_netdict(table, out)
        texts.append((tmp_path / "net.dict").read_bytes())
    assert texts[0] == texts[1]


def test_a_real_export():
    """Rows and times are those that pyarrow reads from the files: 85,856 + 7,968 + 3,520 ns."""
    path = GOLDEN / "h200_tiny_pqtdir"
    table = correlate(reader(path)(path))
    kinds = table.coded("kind").texts()
    assert {kind: kinds.count(kind) for kind in kinds} == {"kernel": 38, "memcpy": 6, "memset": 4}
    assert table.ints("kDuration").sum() == 97_344
    assert set(table.coded("gpu").texts()) == {"NVIDIA H200"}
    assert set(table.ints("pid").tolist()) == {481}  # 281483046551552 >> 24 & 0xFFFFFF
    assert table.coded("dir").texts().count("bprop") > 0
    assert any("linear" in op for op in table.coded("op").texts())
    assert reader(path)(path).profiler == "nsys 2025.3.2.0"


GOLDENS = ["h200_lenet.sqlite.gz", "h200x4_collectives.sqlite.gz", "h200_gpt2_cudagraph_node.sqlite.gz"]


@pytest.mark.parametrize("name", GOLDENS)
def test_the_folder_gives_the_databases_table(name, tmp_path, capsys):
    database = unpacked(name, tmp_path)
    folder = as_parquet(database, tmp_path / "net_pqtdir")
    same(correlate(reader(folder)(folder)), correlate(reader(database)(database)), tmp_path)
    same(correlate(lean_reader(folder)(folder)), correlate(lean_reader(database)(database)), tmp_path)
    assert brief_reader(folder) is overview.brief
    assert overview.brief(folder)[1] == overview.brief(database)[1]
    assert not is_table(folder)
    printed = []
    for path in (folder, database):
        stats([str(path)])
        printed.append(capsys.readouterr().out.replace(str(path), ""))
    assert printed[0] == printed[1]


def test_ids_with_bit_63_are_the_databases_negative_ones(tmp_path):
    tid = (-1 << 56) + (4711 << 24) + 4712
    nvtx = [(100, 900, 59, "aten::mm, seq = 1", None, tid, 0)]
    api = [(200, 210, 0, tid, 7, None)]
    kernels = [(*kernel(300, 7)[:5], tid & ~0xFFFFFF, *kernel(300, 7)[6:])]
    tables = {"StringIds": [], NVTX_TABLE: nvtx, API: api, KERNEL: kernels}
    write_database(tmp_path / "net.sqlite", **tables)
    folder = as_parquet(tmp_path / "net.sqlite", tmp_path / "net_pqtdir")
    table = correlate(reader(folder)(folder))
    assert (table.ints("pid").tolist(), table.ints("tid").tolist()) == ([4711], [4712])
    assert table.coded("op").texts() == ['["mm"]']


def test_text_that_is_not_utf8_is_read_as_from_a_database(tmp_path):
    folder = as_parquet(unpacked("h200_lenet.sqlite.gz", tmp_path), tmp_path / "net_pqtdir")
    part = folder / "NVTX_EVENTS.parquet"
    table = parquet.read_table(part)
    texts = [None if text is None else b"\xff" + text.encode() for text in table["text"].to_pylist()]
    broken = pa.array(texts, pa.large_binary()).view(pa.large_string())
    parquet.write_table(table.set_column(table.column_names.index("text"), "text", broken), part)
    assert any("\ufffd" in scope.name for scope in reader(folder)(folder).scopes)


def test_only_the_described_tables_and_columns_are_read():
    assert OS_CALLS in EVERY and OS_CALLS not in CAPTURE and NVTX in CAPTURE
    assert len({source.table for source in EVERY}) == len(EVERY)


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_a_damaged_table_is_named(tmp_path, damage):
    (tmp_path / "StringIds.parquet").write_bytes(damage)
    with pytest.raises(InputError) as raised:
        reader(tmp_path)(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path / 'StringIds.parquet'}: expected a table of nsys export")
    assert "\n" not in str(raised.value)


def test_a_missing_column_is_named(tmp_path):
    folder = as_parquet(write_database(tmp_path / "net.sqlite"), tmp_path / "net_pqtdir")
    part = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    table = pa.table({"start": [1], "end": [2]})
    parquet.write_table(table, part)
    with pytest.raises(SchemaError, match="table CUPTI_ACTIVITY_KIND_KERNEL has no column correlationId"):
        reader(folder)(folder)


def test_names_whose_numbers_are_of_another_type_are_unknown(tmp_path):
    database = write_database(tmp_path / "net.sqlite", **{KERNEL: [kernel(1, 1)]})
    folder = as_parquet(database, tmp_path / "net_pqtdir")
    parquet.write_table(pa.table({"id": [[1]], "value": ["a"]}), folder / "StringIds.parquet")
    capture = reader(folder)(folder)
    assert correlate(capture).coded("kLongName").texts() == [""]
    assert "1 rows of StringIds have values that are not whole numbers, which are unknown (id)" in capture.warnings


def test_other_folders_and_single_tables_are_explained(tmp_path):
    with pytest.raises(InputError, match="found a folder without nsys's tables"):
        reader(tmp_path)
    part = GOLDEN / "h200_tiny_pqtdir" / "NVTX_EVENTS.parquet"
    with pytest.raises(InputError, match="found one table of an export by nsys: give the folder"):
        reader(part)


def test_a_column_that_stands_twice_is_one_line(tmp_path):
    """Found by the fuzzer."""
    folder = as_parquet(write_database(tmp_path / "net.sqlite", **{KERNEL: [kernel(100, 5)]}), tmp_path / "net")
    part = folder / f"{KERNEL}.parquet"
    table = parquet.read_table(part)
    parquet.write_table(table.append_column("start", table.column("start")), part)
    with pytest.raises(InputError) as error:
        reader(folder)(folder)
    assert str(error.value) == f"{part}: expected each column once, found start twice (export it again)"
