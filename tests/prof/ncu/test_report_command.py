"""`pyprof ncu REPORT` as a user runs it: text in any width, CSV, JSON, and what it refuses."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from pyprof.ncu.cli import main
from pyprof.prof.ncu.cli import SORTS
from pyprof.prof.ncu.report_text import DECIMAL, SECONDS, SORT_BY, Column, lines, scaled
from tests.answered import answer
from tests.paths import GOLDEN

GPT2 = str(GOLDEN / "ncu/h200_gpt2_block.base.csv.gz")
LENET = str(GOLDEN / "ncu/h200_lenet.raw.csv.gz")
DETAILS = str(GOLDEN / "ncu/h200_lenet_subset.details.csv.gz")


def run(capfdbinary: pytest.CaptureFixture[bytes], *words: str) -> tuple[int, str, str]:
    try:
        code = main(list(words))
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capfdbinary.readouterr()
    return code, out.decode(), err.decode()


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize(
    "words", [(GPT2,), (GPT2, "--layers", "12"), (LENET,), (DETAILS,)], ids=lambda words: words[0][-22:]
)
def test_every_line_fits_and_columns_are_aligned(width: int, words: tuple[str, ...], capfdbinary) -> None:
    code, out, err = run(capfdbinary, "-w", str(width), *words)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= width
    table = out.split("\n\n")[0].splitlines()
    head, rows = table[1], table[2:]
    assert len(rows) == {GPT2: 107, LENET: 54, DETAILS: 12}[words[0]]
    edge = head.index("kind")  # the first text behind the numbers
    for row in rows:
        assert row[edge - 1] == " " and row[edge] != " ", row
    for name in re.finditer(r"time \Ss", head):  # numbers end where their name ends
        assert all(row[name.end() - 1].isdigit() and row[name.end()] == " " for row in rows)


def test_the_text_has_all_parts(capfdbinary) -> None:
    out = run(capfdbinary, "-w", "160", GPT2)[1]
    kernels, kinds, phases, sentences, notes = out.rstrip().split("\n\n")
    assert "  8  fwd   forward        25.8" in kernels and "layer_norm" in kernels and "blocks.0.norm1" in kernels
    assert [line.split()[0] for line in phases.splitlines()[2:]] == [
        "encoder", "forward", "classifier", "backward", "optimizer", "total"
    ]  # fmt: skip
    assert kinds.splitlines()[2].startswith("GEMM ") and kinds.splitlines()[-1].startswith("total ")
    assert sentences.startswith("The 107 kernels take 11.43 ms, one after the other: encoder 0.3505 ms (3.1%), forward")
    assert "* NVIDIA H200: measured at 1.96 GHz" in notes


def test_csv_has_every_kernel_in_base_units(capfdbinary) -> None:
    code, out, err = run(capfdbinary, "--csv", GPT2)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, len(rows)) == (0, 107)
    assert float(rows[27]["time_ns"]) == 3_343_456 and rows[27]["phase"] == "classifier" and rows[27]["op"] == "linear"
    assert "measured at 1.96 GHz" in err  # the notes, which a table has no place for
    details = list(csv.DictReader(io.StringIO(run(capfdbinary, "--csv", DETAILS)[1])))
    assert {row["dram_read_bytes"] for row in details} == {""}  # unknown is not zero


def test_json_is_of_its_schema_and_adds_up(capfdbinary) -> None:
    code, out, _ = run(capfdbinary, "--json", "--layers", "12", GPT2)
    found = answer(out.encode(), "counters", "ncu")
    assert code == 0 and found["input"] == [{"name": GPT2, "profiler": None}]
    assert found["total"]["kernels"] == sum(each["count"] for each in found["kernels"]) == 107 + 56 * 11
    assert found["total"]["time_ns"] == sum(each["count"] * each["time_ns"] for each in found["kernels"])
    for groups in ("phases", "kinds"):
        assert sum(each["time_ns"] for each in found[groups]) == pytest.approx(found["total"]["time_ns"])
    (gpu,) = found["gpus"]
    assert (gpu["name"], gpu["bandwidth"]) == ("NVIDIA H200", 4.8e12)
    assert found["without_gemm"]["time_ns"] < found["total"]["time_ns"]
    unknown = answer(run(capfdbinary, "--json", DETAILS)[1].encode(), "counters", "ncu")
    assert unknown["total"]["dram_read_bytes"] is None and unknown["gpus"][0]["bandwidth"] is None


def test_a_binary_report_with_a_failed_kernel(data: Path, capfdbinary) -> None:
    pytest.importorskip("ncu_report", reason="pip install ncu-report reads .ncu-rep")
    code, out, _ = run(capfdbinary, "--csv", str(data / "ncu" / "AveryClapp+ESMM-Research__profile.ncu-rep"))
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, len(rows)) == (0, 6)
    assert [row["time_ns"] == "" for row in rows] == [False] * 5 + [True]  # one_d_vec's replay failed


def test_sort_and_top(capfdbinary) -> None:
    out = run(capfdbinary, "--sort", "time", "--top", "3", GPT2)[1]
    table = out.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table[2:5]] == ["27", "37", "36"]
    assert table[5] == "(104 more)"
    # With 12 layers, 12 times 70.6 us of attention come before one kernel of 570 us
    rows = list(csv.DictReader(io.StringIO(run(capfdbinary, "--sort", "time", "--layers", "12", "--csv", GPT2)[1])))
    times = [int(row["count"]) * float(row["time_ns"]) for row in rows]
    assert times == sorted(times, reverse=True) and rows[3]["number"] == "65"
    assert set(SORT_BY) == set(SORTS)
    for sort in SORTS:
        assert run(capfdbinary, "--sort", sort, DETAILS)[0] == 0  # unknown values come last


def test_output_is_written_whole_and_only_with_force_again(tmp_path: Path, capfdbinary) -> None:
    target = tmp_path / "report.txt"
    assert run(capfdbinary, "-o", str(target), LENET)[:2] == (0, "")
    assert "The 54 kernels take" in target.read_text()
    assert run(capfdbinary, "-o", str(target), LENET)[0] == 1
    assert run(capfdbinary, "-o", str(target), "--force", "--json", LENET)[0] == 0
    assert json.loads(target.read_text())["schema"] == "pyprof/counters/1"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "give a command behind --"),
        (("train.py",), "to measure it: pyprof ncu -- python train.py"),
        (("--steps", "3", GPT2), "--steps is an option of measuring, not of a report"),
        (("--sort", "time", "--", "python", "x.py"), "--sort is an option of a report, not of measuring"),
        (("-w", "90", "--", "python", "x.py"), "-w is an option of a report"),
        ((GPT2, "--", "python", "x.py"), "only options may precede the --"),
        (("--csv", "--json", GPT2), "not allowed with"),
        (("--layers", "x", GPT2), "expected a number of layers"),
        (("--layers", "other=2", GPT2), "expected one of the stacks of layers: blocks=2 (1 profiled)"),
        (("--layers", "12", LENET), "no layer of the report has a number"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], complaint: str, capfdbinary) -> None:
    code, _, err = run(capfdbinary, *words)
    assert code == 2 and complaint in err


def test_another_file_is_one_line(tmp_path: Path, capfdbinary) -> None:
    file = tmp_path / "net.csv"
    file.write_text("a,b\n1,2\n")
    code, out, err = run(capfdbinary, str(file))
    assert (code, out, err.count("\n")) == (1, "", 1) and str(file) in err and "Nsight Compute" in err
    failure = answer(run(capfdbinary, "--json", str(file))[1].encode(), "error", "ncu")
    assert failure["input"] == [{"name": str(file), "profiler": None}]


# Numbers and columns


def test_numbers_share_a_unit_and_only_zero_is_zero() -> None:
    assert scaled([9_999e-6, 0.4e-6], SECONDS) == ("µ", ["9999.0", "0.4"])
    assert scaled([12e-3, 1e-6], SECONDS) == ("m", ["12.00", "<0.01"])
    assert scaled([10_000.0, 0.0, float("nan")], DECIMAL) == ("k", ["10.00", "0", "-"])


def test_columns_of_a_high_rank_go_first_and_texts_are_cut() -> None:
    columns = [
        Column("", "n", ["1"]),
        Column("", "kernel", ["a" * 40], 1, right=False, bends=True),
        Column("", "layer", ["b" * 40], 2, right=False, bends=True),
    ]
    whole, without_layer, least = ([line.split() for line in lines(columns, width)][2] for width in (60, 30, 10))
    assert whole == ["1", "a" * 13 + ".." + "a" * 12, "b" * 13 + ".." + "b" * 13]  # 60 - 1 - 2 x 2 = 27 + 28
    assert without_layer == ["1", "a" * 13 + ".." + "a" * 13]  # 30 - 1 - 1 = 28
    assert least == ["1"]
