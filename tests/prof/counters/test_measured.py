"""prof.py --ncu and pyprof report --ncu: columns, conditions, groups, sentences and the page."""

import csv
import gzip
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyprof.parse.ncu.report import Launch, Report
from pyprof.prof import cli
from pyprof.prof.counters.join import join
from pyprof.prof.counters.measured import counters_of, notes
from pyprof.prof.report import cli as report_cli
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.measured_work import measured_sentences
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Coded, Table
from pyprof.table.schema import COLUMN as KEYS
from tests.answered import strict, valid
from tests.paths import GOLDEN

CAPTURE, REPORT = str(GOLDEN / "ncu" / "h200_gpt2_block.sqlite.gz"), str(GOLDEN / "ncu" / "h200_gpt2_block.base.csv.gz")
PART = str(GOLDEN / "ncu" / "h200_gpt2_block_subset.raw.csv.gz")
LENET, LENET_REPORT = str(GOLDEN / "ncu" / "h200_lenet.sqlite.gz"), str(GOLDEN / "ncu" / "h200_lenet.raw.csv.gz")


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[str, str]:
    assert cli.main([*options]) == 0
    found = capsys.readouterr()
    return found.out, found.err


def rows(capsys: pytest.CaptureFixture[str], columns: str, *options: str) -> list[dict[str, str]]:
    out, _ = printed(capsys, "-q", "--jsonl", "-c", columns, *options)
    return [json.loads(line) for line in out.splitlines()]


# ----- three kernels, by hand -----


def three() -> tuple[Table, Annotation, Report]:
    """gemm: 100 bytes and 1,000 FLOPs needed, 300 and 1,500 done; copy: 50 bytes, 25; fill: not measured."""
    names = ["gemm", "copy", "fill"]
    table = Table(3, {
        "kind": Coded.of(["kernel"] * 3), "kLongName": Coded.of(names), "kShortName": Coded.of(names),
        "grid": Coded.of(["[4, 1, 1]"] * 3), "block": Coded.of(["[128, 1, 1]"] * 3),
        "start": np.array([0, 3000, 5000]), "kDuration": np.array([3000, 1000, 1000]),
        "registers": np.array([NULL, 40, 50]), "pid": np.ones(3, np.int64), "device": np.zeros(3, np.int64),
        "gpu": Coded.of(["NVIDIA H200"] * 3),
    })  # fmt: skip
    empty = Coded.of([""] * 3)
    annotation = Annotation(np.array([1000, 0, NULL]), np.array([100, 50, 8]), empty, empty, empty, empty, {})
    metrics = {
        "dram__bytes_read.sum": [200, 20], "dram__bytes_write.sum": [100, 5], "smsp__inst_executed.sum": [7, 9],
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": [700, 0],
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": [100, 0],
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": [0, 0],
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": [0, 0],
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": [80, 40], "launch__registers_per_thread": [128, 32],
        "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": [1, 4],
        "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": [3, 0],
    }  # fmt: skip
    launches = tuple(Launch(n, name, (name,), 1, grid=(4, 1, 1), block=(128, 1, 1)) for n, name in enumerate(names[:2]))
    return table, annotation, Report("r.csv", launches, {k: np.array(v, float) for k, v in metrics.items()}, {})


def counted() -> tuple[Table, Annotation]:
    table, annotation, report = three()
    fields = {name: getattr(annotation, name) for name in annotation.__dataclass_fields__}
    return table, Annotation(**{**fields, "counters": counters_of([join(report, table)])})


def test_ratios_by_hand():
    """300 / 100 and 25 / 50 bytes; (2 * 700 + 100) / 1000 FLOPs, and none of 0; the third was not measured."""
    from pyprof.prof.table.columns import COLUMN

    table, annotation = counted()
    found = {name: COLUMN[name].get(table, annotation) for name in COLUMN if "easured" in COLUMN[name].meaning}
    assert found["dram_rd"].tolist() == [200, 20, NULL]
    assert found["dram_wr"].tolist() == [100, 5, NULL]
    assert found["dram"].tolist() == [300, 25, NULL]
    assert found["inst"].tolist() == [7, 9, NULL]
    assert found["exec_flops"].tolist() == [1500, 0, NULL]
    assert found["l2_rd"].tolist() == [NULL, NULL, NULL]  # not collected
    np.testing.assert_array_equal(found["bytes_ratio"], [3, 0.5, np.nan])
    np.testing.assert_array_equal(COLUMN["flops_ratio"].get(table, annotation), [1.5, np.nan, np.nan])
    np.testing.assert_array_equal(found["dram_pct"], [80, 40, np.nan])
    assert found["stalls"].texts() == ["barrier 75%, wait 25%", "wait 100%", ""]
    assert COLUMN["regs"].get(table, annotation).tolist() == [128, 40, 50]  # the capture's own first
    assert COLUMN["matched"].get(table, annotation).texts() == ["key", "key", ""]
    assert COLUMN["unmatched"].get(table, annotation).texts()[2] == "the report has no kernel of this name"


