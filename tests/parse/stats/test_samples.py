"""pyprof stats against what nsys stats 2024.6.2 printed for two real databases: every report, every row."""

import re
from pathlib import Path

import pytest

from pyprof.parse.stats import layout
from pyprof.parse.stats.recording import recording
from pyprof.parse.stats.reports import REPORT, Wanted

PAIRS = {"nsys_stats.txt": "result_2_7B.sqlite.gz", "nsys_stats_compile_ro.txt": "result_2_7B_compile_ro.sqlite.gz"}
OWNER = "zx3xyy+assignment2-systems__"
SECTION = re.compile(r"^Processing \[.*/(\w+)\.py\]\.\.\. *$", re.MULTILINE)
EXPECTED = {  # rows of each report, counted in the texts by hand; 0: nsys said SKIPPED
    "nsys_stats.txt": {
        "nvtx_sum": 0,
        "osrt_sum": 54,
        "cuda_api_sum": 18,
        "cuda_gpu_kern_sum": 23,
        "cuda_gpu_mem_time_sum": 1,
        "cuda_gpu_mem_size_sum": 1,
    },
    "nsys_stats_compile_ro.txt": {
        "nvtx_sum": 0,
        "osrt_sum": 13,
        "cuda_api_sum": 5,
        "cuda_gpu_kern_sum": 2,
        "cuda_gpu_mem_time_sum": 0,
        "cuda_gpu_mem_size_sum": 0,
    },
}


def sections(text: str) -> dict[str, str]:
    """What nsys printed for each report that we have."""
    parts = SECTION.split(text)
    return {name: body for name, body in zip(parts[1::2], parts[2::2], strict=True) if name in REPORT}


def parsed(table: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table in columns, cut where the dashes are."""
    lines = table.strip("\n").split("\n")
    (rule,) = [i for i, line in enumerate(lines) if re.fullmatch(r"[ -]*--[ -]*", line)]
    spans = [match.span() for match in re.finditer("-+", lines[rule])]
    rows = [line for line in lines[rule + 1 :] if line.strip()]
    header, *cells = [[line[a:b].strip() for a, b in spans] for line in (lines[rule - 1], *rows)]
    return header, cells


@pytest.mark.parametrize("sample", PAIRS)
def test_every_row_of_every_report_is_what_nsys_printed(sample, data):
    printed = sections((data / "nsys_stats" / f"{OWNER}{sample}").read_text(encoding="utf-8"))
    assert printed.keys() == EXPECTED[sample].keys()
    with recording(data / "nsys" / f"{OWNER}{PAIRS[sample]}") as found:
        for name, count in EXPECTED[sample].items():
            rows = Wanted(REPORT[name]).rows(found)
            assert len(rows) == count, name
            if not count:
                assert f"does not contain {REPORT[name].missing}." in printed[name]
                continue
            ours = "".join(layout.columns([(Wanted(REPORT[name]), rows)]))
            assert parsed(ours) == parsed(printed[name]), name
            assert ours.strip("\n") == printed[name].strip("\n"), name  # and byte for byte


def test_the_other_database_is_another_run(data):
    """result_2_7B_clean belongs to no text: its 18,320 kernels are not those that nsys counted."""
    text = (data / "nsys_stats" / f"{OWNER}nsys_stats.txt").read_text(encoding="utf-8")
    with recording(data / "nsys" / f"{OWNER}result_2_7B_clean.sqlite.gz") as found:
        rows = Wanted(REPORT["cuda_gpu_kern_sum"]).rows(found)
    table = "".join(layout.columns([(Wanted(REPORT["cuda_gpu_kern_sum"]), rows)]))
    assert parsed(table)[1] != parsed(sections(text)["cuda_gpu_kern_sum"])[1]


def files(data: Path) -> list[Path]:
    return sorted(path for folder in ("nsys", "kineto") for path in (data / folder).glob("h200*"))


@pytest.mark.slow
def test_sums_over_every_capture_of_ours_agree_with_one_another(data):
    """Reports that cut the same rows in different ways have the same totals and counts."""
    assert files(data)
    for file in files(data):
        with recording(file) as found:
            rows = {name: Wanted(report).rows(found) for name, report in REPORT.items()}
        kernels = rows["cuda_gpu_kern_sum"]
        by_size = rows["cuda_gpu_kern_gb_sum"]
        both = rows["cuda_gpu_sum"]
        assert totals(kernels) == totals(by_size), file
        assert totals(both) == totals([*kernels, *rows["cuda_gpu_mem_time_sum"]]), file
        assert totals(rows["nvtx_sum"]) == totals([*rows["nvtx_pushpop_sum"], *rows["nvtx_startend_sum"]]), file
        trace, summed = rows["nvtx_gpu_proj_trace"], rows["nvtx_gpu_proj_sum"]
        assert sum(row[2] for row in trace) == sum(row[2] for row in summed), file
        assert sum(row[8] for row in trace) == sum(row[10] for row in summed), file
        inside = [row[11] for row in trace if row[12] is not None]
        assert sum(row[10] for row in trace) == len(inside), file  # NumChild counts the rows that name a parent


def totals(rows: list[list[layout.Cell]]) -> tuple[int, int]:
    """Total time and count."""
    return sum(row[1] for row in rows), sum(row[2] for row in rows)
