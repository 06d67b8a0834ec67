"""nvprof databases: PyProf's own golden capture, and the files that hold nothing."""

import ast
import json
import os
from pathlib import Path

import numpy as np
import pytest

from pyprof.errors import InputError
from pyprof.parse.detect import reader
from pyprof.source_path import short_line
from pyprof.table.columns import Table
from tests.tables import parsed

DATA = os.environ.get("PYPROF_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="PYPROF_DATA does not name the folder of captures")


@pytest.fixture(name="golden", scope="module")
def fixture_golden() -> tuple[Table, list[dict[str, object]]]:
    """The kernels of net.sql as we read them, and as PyProf did."""
    folder = Path(str(DATA)) / "pyprof_golden"
    table = parsed(folder / "net.sql.gz")
    kernels = np.flatnonzero(np.array(table.coded("kind").texts()) == "kernel")
    with (folder / "net.dict").open() as lines:
        return table.take(kernels), [ast.literal_eval(line) for line in lines]


def test_same_rows_in_the_same_order(golden):
    table, rows = golden
    assert table.rows == 284
    assert table.ints("kDuration").sum() == 8_270_633
    assert table.ints("kDuration").tolist() == [row["kDuration"] for row in rows]
    assert table.coded("kShortName").texts() == [row["kShortName"] for row in rows]
    assert table.ints("tid").tolist() == [row["tid"] for row in rows]
    assert [tuple(json.loads(g)) for g in table.coded("grid").texts()] == [row["grid"] for row in rows]
    assert [tuple(json.loads(g)) for g in table.coded("block").texts()] == [row["block"] for row in rows]


def test_forward_rows_have_pyprofs_ops_and_lines(golden):
    table, rows = golden
    lists = {key: [json.loads(t) if t else [] for t in table.coded(key).texts()] for key in ("op", "mod", "trace")}
    marked = [i for i, row in enumerate(rows) if row["marker"]]
    assert len(marked) == 165  # lines of net.dict with a marker, counted with grep
    for key, texts in lists.items():
        expected = [rows[i][key] for i in marked]
        if key == "trace":  # PyProf kept whole paths
            expected = [[short_line(line) for line in lines] for lines in expected]
        assert [texts[i] for i in marked] == expected, key


def test_direction_where_pyprof_knew_it(golden):
    # PyProf calls a kernel without any sequence number fprop: its gradient accumulation and clipping
    table, rows = golden
    ours = table.coded("dir").texts()
    known = [i for i, row in enumerate(rows) if row["seqId"]]
    assert [ours[i] for i in known] == [rows[i]["dir"] for i in known]


def test_sequence_numbers_are_pyprofs(golden):
    table, rows = golden
    assert [json.loads(t) if t else [] for t in table.coded("seqMarker").texts()] == [r["seqMarker"] for r in rows]
    assert table.ragged("seqId").lists() == [r["seqId"] for r in rows]
    assert table.ragged("altSeqId").lists() == [r["altSeqId"] for r in rows]
    assert table.ints("subSeqId").tolist() == [r["subSeqId"] for r in rows]


def test_forward_ops_are_pyprofs_without_markers_too(golden):
    # but for AccumulateGrad's kernels, which PyProf calls add_ and fprop: see docs/reference/formats.md
    table, rows = golden
    ours = [json.loads(text) for text in table.coded("op").texts()]
    forward = [i for i, row in enumerate(rows) if row["dir"] == "fprop"]
    assert len(forward) == 207  # counted with grep
    differ = [i for i in forward if ours[i] != rows[i]["op"]]
    assert {(tuple(ours[i]), tuple(rows[i]["op"]), rows[i]["seqId"] == []) for i in differ} == {
        (("AccumulateGrad",), ("add_",), True)
    }
    assert len(differ) == 28


def test_every_kernel_has_an_op(golden):
    assert golden[0].coded("op").codes.min() >= 0


def test_a_database_without_kernels_says_so():
    path = Path(str(DATA)) / "nvprof" / "josiahdavis+profiling-lm__no_kernels.sql.gz"
    with pytest.raises(InputError, match="expected kernels, found an nvprof database without any GPU activity"):
        reader(path)(path)


def test_a_visual_profiler_project_is_explained():
    path = Path(str(DATA)) / "nvprof" / "xstupi00+N-Body-OpenACC__profile.nvvp"
    with pytest.raises(InputError, match=r"found XML: an \.nvvp project"):
        reader(path)