def test_groups_by_hand():
    """All three in one group: sums, means by time (3 : 1), and ratios of the sums over what is known of both."""
    from pyprof.prof.table.query import make_query, run_query

    table, annotation = counted()
    query = make_query(None, (), group=["kind"], counted=True)
    cells, _, _ = run_query(query, table, annotation)
    (row,) = ({c.name: data for c, data in zip(cells.columns, cells.data, strict=True)},)
    assert row["measured"].tolist() == [80]  # 4,000 of 5,000 ns
    assert (row["dram_rd"].tolist(), row["dram"].tolist(), row["inst"].tolist()) == ([220], [325], [16])
    assert row["l2_rd"].tolist() == [NULL]
    assert row["dram_pct"].tolist() == [(80 * 3 + 40 * 1) / 4]
    assert row["bytes_ratio"].tolist() == [pytest.approx(325 / 150)]
    assert row["flops_ratio"].tolist() == [1.5]
    assert row["regs"].tolist() == [128]
    assert row["stalls"].texts() == ["barrier 56%, wait 44%"]  # (3 * 75 + 0) / 4, (3 * 25 + 100) / 4


def test_the_summary_by_hand():
    """gemm moves 200 bytes more than it needs: 200 B / 4.8 TB/s = 0.042 ns, too little to be named."""
    table, annotation = counted()
    numbers = summarise(table, annotation).measured
    assert numbers is not None
    assert (numbers.kernels, numbers.matched, numbers.by_order, numbers.matched_ns) == (3, 2, 0, 4000)
    assert (numbers.dram_bytes, numbers.nbytes, numbers.bytes_ns) == (325, 150, 4000)
    assert (numbers.executed, numbers.flop, numbers.flops_ns) == (1500, 1000, 4000)
    assert numbers.most is not None
    assert (numbers.most.kernel, numbers.most.rows, numbers.most.dram_bytes, numbers.most.nbytes) == (
        "gemm",
        1,
        300,
        100,
    )
    assert numbers.most.ns == pytest.approx(200 / 4.8e12 * 1e9)
    assert list(measured_sentences(numbers, 5000)) == [
        "Nsight Compute measured 2 of 3 kernels: 80.0% of GPU time.",
        "These kernels moved 325 B of DRAM traffic where the algorithm needs 150 B (2.17 times; both known for 80.0% "
        "of GPU time), and executed 1.5 kFLOP where it needs 1 kFLOP (1.5 times; 80.0%).",
    ]
    assert summarise(table, three()[1]).measured is None


def test_what_is_not_matched_is_said():
    table, annotation = counted()
    assert annotation.counters is not None
    assert notes(annotation.counters, table) == [
        "ncu: r.csv (2 launches): 2 of 3 kernels matched (2 by key), 80.0% of the time",
        "ncu: only in the capture: 1 × fill: the report has no kernel of this name",
    ]


def test_a_second_report_fills_what_the_first_does_not_know():
    table, _, first = three()
    metrics = {"lts__t_bytes_op_read.sum": np.array([64.0, 32]), "smsp__inst_executed.sum": np.array([1.0, 1])}
    second = Report("s.csv", tuple(one._replace(process_id=2) for one in first.launches), metrics, {})
    both = counters_of([join(first, table), join(second, table)])
    assert both.whole("l2_rd").tolist() == [64, 32, NULL]
    assert both.whole("inst").tolist() == [7, 9, NULL]
    assert [each.file for each in both.reports] == ["r.csv", "s.csv"]


# ----- a training step on an H200 -----


