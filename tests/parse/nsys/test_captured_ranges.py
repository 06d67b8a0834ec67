"""Graphs captured before nsys's range: their nodes lie in the ranges that pyprof recorded itself.

``h200_decode_before.sqlite.gz`` is a report of a step of 12 blocks (tests/device/graphs.py, ``decoding``) on an H200.
"""

import gzip
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pyprof.captured_record import CAPTURED_RANGE, CLOCK_RANGE, Piece, joined, parts, piece
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
    copies = np.array([text == "aten::copy_" for text in table.coded("aten").texts()])
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


# Of two blocks, the gradients of the biases of qkv, out, up and down, each a sum of 1,024 rows, and in the backward of
# attention a sum over the 64 numbers of each of 4 heads at 4 * 256 places.
SUMS = 2 * (1023 * (768 + 256 + 1024 + 256) + 63 * 4 * 4 * 256)


def test_what_init_itself_recorded_of_forward_and_backward(tmp_path: Path) -> None:
    """``graphs.py run callables graphed``: autograd's thread made the nodes of the second graph.

    The capture is older than the record's lists of numbers, so that it does not say over which dimension an op sums;
    with the lists that PyTorch's profiler has, its FLOPs and bytes are those of the eager step, too.
    """
    eager, graphed = (flops_and_bytes(GOLDEN / "graphs" / f"h200_callables_{form}.sqlite.gz") for form in FORMS)
    file = GOLDEN / "graphs" / "h200_callables_early.sqlite.gz"
    table = load_table(str(file)).table
    unknown = (table.ints("step") == 2) & (annotate(table).flops == NULL)
    assert set(np.array(table.coded("aten").texts())[unknown]) == {"aten::sum"}
    assert (eager[0] - graphed[0], unknown.sum()) == (SUMS, 10)
    here = launched_by_graphs(table) & (table.ints("step") == 2)
    assert here.sum() == 20 + 72
    for key in ("op", "layer"):
        assert "" not in np.array(table.coded(key).texts())[here]
    assert flops_and_bytes(with_lists(file, tmp_path / "net.sqlite")) == eager


def with_lists(packed: Path, file: Path) -> Path:
    """The same report, in whose record each sum has its dimensions: the first one, and in attention the last."""
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    with sqlite3.connect(file) as db:
        rows = db.execute("SELECT id, value FROM StringIds WHERE value LIKE ?", (f"{CAPTURED_RANGE}_/%",)).fetchall()
        found = {number: part for number, text in rows if (part := piece(text)) is not None}
        record = joined(list(found.values()))
        assert record is not None and record.lists == ()
        sums = {text: "[-1]" if "[[4, 256" in text else "[0]" for text in record.texts if text.startswith("aten::sum,")}
        lists = tuple(("", sums[text], "", "") if text in sums else () for text in record.texts)
        (part,) = parts(msgspec.structs.replace(record, lists=lists))
        db.execute("UPDATE StringIds SET value = ? WHERE id = ?", (Piece(0, 1, part).text(), min(found)))
    db.close()
    return file


def test_a_capture_that_made_no_node_is_no_misfit(tmp_path: Path) -> None:
    """torch.compile's mode reduce-overhead captures an empty graph first; here, all nodes of the file are far away."""
    table = changed(tmp_path, "UPDATE CUDA_GRAPH_NODE_EVENTS SET start = start - 10000000000")
    assert set(np.array(table.coded("op").texts())[replayed(table)]) == {""}
    assert NOT_ALIGNED not in load_table(str(tmp_path / "net.sqlite")).warnings
