"""Clocks and power beside the kernel table: through its methods, a Parquet file and the merge of ranks."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pyprof.errors import SchemaError
from pyprof.parse.merge import APART, apart
from pyprof.table.columns import NULL, Coded, Table
from pyprof.table.gpu_samples import GpuSamples
from pyprof.table.parquet import SAMPLES_KEY, read_parquet, write_parquet


def samples(pid: int = 7) -> GpuSamples:
    series = [np.array(values, np.int64) for values in ([1980, NULL], [3201, 3201], [1, 2], [40, 41], [0, 4], [5, 9])]
    time = np.array([-5, 20], np.int64)
    return GpuSamples(NULL, pid, 0, "instant", 50_000_000, 1980, NULL, 700_000, time, *series)


def table(pid: int = 7) -> Table:
    columns: dict[str, Any] = {
        "kShortName": Coded.of(["k", "l"]),
        "kDuration": np.array([3, 4]),
        "pid": np.array([pid, pid]),
    }
    return Table(2, columns, [samples(pid)])


def same(a: GpuSamples, b: GpuSamples) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(GpuSamples))


def test_a_parquet_file_has_them_in_its_metadata(tmp_path: Path) -> None:
    write_parquet(table(), tmp_path / "net.parquet")
    (found,) = read_parquet(tmp_path / "net.parquet").samples
    assert same(found, samples())
    (gpu,) = json.loads(pq.read_schema(tmp_path / "net.parquet").metadata[SAMPLES_KEY])
    assert (gpu["sm_mhz"], gpu["memory_limit_mhz"]) == ([1980, None], None)
    write_parquet(Table(0, {}), tmp_path / "none.parquet")
    assert SAMPLES_KEY not in pq.read_schema(tmp_path / "none.parquet").metadata


@pytest.mark.parametrize("text", [b"{", b"[1]", b'[{"rank":1}]', b"[" * 100_000, b"\xff"])
def test_wrong_metadata_is_one_line(tmp_path: Path, text: bytes) -> None:
    write_parquet(table(), tmp_path / "net.parquet")
    read = pq.read_table(tmp_path / "net.parquet")
    metadata = {**read.schema.metadata, SAMPLES_KEY: text}
    pq.write_table(read.replace_schema_metadata(metadata), tmp_path / "wrong.parquet")
    with pytest.raises(SchemaError, match=r"metadata pyprof\.gpu_samples: expected the readings of GPUs"):
        read_parquet(tmp_path / "wrong.parquet")


def test_they_stay_with_the_table() -> None:
    whole = table()
    for other in (whole.take([0]), whole.with_column("corr", np.array([1, 2]))):
        assert other.samples == whole.samples
    assert len(Table.concat([whole, whole]).samples) == 2


def test_merged_files_keep_apart_whose_they_are() -> None:
    first, second = apart([table(), table()])
    assert first.samples[0].pid == first.ints("pid")[0] == 7
    assert second.samples[0].pid == second.ints("pid")[0] == 7 + APART
    assert (first.samples[0].rank, second.samples[0].rank) == (0, 1)
