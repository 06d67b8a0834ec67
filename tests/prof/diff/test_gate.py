"""--fail-if: its grammar, what it measures and when it fails, by hand."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import InputError
from pyprof.prof.diff.gate import QUANTITIES, check, parse_gate
from pyprof.prof.diff.json_document import difference
from pyprof.prof.diff.sentences import sentences, verdict_words
from pyprof.prof.table.condition import ConditionError
from tests.prof.diff.diff_rows import NO_TC, compared, mm, row

# Before: 100 us of linear, 40 of relu, 10 idle; after: 120, 30, 20.
A = [[mm(100, layer="GPT:h.0:up"), row(40, "relu", layer="GPT:h.0", phase="backward", gap=10)]]
B = [[mm(120, layer="GPT:h.0:up"), row(30, "relu", layer="GPT:h.0", phase="backward", gap=20)]]


def fails(condition: str, strict: bool = False, a=A, b=B) -> bool:
    return check(parse_gate(condition), compared(a, b), strict).fails


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("step > 13%", True),  # 150 -> 170: +13.3%
        ("step > 14%", False),
        ("step > 19.9 us", True),
        ("step >= 20us", True),
        ("step > 0.02 ms", False),
        ("step > 2e-5 s", False),
        ("gpu > 7%", True),  # 140 -> 150: +7.1%
        ("gpu > 7.2%", False),
        ("idle > 99%", True),  # 10 -> 20
        ("forward > 19%", True),
        ("backward < -24%", True),  # 40 -> 30
        ("backward > -25%", False),
        ("optimizer > 0%", False),  # none in either
        ("kernels > 0", False),
        ("kernels == 0", True),
        ("tc_lost > 0", False),
        ("flops > 0%", False),
        ("bytes != 0", False),
        ("op:linear > 19%", True),
        ("op:mm > 19%", True),  # its aten op
        ("op:l*r > 21%", False),
        ("layer:h.0 > 7%", True),  # up and what h.0 does itself: 140 -> 150
        ("layer:up > 19%", True),
        ("layer:GPT:h.* > 7%", True),
        ("kind:GEMM > 19%", True),
        ("kind:'element-wise' < 0%", True),
        ("kernel:nvjet* > 19 us", True),
        ("step > 13% and idle > 5 us", True),
        ("step > 14% and idle > 5 us", False),
        ("step > 14% or idle > 5 us", True),
        ("step > 14% or idle > 5 us and gpu > 50%", False),  # and binds closer
        ("(step > 14% or idle > 5 us) and gpu > 5%", True),
        ("kernels > 1 or step > 1%", True),  # `or` is no unit
        ("not step > 14%", True),  # the language is that of --where
        ("13% < step < 14%", True),
        ("not (step > 13% or idle > 5 us)", False),
    ],
)
def test_conditions(condition, expected):
    assert fails(condition) is expected


def test_lost_tensor_cores_fail():
    a, b = [[mm(5), mm(5, n=128)]], [[mm(5), mm(5, n=128, name=NO_TC)]]
    assert fails("tc_lost > 0", a=a, b=b)
    assert not fails("tc_gained > 0", a=a, b=b)
    assert fails("tc_gained >= 1", a=b, b=a)


def test_an_amount_is_compared_in_its_own_unit():
    a, b = [[mm(5)]], [[mm(5, m=128)]]  # 2 * 64³ = 524,288 FLOP, and twice that
    assert fails("flops > 99% and flops >= 524288 and flops > 0.5 MFLOP", a=a, b=b)
    assert not fails("flops > 0.53 MFLOP", a=a, b=b)
    # 3 * 64 * 64 * 2 bytes, and 128 * 64 + 64 * 64 + 128 * 64 of 2: 16,384 more
    assert fails("bytes >= 16384 B and bytes < 16.5 kB", a=a, b=b)


def noisy(*us):
    return [[mm(each)] for each in us]


def test_a_change_within_noise_counts_as_none_unless_strict():
    a, b = noisy(99, 100, 101), noisy(101, 102, 103)  # +2% against ±3.76
    assert not fails("step > 1%", a=a, b=b)
    assert fails("step > 1%", strict=True, a=a, b=b)
    assert fails("step > 1%", a=a, b=noisy(105, 106, 107))


def test_a_gain_that_must_be_there_must_be_more_than_noise():
    a = noisy(99, 100, 101)
    assert fails("step > -1%", a=a, b=noisy(97, 98, 99))  # -2%, which is noise: not 1% faster
    assert not fails("step > -1%", a=a, b=noisy(89, 90, 91))
    assert not fails("step > -1%", strict=True, a=a, b=noisy(97, 98, 99))


def test_what_was_not_there_before_is_more_than_any_share():
    assert fails("op:relu > 1000%", a=[[mm(5)]], b=[[mm(5), row(1, "relu")]])
    assert not fails("op:relu > 0%", a=[[mm(5), row(1, "relu")]], b=[[mm(5)]])


def test_a_pattern_that_names_nothing_is_an_error():
    with pytest.raises(InputError, match=r"a\.dict, b\.dict: no op or aten op in either is like 'linaer'"):
        fails("op:linaer > 5%")


def test_work_that_only_one_side_counts_cannot_be_compared():
    with pytest.raises(InputError, match="known for 100% and 0% of the operations"):
        fails("flops > 1%", a=[[mm(5)]], b=[[row(5, "unheard_of")]])


def test_bytes_and_flops_are_each_known_for_a_share_of_their_own():
    """An all-gather whose record has no output: 0 FLOPs, an unknown number of bytes."""
    gather = {"aten": "nccl:all_gather", "sizes": [[64]], "dtypes": ["bfloat16"]}
    a, b = [[mm(5)]], [[row(5, "gather", **gather)]]
    assert fails("flops < 0%", a=a, b=b)
    with pytest.raises(InputError, match="bytes are known for 100% and 0% of the operations"):
        fails("bytes > 1%", a=a, b=b)
    amounts = difference(compared(a, b), []).amounts
    assert (amounts.flop.after, amounts.byte.before, amounts.byte.after, amounts.byte.change) == (
        0,
        3 * 8192,
        None,
        None,
    )


def test_an_amount_that_is_known_for_a_part_of_the_time_is_said_to_be_at_least_so_much():
    """2 * 128 * 64^2 and 2 * 256 * 64^2 FLOPs; in B, 3 of 103 us have no count."""
    (said,) = (
        s for s in sentences(compared([[mm(100, m=128)]], [[mm(100, m=256), row(3, "unheard_of")]])) if "FLOPs" in s
    )
    assert said == (
        "B does 100.0% more counted FLOPs per step (1.049 MFLOP -> at least 2.097 MFLOP): it is not the same work."
    )


def test_less_known_work_is_not_said_to_be_less_work():
    """The same product twice, of which A's second has no shapes: 2 * 128 * 64^2 FLOPs of A are known, and twice as
    many of B."""
    unknown = {**mm(30, m=128), "sizes": None}
    found = compared([[mm(100, m=128), unknown]], [[mm(100, m=128), mm(30, m=128)]])
    assert (found.flop.before, found.flop.after) == (1_048_576, 2_097_152)
    assert not any("not the same work" in said for said in sentences(found))


def test_the_verdict_says_which_test_failed_with_its_numbers():
    found = compared(noisy(99, 100, 101), noisy(105, 106, 107))
    verdict = check(parse_gate("step > 3% and kernels > 0"), found)
    assert verdict_words(verdict) == [
        "failed: step > 3%: 0.100 -> 0.106 ms, +0.006 ms (+6.0%), noise ±0.004 ms",
        "passed: kernels > 0: 1 -> 1, +0 (0.0%)",
        "passed: step > 3% and kernels > 0",
    ]
    within = check(parse_gate("step > 1%"), compared(noisy(99, 100, 101), noisy(101, 102, 103)))
    assert verdict_words(within) == [
        "passed: step > 1%: 0.100 -> 0.102 ms, +0.002 ms (+2.0%), noise ±0.004 ms; counts as no change"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty condition"),
        ("step", "character 5: the end: expected one of == != < <= > >="),
        ("step > ", "character 7: the end: expected a name, a number or a text"),
        ("step > 3", "character 8: '3': expected a change such as 3% or 0.5 ms"),
        ("step > 3 GB", "expected a change such as 3% or 0.5 ms"),
        ("kernels > 3 ms", "expected a change such as 10 or 3%"),
        ("stpe > 3%", "character 1: 'stpe': expected one of step"),
        ("op > 3%", "character 1: 'op': expected one of step"),
        ("step > 3% idle > 2%", "character 11: 'idle > 2%': expected and, or, or the end"),
        ("(step > 3%", "a bracket that is not closed"),
        ("step > 3%)", "expected and, or, or the end"),
        ("__import__('os').system('true') > 3%", "character 1"),
        ("step > 3% or", "the end: expected a name"),
        ("step > " + "9" * 5000 + "%", "5008 characters"),
        ("(" * 100 + "step > 3%" + ")" * 100, "more than 40 levels of brackets"),
        ("step \x1b[31m> 3%", "character 6: '?[31m> 3%'"),
    ],
)
def test_anything_else_is_refused_with_its_place(text, message):
    with pytest.raises(ConditionError) as error:
        parse_gate(text)
    assert message in str(error.value)


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*QUANTITIES, "op:x", ">", "3%", "(", ")", "and", "or", " "])).map(" ".join)
)
def test_any_text_is_read_or_refused(text):
    with suppress(ConditionError):
        parse_gate(text)
