"""The functions that the lines of a stack are in, from the markers of pyprof and PyProf."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyprof.marker import VERSION
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, read_table

MARKER = {"v": VERSION, "mod": "torch", "op": "relu", "args": [], "trace": ["train.py:9", "net.py:12"]}


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("/main/Net::forward", ["main", "Net.forward"]),
        ("", None),  # the usual marker has lines alone
        ("/Net::forward", None),  # PyProf leaves out calls of modules, so that the names are not those of the lines
    ],
)
def test_a_markers_functions_are_those_of_its_lines(tmp_path: Path, stack: str, expected: Any) -> None:
    text = json.dumps({**MARKER, **({"funcStack": stack} if stack else {})}, separators=(",", ":"))
    table = read_table(tmp_path, **{KERNEL: [kernel(20, 1)], API: [call(10, 1)], NVTX: [push(5, 30, text)]})
    (found,) = table.coded("functions").texts()
    assert json.loads(table.coded("trace").texts()[0]) == ["train.py:9", "net.py:12"]
    assert (json.loads(found) if found else None) == expected
