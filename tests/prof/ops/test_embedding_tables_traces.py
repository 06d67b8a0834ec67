"""Traces of FBGEMM since 0.5: its functions call ops of their own, for each kind of table."""

from pathlib import Path
from typing import Any

import pytest

from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.explain import explain
from pyprof.prof.work.annotate import annotate
from tests.parse.kineto.kineto_file import AUTOGRAD, begin, call, kernel, op, write

OPTIMIZER = "rowwise_adagrad"
NODE = f"torch::autograd::CppNode<SplitLookupFunction_{OPTIMIZER}_Op_pt2>"
ENGINE = "autograd::engine::evaluate_function: "
# Two tables: 10 rows of 4, 5 of 8; 9 indices in 6 bags (test_ops_embedding_tables)
S, INT, LONG, FLOAT, LIST = "Scalar", "int", "long int", "float", "TensorList"
WEIGHTS, TYPES = [[80], [0], [0, 8], [2], [2]], [FLOAT, FLOAT, FLOAT, INT, LONG]
FORWARD = {  # ..., D_offsets, total_D, max_D, indices, offsets, pooling_mode, lxu_cache_locations
    "Input_Dims": [*WEIGHTS, [3], [], [], [9], [7], [], [0]],
    "Input_type": [*TYPES, INT, S, S, LONG, LONG, S, INT],
}
BACKWARD = {  # grad, ..., D_offsets, max_D, hash_size_cumsum, its bits, indices, offsets, pooling_mode, cache, state
    "Input_Dims": [[3, 12], *WEIGHTS, [3], [], [3], [], [9], [7], [], [0], [15]],
    "Input_type": [FLOAT, *TYPES, INT, S, LONG, S, LONG, LONG, S, INT, FLOAT],
}
PT2 = {
    "Input_Dims": [[0], [[80], [0], [2], [2], [0, 8]], [3], [], [], [3], [], [9], [7], []],
    "Input_type": [FLOAT, LIST, INT, S, S, LONG, S, LONG, LONG, S],
}
LOOK = "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 2ul>(int)"
UPDATE = "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_{}_per_row_1<float, float>(int)"
SORT = "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, false>(int*)"


def values(texts: dict[int, str], count: int) -> list[str]:
    return [texts.get(i, "") for i in range(count)]


def trace(tmp_path: Path, told: bool) -> Any:
    """``told``: with the values of numbers, as PyTorch records them since 2.1."""
    number = {"Sequence_number": 4, "Fwd_thread_id": 0}
    pt2, forward, backward = dict(PT2), dict(FORWARD), dict(BACKWARD)
    if told:
        pt2["Concrete_Inputs"] = values({3: "12", 4: "8", 6: "4", 9: "0"}, 10)
        forward["Concrete_Inputs"] = values({6: "12", 7: "8", 10: "0"}, 12)
        backward["Concrete_Inputs"] = values({7: "8", 9: "4", 12: "0"}, 15)
    inside = {"tid": AUTOGRAD}
    name = f"fbgemm::split_embedding_backward_codegen_{OPTIMIZER}_unweighted"
    path = write(
        tmp_path / "t.json",
        begin(0),
        op(f"fbgemm::split_embedding_codegen_lookup_{OPTIMIZER}_function_pt2", 10, 80, **number, **pt2),
        op("fbgemm::split_embedding_codegen_forward_unweighted_pt2_wrapper", 30, 50, **forward),
        op("fbgemm::split_embedding_codegen_forward_unweighted_cuda", 40, 30, **forward),
        call(50, 1),
        kernel(500, 9, 1, LOOK),
        op(ENGINE + NODE, 200, 90, Sequence_number=4, Fwd_thread_id=1, **inside),
        op(NODE, 201, 88, Sequence_number=4, Fwd_thread_id=1, Input_Dims=[[3, 12]], Input_type=["float"], **inside),
        call(205, 2, **inside),
        kernel(510, 5, 2, "void fbgemm_gpu::some_chore<float>(int)"),
        op(f"{name}_pt2_wrapper", 210, 70, **inside, **backward),
        op(f"{name}_exact_cuda", 220, 50, **inside, **backward),
        call(225, 3, **inside),
        kernel(520, 10, 3, SORT),
        call(230, 4, **inside),
        kernel(540, 20, 4, UPDATE.format("cta")),
        call(240, 5, **inside),
        kernel(560, 40, 5, UPDATE.format("warp")),
    )
    return correlate(read(path))


@pytest.mark.parametrize("told", [True, False])
def test_each_kernel_has_its_own_ops_work(tmp_path: Path, told: bool) -> None:
    """Forward 18 FLOPs and 432 bytes; backward 315 and 720, a third and two thirds of it. A sort moves 9 keys of 8
    bytes and places of 4, twice. A chore that the node launches itself is not the node's work."""
    table = trace(tmp_path, told)
    notes = annotate(table)
    place = {int(corr): i for i, corr in enumerate(table.ints("corr"))}
    found = {corr: (int(notes.flops[i]), int(notes.bytes[i])) for corr, i in place.items() if corr != 2}
    assert found == {1: (18, 432), 3: (0, 2 * 9 * 12), 4: (105, 240), 5: (210, 480)}
    assert notes.flops[place[2]] <= 0 and notes.bytes[place[2]] < 0  # what it moves, nothing tells
    assert notes.role.texts()[place[2]] == notes.role.texts()[place[3]] == "aux"
    mine = f'["split_embedding_codegen_lookup_{OPTIMIZER}_function_pt2"]'
    assert set(table.coded("op").texts()) == {mine}
    assert [table.coded("dir").texts()[place[corr]] for corr in (1, 4)] == ["fprop", "bprop"]


def test_explain_says_what_was_inferred(tmp_path: Path) -> None:
    table = trace(tmp_path, True)
    row = table.ints("corr").tolist().index(4)
    (said,) = (text for what, text in explain(table, annotate(table), row) if what == "inferred")
    assert said == (
        "each lookup has the mean width of its 2 tables: which one it is in, is not recorded; "
        "rows updated: one per index, at most the 80 elements there are"
    )
