"""tools/audit.py: the numbers of the summary and of the rows, recomputed from the raw files by independent code.

Each check is also seen to fail: a number that pyprof printed is changed, and the audit names it.
"""

import csv
import io
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pyprof.parse import cli as parse
from tests.fuzz import oracle
from tests.paths import GOLDEN
from tools import audit
from tools.audit import captures, compared, start
from tools.audit_advice import advice_checks
from tools.audit_kinds import kind_bounds, kinds_of
from tools.audit_numbers import compare, union
from tools.audit_raw import Operation, Range, read
from tools.audit_work import Call, element_bytes, product_flop, tensor_core

FOUND = captures([*map(Path, filter(None, [os.environ.get("PYPROF_DATA")])), GOLDEN])
FILES = list({(file.name, file.stat().st_size): file for file in FOUND}.values())  # some lie in both folders
Document = dict[str, Any]


@pytest.mark.parametrize("file", FILES, ids=[file.name[:60] for file in FILES])
def test_every_number_follows_from_the_raw_file(file: Path) -> None:
    summary, rows = (oracle.run(["prof", "-q", *options, str(file)]) for options in (audit.SUMMARY, audit.ROWS))
    assert (summary.code, rows.code) in {(0, 0), (1, 1)}, summary.err + rows.err  # it is read or refused, in one line
    printed = audit.Printed(summary.code, summary.out.decode(), summary.err, rows.out.decode())
    done = audit.judged(file, audit.raw(file), printed)
    if done.left_out:
        pytest.skip(done.left_out)
    assert done.summary >= 15
    assert [str(difference) for difference in done.differences] == []


# --- a wrong number is found --------------------------------------------------------------------------------------


raw = cache(read)  # each comparison joins the rows anew


@pytest.fixture(scope="module")
def printed() -> tuple[Path, str, str]:
    """A capture with products, copies, advice and backward passes, and what pyprof prints for it."""
    file = GOLDEN / "h200_gpt2_bf16.json.gz"
    with start(file, *audit.SUMMARY) as summary, start(file, *audit.ROWS) as rows:
        return file, summary.communicate()[0], rows.communicate()[0]


@pytest.fixture(scope="module")
def of_table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The same for the kernel table made of the capture, of whose changes only the GPU's work is known."""
    file, table = GOLDEN / "h200_gpt2_bf16.json.gz", tmp_path_factory.mktemp("table") / "net.parquet"
    assert parse.main([str(file), "-q", "-o", str(table)]) == 0
    with start(table, *audit.SUMMARY) as summary, start(table, *audit.ROWS) as rows:
        return file, summary.communicate()[0], rows.communicate()[0]


def part(document: Document, group: str, name: str) -> Document:
    return next(item for item in document["numbers"][group] if item["name"] == name)


def moved(document: Document, group: str, one: str, other: str) -> None:
    """Count a row and 1 ms of one part as another's, so that all still adds up."""
    for name, sign in ((one, -1), (other, 1)):
        part(document, group, name)["rows"] += sign
        part(document, group, name)["ns"] += sign * 1_000_000


def scaled(document: Document, key: str, by: float) -> None:
    document["changes"]["changes"][0][key] *= by


SUMMARY: dict[str, tuple[Callable[[Document], Any], str]] = {  # what is changed -> how, and a difference that names it
    "GEMM as attention": (lambda d: moved(d, "kinds", "GEMM", "attention"), "time of GEMM"),
    "a fill as element-wise": (lambda d: moved(d, "kinds", "fills", "element-wise"), "rows of fills"),
    "a kind without a name": (lambda d: part(d, "kinds", "softmax").update(name="magic"), "rows of magic"),
    "FLOPs": (lambda d: d["numbers"].update(flop=d["numbers"]["flop"] + 1), "flop"),
    "bytes": (lambda d: d["numbers"].update(nbytes=d["numbers"]["nbytes"] - 1), "nbytes"),
    "time with FLOPs": (lambda d: d["numbers"].update(counted_ns=1), "counted_ns"),
    "time with bytes": (lambda d: d["numbers"].update(bytes_counted_ns=1), "bytes_counted_ns"),
    "tensor cores": (lambda d: d["numbers"]["matrix"].update(tensor_ns=1), "tensor_ns"),
    "busy": (lambda d: d["numbers"].update(busy_ns=d["numbers"]["busy_ns"] + 1), "busy_ns"),
    "idle": (lambda d: d["numbers"].update(idle_ns=d["numbers"]["idle_ns"] + 1), "idle_ns"),
    "launches": (lambda d: d["numbers"]["waits"].update(launches=1), "launches"),
    "backward": (lambda d: moved(d, "phases", "forward", "backward"), "phases"),
    "a saving above its bound": (lambda d: scaled(d, "saved_ms", 50), "saved_ms"),
    "a saving above its interval": (lambda d: scaled(d, "high_ms", 0.1), "high_ms"),
    "work above that of its kernels": (lambda d: scaled(d, "gpu_ms", 50), "gpu_ms"),
    "a table's work above that of its kernels": (lambda d: scaled(d, "gpu_ms", 50), "gpu_ms"),
    "a table's kernels": (lambda d: scaled(d, "kernels", 50), "kernels"),
    "a table's time": (lambda d: scaled(d, "time_ms", 50), "time_ms"),
}


