"""Tables that a later minor version wrote, with keys, columns and files that this one does not know, are read:
docs/reference/stability.md.
"""

import json

import pyarrow.parquet as pq
import pytest

import pyprof
from pyprof.errors import PyprofError
from pyprof.parse import cli as parse

SUMS = (59, 204_447)  # rows, ns: 54 kernels of 200,159 and 5 memsets of 4,288, by sqlite3 on the capture


@pytest.fixture
def made(root, tmp_path):
    """LeNet's capture as a table of the named form."""

    def make(name):
        file = tmp_path / name
        golden = root / "tests" / "golden" / "h200_lenet_init.sqlite.gz"
        assert parse.main([str(golden), "-q", "-o", str(file)]) == 0
        return file

    return make


def sums(file):
    kernels = pyprof.load(file).kernels
    return len(kernels), int(kernels["sil"].sum())


def test_an_unknown_key_of_net_dict_is_passed_over(made):
    file = made("net.dict")
    lines = file.read_text().splitlines()
    file.write_text("".join(f'{line[:-1]}, "ofTheFuture": [1, {{"a": "b"}}]}}\n' for line in lines))
    assert sums(file) == SUMS


def test_an_unknown_column_of_parquet_is_passed_over(made):
    file = made("net.parquet")
    table = pq.read_table(file)
    later = table.append_column("ofTheFuture", [list(range(table.num_rows))])
    pq.write_table(later.replace_schema_metadata(table.schema.metadata), file)
    assert sums(file) == SUMS


def test_an_unknown_file_and_key_of_a_container_are_passed_over(made):
    folder = made("net.pyprof")
    (folder / "future.parquet").write_bytes(b"of another kind")
    meta = json.loads((folder / "meta.json").read_text())
    meta["ofTheFuture"] = {"a": 1}
    (folder / "meta.json").write_text(json.dumps(meta))
    assert sums(folder) == SUMS


@pytest.mark.parametrize("name", ["net.parquet", "net.pyprof"])
def test_a_later_version_of_the_form_is_refused_in_one_line_with_both_versions(name, made):
    file = made(name)
    if file.is_dir():
        meta = json.loads((file / "meta.json").read_text())
        (file / "meta.json").write_text(json.dumps(meta | {"version": 2}))
    else:
        table = pq.read_table(file)
        pq.write_table(table.replace_schema_metadata(table.schema.metadata | {b"pyprof.schema_version": b"2"}), file)
    with pytest.raises(PyprofError, match=r"expected .*version 1, found .*2'?.*; read it with") as error:
        pyprof.load(file)
    assert "\n" not in str(error.value)
