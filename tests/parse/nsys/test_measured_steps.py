"""Steps that pyprof timed before nsys recorded, from the NVTX range that carries them."""

import json

from pyprof.parse.nsys.reader import read
from pyprof.parse.read import read_profile
from pyprof.step_timer import NAME
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write


def text(*steps, version=1):
    keys = ("number", "host_ns", "gpu_ns")
    record = {"version": version, "marked": True, "steps": [dict(zip(keys, step, strict=True)) for step in steps]}
    return NAME + json.dumps(record, separators=(",", ":"))


def file(path, *ranges):
    return write(path / "net.sqlite", **{KERNEL: [kernel(2020, 1)], API: [call(2010, 1)], NVTX: [*ranges]})


def test_the_record_is_read_once(tmp_path):
    """It is pushed when recording begins, and again when it ends."""
    record = text((1, 5000, None), (2, 4000, 4100))
    found = read_profile(file(tmp_path, push(2000, 2001, record), push(9000, 9001, record))).table.measured
    assert [(step.number, step.host_ns, step.gpu_ns, step.marked) for step in found] == [
        (1, 5000, None, True),
        (2, 4000, 4100, True),
    ]
    assert read(tmp_path / "net.sqlite", lean=True).measured == found


def pieces(record):
    return [f"{NAME}{number}/2:{part}" for number, part in enumerate((record[len(NAME) : 40], record[40:]))]


def test_a_long_record_is_in_pieces(tmp_path):
    """Of another thread's record, told later, there is one piece: each thread tells its own."""
    first, second = pieces(text((1, 5000, None), (2, 4000, 4100)))
    other, _ = pieces(text((1, 7000, None)))
    made = file(tmp_path, push(2000, 2001, first), push(2002, 2003, second), push(2004, 2005, other, tid=8))
    assert [(step.number, step.host_ns, step.gpu_ns) for step in read(made).measured] == [
        (1, 5000, None),
        (2, 4000, 4100),
    ]


def test_a_record_that_lacks_a_piece_is_a_warning(tmp_path):
    found = read(file(tmp_path, push(2000, 2001, pieces(text((1, 5000, None)))[1])))
    assert found.measured == () and any("are not complete and are left out" in line for line in found.warnings)


def test_steps_that_nsys_recorded_itself_were_slowed_by_it(tmp_path):
    """The first range is 8,000 ns older than the record, whose steps took 9,000 ns."""
    made = file(tmp_path, push(0, 10, "layer:net"), push(8000, 8001, text((1, 5000, None), (2, 4000, None))))
    assert read(made).measured == ()


def test_a_record_that_cannot_be_read_is_a_warning(tmp_path):
    (tmp_path / "a").mkdir()
    found = read(file(tmp_path, push(2000, 2001, NAME + '{"version": "x"}')))
    assert found.measured == () and any("cannot be read and are left out" in line for line in found.warnings)
    later = read(file(tmp_path / "a", push(2000, 2001, text((1, 5000, None), version=9))))
    assert later.measured == () and any("has version 9, not 1" in line for line in later.warnings)