def test_every_kernel_of_a_gpt2_step(capsys):
    """The counters of a row are those of the report's launch of the same number; recomputed from the file's text."""
    with gzip.open(REPORT, "rt", encoding="utf-8") as lines:
        text = lines.read().split("\n")
    header = next(csv.reader([text[0]]))
    back = [header.index(name) - len(header) for name in ("dram__bytes_read.sum", "dram__bytes_write.sum")]
    tails = [line.removesuffix('"').rsplit('","', -min(back)) for line in text[2:] if line]
    wanted = [[int(float(tail[at].strip('"').replace(",", ""))) for at in back] for tail in tails]
    found = rows(capsys, "dram_rd,dram_wr,matched", "--ncu", REPORT, "--where", "kind == 'kernel'", CAPTURE)
    assert [[row["dram_rd"], row["dram_wr"]] for row in found] == wanted
    assert {row["matched"] for row in found} == {"key"}


def test_products_execute_what_their_tiles_need(capsys):
    """linear 4096 x 768 x 2304 runs in 192 x 192 tiles: 22 * 12 of them, 1.0313 times the algorithm's FLOPs."""
    (first, *_) = rows(capsys, "kernel,flops,exec_flops,flops_ratio", "--ncu", REPORT, "--where",
                       "kernel like 'nvjet*'", CAPTURE)  # fmt: skip
    assert first["flops"] == 2 * 4096 * 768 * 2304
    assert 22 * 12 * 192 * 192 * 768 * 2 <= first["exec_flops"] < 1.001 * 22 * 12 * 192 * 192 * 768 * 2
    assert first["flops_ratio"] == pytest.approx(1.0313, abs=0.001)


def test_conditions_on_ratios(capsys):
    found = rows(capsys, "bytes_ratio,dram,bytes", "--ncu", REPORT, "--where", "bytes_ratio > 1.2", CAPTURE)
    assert 0 < len(found) < 20
    assert all(row["dram"] > 1.2 * row["bytes"] for row in found)
    assert rows(capsys, "idx", "--ncu", REPORT, "--where", "bytes_ratio == None and kind == 'kernel'", CAPTURE)


def test_without_c_a_report_adds_its_columns(capsys, tmp_path):
    out, _ = printed(capsys, "-q", "--csv", "--ncu", REPORT, CAPTURE)
    assert {"Idx", "Sil(ns)", "DRAMRd", "L2Wr", "Stalls", "BytesRatio", "FLOPsRatio", "Matched"} <= {
        *next(csv.reader([out.splitlines()[0]]))
    }
    out, _ = printed(capsys, "-q", "-w", "120", "--ncu", REPORT, CAPTURE)
    assert out.split("\n")[0].split()[-4:] == ["sil", "dram", "bytes_ratio", "flops_ratio"]
    assert max(map(len, out.splitlines())) <= 120
    file = tmp_path / "net.jsonl"
    assert cli.main(["-q", "--ncu", REPORT, CAPTURE, "-o", str(file)]) == 0
    assert "l2_rd" in json.loads(file.read_text().splitlines()[0])
    out, _ = printed(capsys, "-q", "--csv", CAPTURE)
    assert "DRAMRd" not in out


def test_without_a_report_the_columns_are_unknown(capsys):
    (row, *_) = rows(capsys, "dram_rd,bytes_ratio,stalls,matched,unmatched", CAPTURE)
    assert set(row.values()) <= {None, ""}


def test_groups_have_the_counters_only_with_a_report(capsys):
    out, _ = printed(capsys, "-q", "--group", "phase", "--csv", CAPTURE)
    assert "Measured%" not in out
    out, _ = printed(capsys, "-q", "--group", "phase", "--csv", "--ncu", REPORT, CAPTURE)
    groups = list(csv.DictReader(io.StringIO(out)))
    every = rows(capsys, "phase,dram,sil", "--ncu", REPORT, CAPTURE)
    for group in groups:
        mine = [row for row in every if row["phase"] == group["Phase"]]
        assert int(group["DRAM"]) == sum(row["dram"] or 0 for row in mine)


def test_json_says_what_was_joined(capsys):
    out, _ = printed(capsys, "-q", "--json", "-c", "idx,dram", "--ncu", PART, CAPTURE)
    document = json.loads(out)
    said = [text for text in document["assumptions"] if text.startswith("ncu: ")]
    assert re.match(r"ncu: .*\(12 launches\): 12 of 107 kernels matched \(12 by key\), [\d.]+% of the time", said[0])
    assert "only in the capture" in said[1]


