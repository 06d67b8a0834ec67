"""Where a row's numbers come from, on a real capture whose figures test_captures.py works out."""

from pyprof.prof.explain import explain
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN
from tests.prof.changes.rules.advice_rows import table as table_of_rows
from tests.tables import parsed

CAPTURE = GOLDEN / "h200_lenet_init.sqlite.gz"


def lines(kernel: str) -> dict[str, str]:
    """What is said of the first row of a kernel."""
    table = parsed(CAPTURE)
    row = table.coded("kShortName").texts().index(kernel)
    return dict(explain(table, annotate(table), row))


def test_a_product_says_op_layer_line_formula_and_share():
    told = lines("sgemm_largek_lds64")  # fc1: 32 x 400 times 400 x 120
    assert told["op"] == "torch.nn.functional.linear: from PyProf's marker around the call"
    assert told["layer"] == "LeNet.fc1"
    assert told["trace"].endswith("examples/lenet.py:37")
    assert "prof/ops/gemm.py: addmm" in told["formula"]
    assert told["this row"].startswith("3,072,000 FLOP")  # 2 * 32 * 400 * 120
    assert told["role"].startswith("main")
    assert told["tensor cores"].startswith("0")


def test_a_chore_says_that_it_is_one():
    told = lines("splitKreduce_kernel")
    assert told["role"].startswith("aux: a helper kernel (reduce) beside 1 main kernel; it gets no FLOPs")
    assert told["kernel's own work"].startswith(
        "cuBLAS(Lt): at least two slices of partial sums read, the result written"
    )
    assert told["this row"].startswith("0 FLOP")
    assert told["direction"].startswith("bprop: launched inside AddmmBackward0")


def test_of_a_cpu_op_nothing_is_said_of_launches_kernels_and_tensor_cores():
    file = GOLDEN / "cpu" / "linear.json.gz"
    table = parsed(file)
    row = table.coded("aten").texts().index("aten::mm")
    told = explain(table, annotate(table), row)
    assert told[0][0] == "CPU op" and told[0][1].endswith(" ns by the profiler's clock, without the ops inside it")
    words = " ".join(f"{what} {text}" for what, text in told)
    assert not any(word in words for word in ("launch", "kernel", "tensor core"))


def test_of_an_unknown_op_it_is_not_said_that_it_has_no_product():
    made = table_of_rows({"kShortName": "combine", "ns": 1000, "reason": "only user ranges around the launch"})
    told = dict(explain(made, annotate(made), 0))
    assert told["tensor cores"] == "-: no op is known, and the name is of no matrix product"


def test_a_formula_of_two_lines_is_shown_whole():
    row = {"kShortName": "triton_poi_fused_add_0", "ns": 1000, "op": ["triton_poi_fused_add_0"],
           "aten": "triton_poi_fused_add_0", "sizes": [[8], [8], []], "dtypes": ["float32", "float32", ""]}  # fmt: skip
    made = table_of_rows(row)
    assert (
        " with at most as many elements as the loops (prof/ops/compiled.py"
        in dict(explain(made, annotate(made), 0))["formula"]
    )


def test_a_launch_without_a_correlation_id_has_none():
    """rocprofv3's databases have launches, but no ids."""
    made = table_of_rows({"kShortName": "fill", "ns": 1000, "api": "hipMemset"})
    assert dict(explain(made, annotate(made), 0))["kernel"].endswith("; launched by hipMemset")
