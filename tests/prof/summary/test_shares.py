"""FLOPs and bytes each state their own share, and below 99% each amount is "at least" so much."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.json_document import summary_of
from pyprof.prof.summary.sentences import figures, sentences
from pyprof.prof.summary.tables import summary_tables
from pyprof.prof.table.totals import totals
from pyprof.prof.work.annotate import Annotation, annotate, uncounted_of
from pyprof.table.columns import NULL, Table
from tests.prof.summary.test_numbers import mm, run_of

# Of 100 us, products of 1024³ (2.147 GFLOP, 6.291 MB in bf16) run for 37, and 63 are of another op. Its FLOPs are 0.
TIMES = (17, 20, 63)


def capture(*times: int) -> Table:
    gather = {"name": "vectorized_gather_kernel", "op": '["index"]', "aten": "my::gather"}
    starts = np.cumsum([0, *times]).tolist()
    return run_of(mm(0, times[0]), mm(starts[1], times[1]), {**gather, "start": starts[2], "ns": times[2]})


def known(table: Table, flops: tuple[bool, ...], nbytes: tuple[bool, ...]) -> Annotation:
    """The annotation with these rows' FLOPs and bytes known; the other op has no FLOPs and moves nothing."""
    made = annotate(table)
    counts = [
        np.where(there, np.where(values == NULL, 0, values), NULL)
        for values, there in ((made.flops, flops), (made.bytes, nbytes))
    ]
    return replace(made, flops=counts[0], bytes=counts[1], uncounted=uncounted_of(table, counts[0]))


ALL, PRODUCTS = (True, True, True), (True, True, False)
FLOP, BYTES = "4.295 GFLOP", "12.58 MB"  # 2 × 2 × 1024³; 2 × 3 × 2 × 1024²
RATES = "42.95 TFLOP/s", "125.8 GB/s"  # in 100 us


@pytest.mark.parametrize(
    ("flops", "nbytes", "of_flops", "of_bytes"),
    [(ALL, PRODUCTS, "100%", "37.0%"), (PRODUCTS, ALL, "37.0%", "100%"), (PRODUCTS, PRODUCTS, "37.0%", "37.0%")],
)
def test_each_amount_has_its_own_share(flops, nbytes, of_flops, of_bytes):
    table = capture(*TIMES)
    said = sentences(found := summarise(table, known(table, flops, nbytes)))
    least = {"100%": "", "37.0%": "at least "}
    flop, rate = least[of_flops] + FLOP, least[of_flops] + RATES[0]
    assert f"FLOPs are known for {of_flops} of GPU time: {flop}, {rate} including idle time." in said
    nbytes_, rate = least[of_bytes] + BYTES, least[of_bytes] + RATES[1]
    assert f"Bytes are known for {of_bytes} of GPU time: {nbytes_}, {rate} including idle time." in said
    mfu = f"Model FLOPs utilisation (MFU) is {least[of_flops]}4.3% of 989.4 TFLOP/s (bf16 tensor cores, dense)."
    assert mfu in said  # 42.95 of 989.4
    shown = {figure.name: figure.value for figure in figures(found)}
    sign = least[of_flops].replace("at least", "≥")
    assert (shown["FLOP rate"], shown["MFU"]) == (f"{sign}{RATES[0]}", f"{sign}4.3%")
    assert summary_of(found).sentences == said


@pytest.mark.parametrize(("other", "least"), [(1, ""), (2, "at least ")])
def test_at_99_percent_an_amount_is_the_whole(other, least):
    table = capture(50, 100 - 50 - other, other)  # of 100 us, 99 or 98 are known
    said = "\n".join(sentences(summarise(table, known(table, PRODUCTS, PRODUCTS))))
    assert f"of GPU time: {least}{FLOP}, {least}{RATES[0]}" in said
    assert f"of GPU time: {least}{BYTES}, {least}{RATES[1]}" in said


def test_the_ops_whose_bytes_are_missing_are_named():
    table = capture(*TIMES)
    said = sentences(summarise(table, known(table, ALL, PRODUCTS)))
    assert "63.0% of GPU time runs in ops whose FLOPs are counted, and not their bytes: my::gather 63.0%." in said
    assert not any("without a FLOP model" in text for text in said)


@pytest.mark.parametrize(
    ("flops", "nbytes", "expected"),
    [
        (ALL, ALL, "all counted"),
        (ALL, PRODUCTS, "bytes not counted: 63.0%: my::gather 63.0%"),
        (PRODUCTS, ALL, "FLOPs not counted: 63.0%: my::gather 63.0%"),
        (PRODUCTS, PRODUCTS, "FLOPs and bytes not counted: 63.0%: my::gather 63.0%"),
        (
            (True, False, True),
            PRODUCTS,
            "FLOPs not counted: 20.0%: aten::mm 20.0%; bytes not counted: 63.0%: my::gather 63.0%",
        ),
    ],
)
def test_standard_error_says_what_is_not_counted(flops, nbytes, expected):
    table = capture(*TIMES)
    line = totals(table, known(table, flops, nbytes)).line()
    assert line == f"3 rows; 100% of 0.1000 ms of GPU time is attributed to an op; {expected}"


def test_the_rates_by_gpu_are_at_least_so_much():
    table = capture(*TIMES)
    two = table.with_column("device", np.array([0, 1, 1]))
    for flops, sign in ((ALL, ""), (PRODUCTS, "≥ ")):
        (by_gpu,) = [t for t in summary_tables(summarise(two, known(two, flops, ALL))) if t.key == "devices"]
        rates = [row[-1] for row in by_gpu.rows]  # 2.147 GFLOP in 17 us, and in 83
        assert rates == [f"{sign}126.3", f"{sign}25.87"]
        assert math.isclose(2 * 1024**3 / 17e-6 / 1e12, 126.3, rel_tol=1e-3)


def test_without_flops_the_summary_says_what_is_known():
    table = capture(*TIMES)
    none = replace(made := annotate(table), flops=np.zeros_like(made.flops))
    assert "The ops do no floating-point operations: they copy, fill, index or compare." in sentences(
        summarise(table, none)
    )
    only_gather = np.where([True, True, False], NULL, 0)
    some = replace(made, flops=only_gather, uncounted=uncounted_of(table, only_gather))
    assert (
        "FLOP rates and MFU are unknown: the only ops counted, 63.0% of GPU time, do no FLOPs, as copies do."
        in sentences(summarise(table, some))
    )
