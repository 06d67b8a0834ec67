"""The kernel table as Parquet, ours and other people's."""

import contextlib
import gzip
import io
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from pyprof.errors import InputError, SchemaError
from pyprof.table import parquet
from pyprof.table.columns import Coded, Ragged, Table
from pyprof.table.netdict import write_netdict
from pyprof.table.parquet import read_parquet, write_parquet
from pyprof.table.read_table import read_table
from pyprof.table.schema import KERNELS
from tests.paths import ROOT
from tests.tables import rows, tables


def table_of(count=3):
    return Table(count, {"kShortName": Coded.of(f"k{i % 2}" for i in range(count)), "kDuration": np.arange(count),
                         "seqId": Ragged.of([list(range(i % 3)) for i in range(count)]),
                         "op": Coded.of(['["mm"]'] * count)})  # fmt: skip


@given(table=tables())
def test_what_was_written_is_read_back(tmp_path, table):
    write_parquet(table, tmp_path / "x.parquet", force=True)
    found, wanted = rows(read_parquet(tmp_path / "x.parquet")), rows(table)
    assert found == wanted


@pytest.mark.parametrize("count", [0, 1, 7, 8, 50])
def test_row_groups_keep_the_order(tmp_path, monkeypatch, count):
    monkeypatch.setattr(parquet, "ROW_GROUP", 7)
    write_parquet(table_of(count), tmp_path / "x.parquet")
    assert rows(read_parquet(tmp_path / "x.parquet")) == rows(table_of(count))
    assert pq.ParquetFile(tmp_path / "x.parquet").num_row_groups == -(-count // 7)


def test_both_formats_give_the_same_table(tmp_path):
    write_parquet(table_of(), tmp_path / "x.parquet")
    with gzip.open(tmp_path / "x.dict.gz", "wb") as out:
        write_netdict(table_of(), out)
    one, other = read_table(tmp_path / "x.parquet"), read_table(tmp_path / "x.dict.gz")
    assert rows(one) == rows(other) == rows(table_of())


def test_the_schema_tells_units_and_meanings(tmp_path):
    write_parquet(table_of(), tmp_path / "x.parquet")
    schema = pq.read_schema(tmp_path / "x.parquet")
    assert schema.names == [column.key for column in KERNELS]
    assert schema.metadata[b"pyprof.schema_version"] == b"1"
    assert schema.field("kDuration").metadata[b"unit"] == b"ns"
    assert schema.field("op").metadata[b"meaning"].startswith(b"what the user called")
    assert schema.field("kLongName").type == pa.dictionary(pa.int32(), pa.string())


def test_unknown_is_null(tmp_path):
    write_parquet(table_of(), tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    assert [table.column(key).null_count for key in ("pid", "occupancy", "gpu", "kDuration")] == [3, 3, 3, 0]


def test_a_table_that_pandas_wrote_is_read(tmp_path):
    write_parquet(table_of(), tmp_path / "x.parquet")
    frame = pq.read_table(tmp_path / "x.parquet").to_pandas()
    frame["mine"] = 1.5
    frame["kShortName"] = frame["kShortName"].astype(str)
    frame["pid"] = [1.0, np.nan, 3.0]
    frame.to_parquet(tmp_path / "y.parquet")
    table = read_parquet(tmp_path / "y.parquet")
    assert table.coded("kShortName").texts() == ["k0", "k1", "k0"]
    assert [row["pid"] for row in rows(table)] == [1, None, 3]


def foreign(path, **columns):
    pq.write_table(pa.table(columns), path)


NAMES, TIMES = pa.array(["a"]), pa.array([1])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": TIMES}, "no column 'kShortName'"),
        ({"kShortName": NAMES}, "no column 'kDuration'"),
        ({"kShortName": NAMES, "kDuration": NAMES}, "column kDuration: expected int64"),
        ({"kShortName": NAMES, "kDuration": pa.array([1.5])}, "column kDuration: expected int64"),
        ({"kShortName": pa.array([[1]]), "kDuration": TIMES}, "column kShortName: expected dictionary"),
        ({"kShortName": NAMES, "kDuration": TIMES, "op": pa.array(["mm"])}, "column op: expected dictionary"),
        ({"kShortName": NAMES, "kDuration": TIMES, "grid": pa.array(["[1, 2]"])}, "expected three integers"),
        ({"kShortName": NAMES, "kDuration": TIMES, "seqId": pa.array([[None, 1]])}, "a null within a list"),
    ],
)
def test_a_foreign_file_says_what_is_missing(tmp_path, columns, words):
    foreign(tmp_path / "x.parquet", **columns)
    with pytest.raises(SchemaError) as caught:
        read_table(tmp_path / "x.parquet")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_newer_schema_version_is_refused(tmp_path):
    table = pa.table({"kShortName": NAMES, "kDuration": TIMES}).replace_schema_metadata({"pyprof.schema_version": "2"})
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(SchemaError, match="expected schema version 1, found '2'"):
        read_parquet(tmp_path / "x.parquet")


