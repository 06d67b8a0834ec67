"""The values that a sweep's options stand for, by hand."""

import pytest

from pyprof.benchmark.sweep_axes import Axis, parse_axis, points
from pyprof.errors import PyprofError

AXES = [
    ("M=1:4096:*2", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
    ("M=1:4095:*2", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)),  # the next would be 4096
    ("M=3:100:*5", (3, 15, 75)),
    ("M=64:1024:+64", tuple(64 * n for n in range(1, 17))),
    ("M=64:191:+64", (64, 128)),
    ("N=0:4:+2", (0, 2, 4)),
    ("N=7:7:*2", (7,)),
    ("M=1,17,4096,17", (1, 17, 4096)),  # each once
    ("dtype=bf16,fp32", ("bf16", "fp32")),
    ("layout=row,column,channels_last", ("row", "column", "channels_last")),
    ("align=16,2", (16, 2)),
]


@pytest.mark.parametrize(("text", "values"), AXES)
def test_the_values_of_an_axis(text, values):
    assert parse_axis(text) == Axis(text.partition("=")[0], values)


WRONG = [
    ("M", "expected NAME=VALUES such as M=1:4096:*2, found 'M'"),
    ("1M=3", "expected NAME=VALUES"),
    ("M=", "M: expected first:last:*factor, first:last:+step, or whole numbers with commas, found ''"),
    ("M=1:8:2", "M: expected first:last:"),
    ("M=-1", "M: expected first:last:"),
    ("M=1.5", "M: expected first:last:"),
    ("M=8:1:*2", "M: 8:1:*2 does not rise from its first value to its last"),
    ("M=1:8:*1", "does not rise"),
    ("M=0:8:*2", "does not rise"),
    ("M=1:8:+0", "does not rise"),
    ("M=1:100000000:+1", "M: at most 10,000 values, found 100,000,000"),
    ("dtype=bf17", "dtype: expected some of fp64, fp32, fp16, bf16, fp8, int8, int32, int64, found 'bf17'"),
    ("layout=3", "layout: expected some of row, column, channels_last, found '3'"),
    ("align=3", "align: expected some of 1, 2, 4, 8, 16, 32, 64, 128, 256 bytes, found 3"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_axis_is_told(text, message):
    with pytest.raises(PyprofError) as found:
        parse_axis(text)
    assert message in str(found.value)


def test_all_combinations_the_last_axis_fastest():
    axes = [Axis("M", (1, 2)), Axis("dtype", ("bf16", "fp32"))]
    assert points(axes) == [
        {"M": 1, "dtype": "bf16"},
        {"M": 1, "dtype": "fp32"},
        {"M": 2, "dtype": "bf16"},
        {"M": 2, "dtype": "fp32"},
    ]
    assert points([]) == [{}]


def test_too_many_combinations_and_an_axis_given_twice():
    with pytest.raises(PyprofError, match="at most 10,000 combinations, found 10,201"):
        points([Axis("M", tuple(range(101))), Axis("N", tuple(range(101)))])
    with pytest.raises(PyprofError, match="--sweep M was given twice"):
        points([Axis("M", (1,)), Axis("M", (2,))])
