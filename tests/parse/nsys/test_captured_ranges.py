"""Graphs captured before nsys's range: their nodes lie in the ranges that pyprof recorded itself.

``h200_decode_before.sqlite.gz`` is a report of a step of 12 blocks (tests/device/graphs.py, ``decoding``) on an H200.
"""

import gzip
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pyprof.captured_record import CAPTURED_RANGE, CLOCK_RANGE
from pyprof.parse.nsys.captured_ranges import FAR_NS, NOT_ALIGNED, NOT_READ
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Table
from pyprof.table.graph_replays import launched_by_graphs
from tests.paths import GOLDEN

FILE = GOLDEN / "graphs" / "h200_decode_before.sqlite.gz"
KERNELS = {  # the kernels of each op in a step of 12 blocks, by hand from the model's source
    "aten::mm": 12 * 2 + 1,  # qkv, out; the head
    "aten::addmm": 12 * 2,  # up, down
    "aten::native_layer_norm": 12 * 2 + 1,
    "aten::index_copy_": 12 * 2,
    "aten::_cudnn_attention_forward": 12,
    "aten::gelu": 12,
    "aten::add": 12 * 2,
    "aten::where": 12,  # the mask of scaled_dot_product_attention as numbers, from two that fill_ makes
    "aten::fill_": 12 * 2,
    "aten::index_select": 1,  # the embedding
    **dict.fromkeys(("aten::le", "aten::argmax", "aten::copy_", "aten::add_", "aten::remainder_"), 1),
}


def replayed(table: Table) -> np.ndarray:
    return launched_by_graphs(table) & (table.ints("step") == 2)


def changed(tmp_path: Path, *statements: str) -> Table:
    file = tmp_path / "net.sqlite"
    with gzip.open(FILE) as packed, open(file, "wb") as out:
        shutil.copyfileobj(packed, out)
    with sqlite3.connect(file) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return load_table(str(file)).table


def test_each_replayed_kernel_is_in_the_op_that_launched_it() -> None:
    table = load_table(str(FILE)).table
    here = replayed(table)
    aten = np.array(table.coded("aten").texts())
    assert Counter(aten[here].tolist()) == KERNELS
    flops = annotate(table).flops
    products = here & np.isin(aten, ("aten::mm", "aten::addmm"))
    assert int(flops[products].sum()) == 12 * 2 * 8 * 512 * (1536 + 512 + 2048 + 2048) + 2 * 8 * 512 * 4096


OF_CLOCKS = f"textId IN (SELECT id FROM StringIds WHERE value LIKE '{CLOCK_RANGE}%')"
CLOCKS = f"UPDATE NVTX_EVENTS SET start = start + {{}}, end = end + {{}} WHERE {OF_CLOCKS}"


@pytest.mark.parametrize("drift", [-60_000, -7_000, 7_000, 60_000])
def test_the_nodes_tell_the_difference_of_the_clocks(tmp_path: Path, drift: int) -> None:
    """As after a long time between the capture and nsys's range, in which the clocks ran apart."""
    table = changed(tmp_path, CLOCKS.format(drift, drift))
    aten = np.array(table.coded("aten").texts())
    assert Counter(aten[replayed(table)].tolist()) == KERNELS


def test_clocks_that_are_too_far_apart_are_not_guessed(tmp_path: Path) -> None:
    table = changed(tmp_path, CLOCKS.format(3 * FAR_NS, 3 * FAR_NS))
    assert set(np.array(table.coded("op").texts())[replayed(table)]) == {""}
    assert NOT_ALIGNED in load_table(str(tmp_path / "net.sqlite")).warnings


def test_a_record_without_all_of_its_pieces_is_left_out_with_a_warning(tmp_path: Path) -> None:
    cut = f"UPDATE NVTX_EVENTS SET text = replace(text, '0/1:', '0/2:') WHERE text LIKE '{CAPTURED_RANGE}0%'"
    table = changed(tmp_path, cut)
    assert set(np.array(table.coded("op").texts())[replayed(table)]) == {""}
    assert NOT_READ in load_table(str(tmp_path / "net.sqlite")).warnings


def test_ranges_that_nsys_recorded_itself_are_not_added_again(tmp_path: Path) -> None:
    """Without --capture-range, nsys collects from the first line on."""
    table = changed(tmp_path, "UPDATE NVTX_EVENTS SET start = -1000000000000 WHERE rowid = 6")
    assert set(np.array(table.coded("op").texts())[replayed(table)]) == {""}


FORMS = ("eager", "early")


def flops_and_bytes(file: Path) -> tuple[int, int]:
    """Of the second step, without the copies that only graphs need."""
    table = load_table(str(file)).table
    work, here = annotate(table), table.ints("step") == 2
    copies = np.isin(table.coded("aten").texts(), ("aten::copy_", "aten::_foreach_copy_"))
    known, counted = here & (work.flops != NULL), here & (work.bytes != NULL) & ~copies
    return int(work.flops[known].sum()), int(work.bytes[counted].sum())


def test_what_init_itself_recorded_has_the_flops_and_bytes_of_the_eager_step() -> None:
    """``graphs.py run decode graphed`` under nsys: pyprof recorded the capture and told nsys of it, in one report."""
    eager, graphed = (flops_and_bytes(GOLDEN / "graphs" / f"h200_decode_{form}.sqlite.gz") for form in FORMS)
    assert eager == graphed
    assert eager[0] == 361_623_760
    table = load_table(str(GOLDEN / "graphs" / "h200_decode_early.sqlite.gz")).table
    here = launched_by_graphs(table) & (table.ints("step") == 2)
    assert here.sum() == 97 + 1  # kernels, and the copy of the next token
    for key in ("op", "layer"):
        assert "" not in np.array(table.coded(key).texts())[here]


@pytest.mark.parametrize(
    ("program", "plain", "flops", "of_graphs"),
    [
        # with GELU's tanh, which the marker tells: 9 operations forward and 18 backward for each of 2,097,152 numbers
        ("callables", "eager", 10_719_432_704, 20 + 72),  # autograd's thread made the nodes of the second graph
        ("reduce_overhead", "compiled", 23_632_096_256, 114 + 4),
        ("generate", "compiled", 1_859_409_608, 5 * 40),  # five of six tokens replay the graph
    ],
)
def test_what_init_itself_recorded_of_other_graphs(program: str, plain: str, flops: int, of_graphs: int) -> None:
    """``graphs.py run PROGRAM graphed``: FLOPs and bytes are those of the same step without graphs.

    ``of_graphs``: the nodes of a step's graphs, kernels and memsets, counted in the report with SQL.
    """
    without, graphed = (GOLDEN / "graphs" / f"h200_{program}_{form}.sqlite.gz" for form in (plain, "early"))
    assert flops_and_bytes(without) == flops_and_bytes(graphed)
    assert flops_and_bytes(graphed)[0] == flops
    table = load_table(str(graphed)).table
    here = launched_by_graphs(table) & (table.ints("step") == 2)
    assert here.sum() == of_graphs
    for key in ("op", "layer"):
        assert "" not in np.array(table.coded(key).texts())[here]


def test_a_capture_that_made_no_node_is_no_misfit(tmp_path: Path) -> None:
    """torch.compile's mode reduce-overhead captures an empty graph first; here, all nodes of the file are far away."""
    table = changed(tmp_path, "UPDATE CUDA_GRAPH_NODE_EVENTS SET start = start - 10000000000")
    assert set(np.array(table.coded("op").texts())[replayed(table)]) == {""}
    assert NOT_ALIGNED not in load_table(str(tmp_path / "net.sqlite")).warnings
