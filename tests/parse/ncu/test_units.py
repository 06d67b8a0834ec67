"""Numbers and units in any locale become base units; worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.ncu.units import base_unit, decimal_mark, number


@pytest.mark.parametrize(
    ("unit", "factor", "base"),
    [
        ("nsecond", 1, "ns"), ("ns", 1, "ns"), ("usecond", 1e3, "ns"), ("us", 1e3, "ns"), ("msecond", 1e6, "ns"),
        ("ms", 1e6, "ns"), ("second", 1e9, "ns"), ("s", 1e9, "ns"),
        ("byte", 1, "byte"), ("Kbyte", 1e3, "byte"), ("Mbyte", 1e6, "byte"), ("Gbyte", 1e9, "byte"),
        ("Tbyte", 1e12, "byte"), ("KiB", 1024, "byte"),
        ("byte/second", 1, "byte/s"), ("Gbyte/second", 1e9, "byte/s"), ("Tbyte/s", 1e12, "byte/s"),
        ("byte/nsecond", 1e9, "byte/s"), ("Kbyte/block", 1e3, "byte/block"), ("register/thread", 1, "register/thread"),
        ("cycle/nsecond", 1e9, "hz"), ("cycle/usecond", 1e6, "hz"), ("hz", 1, "hz"), ("Ghz", 1e9, "hz"),
        ("Mhz", 1e6, "hz"), ("sector/nsecond", 1e9, "sector/s"), ("sector/ms", 1e3, "sector/s"),
        ("%", 1, "%"), ("inst", 1, "inst"), ("inst/cycle", 1, "inst/cycle"), ("", 1, ""), ("SM", 1, "SM"),
        ("pass", 1, "pass"), ("warp", 1, "warp"),
    ],
)  # fmt: skip
def test_units_become_base_units(unit, factor, base):
    found = base_unit(unit)
    assert found[1] == base
    assert found[0] == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("1,234.56", ".", 1234.56), ("1.234,56", ",", 1234.56), ("1 234,56", ",", 1234.56),
        ("1\u202f234,56", ",", 1234.56), ("1\u00a0234\u00a0567", ",", 1234567), ("1'234.56", ".", 1234.56),
        ("1,234,567", ".", 1234567), ("12,34,567.5", ".", 1234567.5), ("-3.5", ".", -3.5), ("1.5e+10", ".", 1.5e10),
        ("1,5e-3", ",", 0.0015), ("0", ".", 0), ("158 (0: 158)", ".", 158), ("1,024 (132; 1: 5)", ".", 1024),
    ],
)  # fmt: skip
def test_numbers_in_their_locale(text, decimal, value):
    assert number(text, decimal) == value


@pytest.mark.parametrize("text", ["", "n/a", "nan", "-nan", "inf", "N/A", "(!) nan"])
def test_missing_is_unknown_and_not_zero(text):
    value = number(text)
    assert value is not None
    assert math.isnan(value)


@pytest.mark.parametrize("text", ["95,06", "1,2,3", "CachePreferNone", "1.234,5", "0x12", "1_000", "12 %"])
def test_what_is_no_number_in_this_notation(text):
    assert number(text, ".") is None


@pytest.mark.parametrize(
    ("texts", "mark"),
    [
        (["1,234", "5"], ""), (["1,234", "0.5"], "."), (["1.234", "0,5"], ","), (["1,234,567"], "."),
        (["1.234.567"], ","), (["1 234", "12,50"], ","), (["CachePreferNone", "1,3a", "(1, 1, 1)"], ""),
        (["0.123"], "."), (["0,123"], ","), (["12345.678"], "."),
    ],
)  # fmt: skip
def test_the_decimal_mark_that_numbers_show(texts, mark):
    assert decimal_mark(texts) == mark


@given(st.floats(0, 1e15), st.sampled_from([",.", ".,", "\u202f,"]))
def test_a_number_printed_in_a_locale_is_read_in_it(value, marks):
    thousands, decimal = marks
    text = f"{value:,.2f}".translate({ord(","): thousands, ord("."): decimal})
    assert decimal_mark([text]) in (decimal, "")
    assert number(text, decimal) == float(f"{value:.2f}")