def differences(file: Path, summary: str, rows: str) -> list[str]:
    return [difference.name for difference in compared(file, raw(file), summary, rows).differences]


def test_what_is_printed_agrees(printed: tuple[Path, str, str]) -> None:
    assert differences(*printed) == []


@pytest.mark.parametrize("change", SUMMARY)
def test_a_changed_summary_is_found(request: pytest.FixtureRequest, change: str) -> None:
    file, summary, rows = request.getfixturevalue("of_table" if "table" in change else "printed")
    document = json.loads(summary)
    alter, named = SUMMARY[change]
    alter(document)
    assert any(named in name for name in differences(file, json.dumps(document), rows))


ROWS = {  # column -> a condition on the row, its new value, and a difference that names it
    "FLOPs": (lambda row: int(row["FLOPs"] or 0) > 10**9, lambda value: str(int(value) * 2), "FLOPs of"),
    "Bytes": (lambda row: row["Aten"] == "aten::tanh", lambda value: str(int(value) + 4), "bytes of"),
    "TC": (lambda row: row["TC"] == "1", lambda _: "0", "tensor cores of"),
    "Sil(ns)": (lambda _: True, lambda value: str(int(value) + 1), "start and duration of"),
    "Start(ns)": (lambda row: int(row["Idx"]) > 9, lambda value: str(int(value) + 1), "start and duration of"),
}


@pytest.mark.parametrize("column", ROWS)
def test_a_changed_row_is_found(printed: tuple[Path, str, str], column: str) -> None:
    file, summary, text = printed
    rows = list(csv.DictReader(io.StringIO(text)))
    chosen, change, named = ROWS[column]
    row = next(row for row in rows if chosen(row))
    row[column] = change(row[column])
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    assert any(name.startswith(named) for name in differences(file, summary, out.getvalue()))


def test_a_lost_row_is_found(printed: tuple[Path, str, str]) -> None:
    file, summary, text = printed
    assert differences(file, summary, "".join(text.splitlines(keepends=True)[:-1])) == ["number of rows"]


# --- the audit's own arithmetic, by hand --------------------------------------------------------------------------


def kernel(name: str, *ops: str, start: int = 0, ns: int = 10, **printed: str) -> Operation:
    cells = {"Step": "", "Advice": "", **printed}
    around = [Range(0, 1, op) for op in ops]
    return Operation("kernel", name, (0, 0), start, start + ns, full=name, around=around, printed=cells)


@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        (kernel("ampere_sgemm_128x64_tn"), {"GEMM"}),
        (kernel("ampere_sgemm_128x64_tn", "aten::conv2d", "aten::cudnn_convolution"), {"convolution"}),
        (kernel("vectorized_elementwise_kernel", "aten::fill_"), {"fills"}),
        (kernel("void vectorized_elementwise_kernel<4, FillFunctor<float> >"), {"fills"}),
        (kernel("void vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >", "user: step"), {"element-wise"}),
        (kernel("vectorized_elementwise_kernel"), set()),  # without its template it says nothing
        (kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "aten::add_"), {"communication"}),
        (kernel("reduce_kernel", "aten::sum, seq = 4"), {"reductions"}),
        (kernel("DeviceRadixSortOnesweepKernel", "aten::sort", "cub::DeviceRadixSort"), {"indexing and sorting"}),
        (kernel("triton_tem_fused_mm_0"), {"GEMM", "convolution", "attention"}),
    ],
)
def test_kinds_by_names(row: Operation, kinds: set[str]) -> None:
    assert kinds_of(row) == kinds


def test_bounds_of_kinds_by_hand() -> None:
    rows = [kernel("ampere_sgemm", ns=3), kernel("triton_tem_fused_mm_0", ns=5), kernel("who knows", ns=7)]
    found = kind_bounds(rows)
    assert found["GEMM"] == (1, 3, 3, 15)  # rows and ns: certainly one of 3 ns, at most all
    assert found["attention"] == (0, 2, 0, 12)
    assert found["other"] == (0, 1, 0, 7)