@pytest.mark.parametrize("keep", [4, 5, 100, -1, -9])
def test_a_cut_file_is_one_line(tmp_path, keep):
    write_parquet(table_of(), tmp_path / "x.parquet")
    whole = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(whole[:keep])
    with pytest.raises(
        InputError, match=r"x\.parquet: expected a Parquet file, found a broken one \(.*parse\.py"
    ) as caught:
        read_table(tmp_path / "x.parquet")
    assert "\n" not in str(caught.value)


def test_damage_in_the_middle_never_gives_a_traceback(tmp_path):
    write_parquet(table_of(50), tmp_path / "x.parquet")
    whole = (tmp_path / "x.parquet").read_bytes()
    for at in range(4, len(whole) - 8, 97):
        damage = bytes(byte ^ 0x55 for byte in whole[at : at + 3])
        (tmp_path / "y.parquet").write_bytes(whole[:at] + damage + whole[at + 3 :])
        with contextlib.suppress(InputError):
            read_table(tmp_path / "y.parquet")


def test_a_column_whose_name_is_no_text_is_one_line(tmp_path):
    path = tmp_path / "net.parquet"
    write_parquet(table_of(), path)
    path.write_bytes(path.read_bytes().replace(b"kDuration", b"kDurat\xff\xfen"))
    with pytest.raises(InputError, match=r"expected a Parquet file, found a broken one .*can't decode byte 0xff"):
        read_parquet(path)


def test_parquet_needs_a_plain_file(tmp_path, monkeypatch):
    write_parquet(table_of(), tmp_path / "x.parquet")
    whole = (tmp_path / "x.parquet").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(whole))))
    with pytest.raises(InputError, match=r"^standard input: .* found Parquet on standard input"):
        read_table(None)
    (tmp_path / "x.gz").write_bytes(gzip.compress(whole))
    with pytest.raises(InputError, match="found Parquet in gzip"):
        read_table(tmp_path / "x.gz")


def test_texts_that_are_declared_as_numbers_are_one_line(tmp_path):
    """The file then says how long the numbers' texts are. pyarrow ends the process if its metadata is asked of that."""
    file = tmp_path / "net.parquet"
    write_parquet(table_of(), file)
    data = file.read_bytes()
    declared = b"\x15\x0c\x25\x02\x18\x0akShortName"  # in the schema: type 6 (bytes), optional, the name
    assert data.count(declared) == 1
    file.write_bytes(data.replace(declared, b"\x15\x08" + declared[2:]))  # type 4: float
    words = [sys.executable, "-m", "pyprof", "prof", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "expected a Parquet file, found a broken one" in done.stderr


def test_a_code_without_a_text_is_one_line(tmp_path):
    """Arrow reads codes beyond the dictionary without a word."""
    codes = pa.array([0, 1, 7], pa.int32())
    texts = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"]), safe=False)
    with pytest.raises(pa.ArrowInvalid):
        texts.validate(full=True)
    path = tmp_path / "x.parquet"
    write_parquet(table_of(), path)
    read, seen = pq.ParquetFile.read, pa.table({"kShortName": texts, "kDuration": [1, 2, 3]})
    try:
        pq.ParquetFile.read = lambda *_: seen
        with pytest.raises(InputError, match=r"x\.parquet: expected a Parquet file, found a broken one"):
            read_parquet(path)
    finally:
        pq.ParquetFile.read = read


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"kShortName": ["k"] * 2_000_000, "kDuration": [1] * 2_000_000}), path)
    assert path.stat().st_size < 20_000  # one value, two million times
    assert read_parquet(path).rows == 2_000_000
    monkeypatch.setattr(parquet, "FREE_VALUES", 1_000_000)
    with pytest.raises(InputError, match=r"x\.parquet: expected a table that fits the memory, found 4,000,000 val"):
        read_parquet(path)
