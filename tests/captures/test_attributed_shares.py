"""How much of real captures is counted."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL
from tests.captures.test_sums_over_kernels import check_sums
from tests.paths import ROOT
from tests.tables import parsed

RECOMMENDER = "__control__control_"  # 2022, A100: FBGEMM's tables, apex's Adam, no list of tensors recorded
# FLOPs known, bytes known, in % of GPU time: at least
EAGER = [
    "h200_gpt2_bf16", "h200_resnet50_bf16", "h200_lenet_fp32", "h200_tutorial_encoder", "h200_infer_fp8",
    "h200x2_gpt2_ddp_rank0", "h200x2_gpt2_ddp_rank1", "h100__gaunernst_bert", "mi300__gaunernst_bert", "h100__Qwen",
    RECOMMENDER,
]  # fmt: skip
REDUCE = ("nccl:all_reduce", "[[45310188]]")
COMPILED = ["h200_gpt2_compiled", "torch_compile_triton", "triton_example", "b200__eager_trace"]


def find(folder: Path, part: str) -> Path:
    (found,) = (path for path in folder.iterdir() if part in path.name and "MACOSX" not in path.name)
    return found


@pytest.mark.parametrize(("part", "least"), [*((name, 99) for name in EAGER), *((name, 95) for name in COMPILED)])
def test_traces_are_counted(part: str, least: int, data: Path) -> None:
    table = parsed(find(data / "kineto", part))
    notes, ns = annotate(table), table.ints("kDuration")
    for known in (notes.flops != NULL, notes.bytes != NULL):
        assert 100 * ns[known].sum() / ns.sum() >= least


def test_a_collective_without_shapes_has_its_annotations(data: Path) -> None:
    """2022: the record of an all-reduce has no sizes; its annotation says [45310188] floats, read and written."""
    table = parsed(find(data / "kineto", RECOMMENDER))
    notes, aten, sizes = annotate(table), table.coded("aten").texts(), table.coded("sizes").texts()
    reduces = [i for i, (op, size) in enumerate(zip(aten, sizes, strict=True)) if (op, size) == REDUCE]
    assert reduces
    assert {(int(notes.flops[i]), int(notes.bytes[i])) for i in reduces} == {(0, 2 * 4 * 45_310_188)}


@pytest.mark.parametrize(
    ("part", "sizes"),  # "Input Dims" of the annotations nccl:all_reduce in the file, all float
    [("hta_negative_queue_rank0", [366_336, 447_923_396]), ("param_dlrm_adagrad", [112, 226_960])],
)
def test_an_all_reduce_whose_record_lists_no_sizes_has_its_annotations(part: str, sizes: list[int], data: Path) -> None:
    """2023: the record in ``c10d::allreduce_`` has a TensorList without sizes, the annotation within it has them."""
    table = parsed(find(data / "round2", part))
    notes, nodes = annotate(table), table.coded("nodes").texts()
    rows = [i for i, names in enumerate(nodes) if "c10d::allreduce_" in names]
    assert len(rows) in (3, 10)  # 10 annotations in one file, 3 in the other
    assert set(sizes) <= {int(nbytes) // 8 for nbytes in notes.bytes[rows]}  # read and written, 4 bytes each
    assert min(notes.bytes[rows]) > 0


def test_collectives_whose_results_have_another_size_have_those_of_their_op(data: Path) -> None:
    """The file's ops ``c10d::alltoall_base_``: [6144] and [6144] float, [24] and [24] int64, [384] and [384] int,
    [13312] out and [3392] in, int. The record and the annotation in them have the inputs alone."""
    table = parsed(find(data / "round2", "param_dlrm_adagrad"))
    notes, aten = annotate(table), table.coded("aten").texts()
    rows = [i for i, name in enumerate(aten) if name == "c10d::alltoall_base_"]
    assert len(rows) == 5
    assert {int(n) for n in notes.bytes[rows]} == {2 * 4 * 6144, 2 * 8 * 24, 2 * 4 * 384, 4 * (13_312 + 3392)}
    ns = table.ints("kDuration")
    assert ns[notes.bytes != NULL].sum() / ns.sum() > 0.99  # 27% without the collectives


def test_a_recommenders_tables_and_optimizer(data: Path) -> None:
    """The first step's, worked by hand, and that no kernel reads faster than from an A100's L2 cache.

    122 tables, 8192 bags each, total_D 8720, N = 15,807,216 indices: a mean width of 8720 / 122. Forward (N - 999,424)
    times that; 4 N times that and 8 N bytes read, 4 * 8192 * 8720 written. One table of 96, weighted, 61,072 indices:
    (61,072 - 8192 + 61,072) * 96. Adam: 13 for each of 50,009,351 parameters, all gradients' but two scalars'.
    """
    table = parsed(find(data / "kineto", RECOMMENDER))
    notes, name, long = annotate(table), table.coded("kShortName").texts(), table.coded("kLongName").texts()
    order = np.argsort(table.ints("start"), kind="stable").tolist()
    first = {kernel: next(i for i in order if kernel in name[i]) for kernel in
             ("codegen_forward_unweighted", "codegen_forward_weighted")}  # fmt: skip
    flops, nbytes = notes.flops[list(first.values())].tolist(), notes.bytes[list(first.values())].tolist()
    assert flops == [1_058_393_002, 10_939_392]
    assert nbytes == [4_519_308_968 + 126_457_728 + 285_736_960, 61_072 * (384 + 8 + 4) + 8192 * 384]
    adam = [i for i in order if "AdamFunctor" in long[i]]
    assert notes.flops[adam].sum() == 6 * 13 * 50_009_351
    rate = notes.bytes / np.maximum(table.ints("kDuration"), 1)  # bytes a ns, or GB/s; times are whole microseconds
    assert rate[table.ints("kDuration") > 20_000].max() < 2100
    assert check_sums(table, notes) > 1000


def test_the_pages_tables_are_up_to_date(data: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "capture_tables.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_convolutions_without_stride_have_flops_by_their_gradients(data: Path) -> None:
    """A trace of 2021 has no strides. ResNet-50's products are 8,178,368,512 FLOPs for each of 32 images, of which
    2 * 2048 * 1000 are no convolution (docs/explanation/accuracy.md); each of six steps has them."""
    table = parsed(find(data / "round2", "kineto_v100_workers0"))
    aten, way = table.coded("aten"), table.coded("dir")
    rows = aten.among("aten::cudnn_convolution") & way.among("fprop")
    assert annotate(table).flops[rows].sum() == 6 * 32 * (8_178_368_512 - 2 * 2048 * 1000)