def test_the_summary_of_a_step(capsys):
    out, _ = printed(capsys, "-q", "--summary", "-w", "200", "--ncu", REPORT, CAPTURE)
    assert "Nsight Compute measured 107 of 107 kernels: 99.8% of GPU time." in out
    assert "Most traffic beyond its algorithm is that of cunn_SoftMaxBackward, in 1 kernel" in out
    assert "with empty caches" in out


def test_a_row_explains_its_counters(capsys):
    out, _ = printed(capsys, "-q", "--explain", "7", "--ncu", PART, CAPTURE)
    assert "matched by key" in out
    assert "7,087,104 bytes, 0.668 times" in out  # of 10,616,832
    out, _ = printed(capsys, "-q", "--explain", "6", "--ncu", PART, CAPTURE)
    assert "nothing: the report has 7 of this name, the capture 24" in out


def test_a_details_page_gives_what_it_has(capsys):
    part = str(GOLDEN / "ncu" / "h200_lenet_subset.details.csv.gz")
    found = rows(capsys, "dram,inst,dram_pct,regs,matched", "--ncu", part, "--where", "matched != ''", LENET)
    assert len(found) == 12
    assert all(row["dram"] and row["inst"] and row["regs"] for row in found)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"hello\n", "found no kernels in it"), (b"", "found an empty file"), (b"abc\0", "a binary file")],
)
def test_what_is_no_report_is_one_line(content, words, tmp_path, capsys):
    path = tmp_path / "report.csv"
    path.write_bytes(content)
    assert cli.main(["--ncu", str(path), "-o", str(tmp_path / "net.csv"), CAPTURE]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.startswith(f"prof.py: {path}: expected a table of Nsight Compute")
    assert err.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["report.csv"]


def test_a_report_given_in_place_of_the_capture_is_one_line(capsys):
    assert cli.main([LENET_REPORT]) == 1
    assert "join this to it: pyprof prof --ncu FILE net.dict" in capsys.readouterr().err


@pytest.mark.parametrize("options", ["'-c', 'idx,dram'", "'--summary'", "'--group', 'op'", "'--explain', '1'"])
def test_no_report_no_imports(options):
    """prof.py without --ncu loads none of the modules that read and join reports."""
    code = (
        f"import sys; from pyprof.prof.cli import main; main(['-q', {options}, sys.argv[1]]); "
        "ours = [name for name in sys.modules if name.startswith('pyprof')]; "
        "print([name for name in ours if 'ncu' in name or 'counters' in name], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, LENET], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_no_key_of_the_kernel_table_is_a_counter():
    assert not {"dram_rd", "stalls"} & KEYS.keys()


# ----- the page -----


def page(tmp_path: Path, *options: str) -> Path:
    path = tmp_path / "report.html"
    assert report_cli.main(["-q", *options, CAPTURE, "-o", str(path)]) == 0
    return path


def model(path: Path) -> dict[str, dict[str, list[int]]]:
    island = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert island
    return dict(json.loads(island[1])["calls"]["numbers"])


def test_the_page_has_measured_amounts_only_with_a_report(tmp_path):
    assert not {"dram", "exec_flops"} & model(page(tmp_path)).keys()
    (tmp_path / "report.html").unlink()
    assert {"dram", "exec_flops"} <= model(page(tmp_path, "--ncu", REPORT)).keys()


@pytest.mark.parametrize(
    "options", [("-c", "all"), ("--group", "op,dir"), ("--group", "op", "-c", "op,dram,stalls"), ("--summary",),
                ("--explain", "7"), ()],
)  # fmt: skip
@pytest.mark.parametrize("report", [REPORT, PART, None])
def test_json_follows_its_schema(options, report, capsys):
    out, _ = printed(capsys, "-q", "--json", *options, *(("--ncu", report) if report else ()), CAPTURE)
    valid(strict(out.encode()))


def test_a_loaded_profile_has_the_counters(capsys):
    import pyprof

    every = rows(capsys, "dram,bytes", "--ncu", REPORT, "--where", "dram != None and bytes > 0", CAPTURE)
    p = pyprof.load(CAPTURE, ncu=REPORT)
    assert len(p.where("bytes_ratio > 1.2")) == sum(row["dram"] > 1.2 * row["bytes"] for row in every) > 5
    assert "Nsight Compute measured 107 of 107 kernels" in str(p.summary())
    assert not p.where("kind == 'memset' and dram != None")