@pytest.mark.parametrize(
    ("op", "call", "flop"),
    [
        ("mm", Call([[4, 5], [5, 6]], [], []), (240,)),
        ("addmm", Call([[6], [4, 5], [5, 6]], [], []), (240,)),
        ("mm", Call([[4, 5], [6, 7]], [], []), ()),
        # 8x8 padded by 1, kernel 3, stride 2: 4x4 results of 6 channels from 2 channels: 2 * 96 * 2 * 9
        ("cudnn_convolution", Call([[1, 2, 8, 8], [6, 2, 3, 3]], ["", "", "[1, 1]", "[2, 2]", "[1, 1]"], []), (3456,)),
        ("cudnn_convolution", Call([[1, 2, 8, 8], [6, 2, 3, 3]], [], [1, 6, 4, 4]), (3456,)),
        ("convolution_backward", Call([[1, 6, 4, 4], [1, 2, 8, 8], [6, 2, 3, 3]], [], []), (3456, 6912)),
        ("add", Call([[4], [4]], [], []), ()),
    ],
)
def test_products_by_hand(op: str, call: Call, flop: tuple[int, ...]) -> None:
    assert product_flop(op, call) == flop


def test_bytes_of_element_wise_ops_by_hand() -> None:
    two = {"sizes": [[4, 8], [8]], "types": ["float", "float"], "strides": [[8, 1], [1]]}
    assert element_bytes("mul", two) == 4 * (32 + 8 + 32)
    assert element_bytes("mul", two | {"sizes": [[4, 8], [4, 8]], "strides": [[8, 1], [0, 1]]}) == 4 * (32 + 8 + 32)
    assert element_bytes("mul", two | {"types": ["float", "c10::Half"]}) is None
    assert element_bytes("sum", two) is None


def test_tensor_cores_by_names() -> None:
    assert tensor_core("nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_bias_NNN") == "1"
    assert tensor_core("ampere_sgemm_128x64_tn") == "0"
    assert tensor_core("_matmul_kernel") == ""


def changed(removed: float, kernels: float = 1, on_cpu: bool = False) -> Document:
    change = {"rule": "amp", "gpu_ms": removed, "kernels": kernels, "time_ms": 0.01}
    change["saved_ms"] = removed if on_cpu else None
    return {"changes": {"now": None, "on_cpu": on_cpu, "changes": [change]}}


def test_the_bound_of_a_change_by_hand() -> None:
    """Three kernels of 10 µs at 0, 50 and 150: with the second go its own 10; on a CPU 40 before and 90 behind it."""
    rows = [kernel("a", start=at * 1000, ns=10_000, Advice="amp" * (at == 50)) for at in (0, 50, 150)]
    for on_cpu, most in ((False, 0.01), (True, 0.14)):
        assert advice_checks(rows, changed(most, on_cpu=on_cpu))[1] == []
        assert {name for name, _, _ in advice_checks(rows, changed(most + 1e-4, on_cpu=on_cpu))[1]} == {"amp: gpu_ms"}
    assert [name for name, _, _ in advice_checks(rows, changed(0.01, kernels=2))[1]] == ["amp: kernels"] * 2


def test_the_pause_after_the_last_step_counts_for_the_rows_between_steps() -> None:
    """Two steps of 10 µs, 30 apart: a change of these ops may save (10 + 30 + 10 + 30) / 2 a step, not 25."""
    rows = [kernel("a", start=at * 1000, ns=10_000, Advice="amp", Step=str(at)) for at in (0, 40)]
    assert advice_checks(rows, changed(0.04, on_cpu=True))[1] == []
    assert [name for name, _, _ in advice_checks(rows, changed(0.041, on_cpu=True))[1]] == ["amp: gpu_ms"]


def test_a_union_of_intervals_by_hand() -> None:
    assert union([(5, 20), (0, 10), (30, 40), (32, 35)]) == 30


def test_a_wrong_number_is_a_difference() -> None:
    """If a number of the document is changed, the audit names it."""
    numbers = {"total_ns": 10, "busy_ns": 9, "idle_ns": 1, "attributed_ns": 10}
    parts = {key: [{"name": "a", "rows": 1, "ns": 10, "idle_ns": 1}] for key in ("kinds", "components", "phases")}
    parts["phases"][0]["ns"] = 9
    more: Document = {"matrix": {"tensor_ns": 0}}
    more |= {
        "kinds_of_rows": [],
        "devices": [],
        "waits": {"launches": 1, "queued_ns": 0},
        "copies": None,
        "step": None,
        "reasons": [],
    }
    more["steps"] = [{"name": "1", "rows": 1, "mark_ns": 7}]
    found: Document = {"captured_ms": 2.0, "now": None, "measured": False, "changes": []}
    document = {"numbers": numbers | parts | more, "changes": found}
    wanted = {"busy_ns": 9, "attributed_ns": (8, 10), "phases": {"backward": (0, 0)}, "marks_ns": {"1": 7}}
    assert compare(wanted, json.dumps(document))[1] == []
    document["numbers"]["busy_ns"] = 8
    found["changes"] = [{"rule": "amp", "saved_ms": 3.0}]
    found["now"] = {"ms": 2.1}
    names = [difference.name for difference in compare(wanted, json.dumps(document))[1]]
    assert names == ["busy_ns", "busy time by phase", "now", "change amp"]
