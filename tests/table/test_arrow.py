"""Arrow arrays made and read by their buffers."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from pyprof.errors import PyprofError
from pyprof.table import arrow
from pyprof.table.columns import NULL, Coded

USED = """
import sys
from pyprof.table.parquet import read_parquet, write_parquet
from pyprof.table.columns import Coded, Ragged, Table
import numpy as np
table = Table(2, {"kShortName": Coded.of(["a", "b"]), "kDuration": np.array([1, 2]), "seqId": Ragged.of([[1], []])})
write_parquet(table, sys.argv[1])
assert read_parquet(__import__("pathlib").Path(sys.argv[1])).coded("kShortName").texts() == ["a", "b"]
print("pandas" in sys.modules)
"""


def test_numbers_that_are_not_known_are_null() -> None:
    assert arrow.numbers(np.array([5, 6, 7]), np.array([True, False, True])).to_pylist() == [5, None, 7]
    assert arrow.numbers(np.array([1.5, np.nan])[::-1]).to_pylist()[1] == 1.5
    assert arrow.numbers(np.zeros(0, np.int64)).to_pylist() == []


@pytest.mark.parametrize("part", [slice(0, 20), slice(3, 19), slice(9, 10), slice(4, 4)])
def test_arrays_are_read_where_they_are_cut(part: slice) -> None:
    values = [None if i % 3 == 0 else i for i in range(20)]
    found = arrow.array_of(pa.array(values, pa.int64())[part], np.int64, NULL)
    assert found.tolist() == [NULL if value is None else value for value in values[part]]
    assert arrow.array_of(pa.array(range(20), pa.int64())[part], np.int64, NULL).tolist() == list(range(20))[part]


def test_an_array_of_nulls_alone_has_no_numbers() -> None:
    assert arrow.array_of(pa.nulls(2, pa.int64()), np.int64, -1).tolist() == [-1, -1]


def test_texts_are_what_utf_8_holds() -> None:
    values = [
        "a",
        "",
        "\u00e9\U0001f600",
        "\ud83d\ude00",
        "\ud800x",
    ]  # a pair of surrogates is a character, half of one none
    assert arrow.texts(values).to_pylist() == ["a", "", "\u00e9\U0001f600", "\U0001f600", "\ufffdx"]
    assert arrow.texts([]).to_pylist() == []


def test_texts_too_long_for_a_column_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "LONGEST", 5)
    with pytest.raises(PyprofError, match="6 bytes of texts"):
        arrow.texts(["abc", "def"])


def test_a_dictionary_holds_what_the_rows_have() -> None:
    data = Coded(np.array([4, -1, 1, 4], np.int32), ["a", "b", "c", "d", "e", ""])
    found = arrow.dictionary(data)
    assert found.to_pylist() == ["e", None, "b", "e"]
    assert set(found.dictionary.to_pylist()) <= {"a", "b", "e"}  # the first stands for none
    assert arrow.dictionary(Coded(np.array([1, 0], np.int32), ["", "x"])).to_pylist() == ["x", None]
    assert arrow.dictionary(Coded.empty(3)).to_pylist() == [None, None, None]


def test_pandas_is_not_imported(tmp_path) -> None:
    command = [sys.executable, "-c", USED, str(tmp_path / "x.parquet")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "False\n"
