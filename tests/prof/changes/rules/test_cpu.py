"""Advice for captures of the CPU alone: threads, bf16, channels last, chains of element-wise ops, data loading."""

import gzip
import json

import pytest

from pyprof.prof.changes.effect.run import Run
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Table
from pyprof.table.cpu_facts import CpuFacts

from .advice_rows import changes_of, table

FACTS = CpuFacts(cores=8, threads=8, bf16="")


def cpu(*rows, facts=FACTS, gap=0):
    """The run of these CPU ops on this CPU."""
    made = table(*({"kind": "cpu", "gpu": "", **row} for row in rows), gap=gap)
    made = Table(made.rows, made.columns, cpu=facts)
    return Run(made, annotate(made))


def changes(*rows, facts=FACTS, gap=0):
    return {change.rule: change for change in changes_of(cpu(*rows, facts=facts, gap=gap))}


def op(name, ns, *sizes, dtype="float32", phase="forward", **more):
    """A CPU op on contiguous tensors."""
    strides = [[_product(shape[at + 1 :]) for at in range(len(shape))] for shape in sizes]
    return {
        "aten": f"aten::{name}", "op": [name], "sizes": list(sizes), "dtypes": [dtype] * len(sizes), "strides": strides,
        "kShortName": f"aten::{name}", "ns": ns, "phase": phase,
        "dir": "bprop" if phase == "backward" else "fprop", **more,
    }  # fmt: skip


def _product(numbers):
    found = 1
    for number in numbers:
        found *= number
    return found


MM = op("mm", 4_000_000, [512, 512], [512, 512])  # 0.27 GFLOP


def test_fewer_threads_than_cores():
    """2 threads of 8: 1 + (4 - 1) * 0.85 = 3.55 times as fast; 4 ms become 1.127."""
    change = changes(MM, facts=CpuFacts(cores=8, threads=2, bf16=""))["cpu_threads"]
    assert change.gpu_ms == pytest.approx(4 - 4 / 3.55, abs=1e-5)
    assert change.change.startswith("Use all cores: torch.set_num_threads(8)")
    assert "PyTorch used 2 threads on 8 cores" in change.why
    assert "cpu_threads" not in changes(MM)


def test_short_ops_do_not_ask_for_threads():
    short = op("mm", 90_000, [64, 64], [64, 64])
    one = CpuFacts(cores=8, threads=1, bf16="")
    assert changes(short, short, facts=one) == {}
    found = ["cpu_threads" in changes(short | {"ns": ns}, facts=one) for ns in (100_000, 100_001)]
    assert found == [False, True]  # "of more than 0.1 ms"


@pytest.mark.parametrize(("bf16", "saved"), [("avx512_bf16", 2.0), ("amx", 3.0)])
def test_products_in_bf16_where_the_cpu_has_them(bf16, saved):
    change = changes(MM, facts=CpuFacts(cores=8, threads=8, bf16=bf16))["cpu_bf16"]
    assert change.gpu_ms == change.saved_ms == saved  # of 4 ms a half, or a quarter, remains


def test_products_that_took_no_time_are_not_advised_on():
    assert "cpu_bf16" not in changes({**MM, "ns": 0}, facts=CpuFacts(cores=8, threads=8, bf16="amx"))


@pytest.mark.parametrize(("bf16", "saved"), [("avx512_bf16", 2.0 + 2.0), ("amx", 3.0 - 0.5625 + 2.0)])
def test_elementwise_ops_become_narrow_and_operands_are_converted(bf16, saved):
    """Three negations of 8 MiB in 1 ms each save a half, exp, which takes 9 ms, a half of the 1 ms for its bytes.

    mm's operands and result are 3 MiB: 4.5 MiB of conversions take 0.5625 ms. The optimizer's op stays as it is.
    """
    negations = [op("neg", 1_000_000, [1024, 1024]) for _ in range(3)]
    stays = op("neg", 1_000_000, [1024, 1024], phase="optimizer")
    rows = MM, *negations, op("exp", 9_000_000, [1024, 1024]), stays
    change = changes(*rows, facts=CpuFacts(cores=8, threads=8, bf16=bf16))["cpu_bf16"]
    assert change.gpu_ms == pytest.approx(saved, abs=1e-4)
    assert "4 element-wise ops (12 ms) get narrow, too" in change.why


def test_bf16_is_not_advised_without_the_instructions_or_where_it_is_used():
    facts = CpuFacts(cores=8, threads=8, bf16="avx512_bf16")
    narrow = op("mm", 1_000_000, [512, 512], [512, 512], dtype="bfloat16")
    assert "cpu_bf16" not in changes(MM)
    assert "cpu_bf16" not in changes(MM, narrow, facts=facts)


def test_nothing_is_said_of_an_unknown_cpu():
    assert changes(MM, facts=None) == {}


CONV = op("mkldnn_convolution", 10_000_000, [4, 64, 56, 56], [64, 64, 3, 3])


def test_convolutions_in_bf16_where_the_cpu_has_them():
    change = changes(CONV, facts=CpuFacts(cores=8, threads=8, bf16="avx512_bf16"))["cpu_bf16"]
    assert change.gpu_ms == 5.0  # half of 10 ms


def test_forward_convolutions_and_norms_in_nchw():
    """Of the convolution's 10 ms 0.75 remain, of one over an image's 3 channels 0.55, of the norm's 4 ms a half."""
    image = op("mkldnn_convolution", 10_000_000, [4, 3, 112, 112], [64, 3, 7, 7])
    norm = op("native_batch_norm", 4_000_000, [4, 64, 56, 56], [64], [64])
    backward = op(
        "convolution_backward", 20_000_000, [4, 64, 56, 56], [4, 64, 56, 56], [64, 64, 3, 3], phase="backward"
    )
    change = changes(CONV, image, norm, backward)["cpu_channels_last"]
    assert change.gpu_ms == pytest.approx(2.5 + 4.5 + 2.0, abs=1e-5)


@pytest.mark.parametrize("norm", ["group_norm", "instance_norm"])
def test_norms_that_take_nchw_keep_it(norm):
    row = op(f"native_{norm}", 1_000_000, [4, 64, 56, 56]) | {"op": [norm]}
    assert "cpu_channels_last" in changes(CONV) and "cpu_channels_last" not in changes(CONV, row)


def test_pooling_in_nchw_counts_forward_and_backward():
    """5 ms of a max pool become 0.25, 0.6 of its backward pass 0.27; the convolution's 10 ms 7.5."""
    pool = op("max_pool2d_with_indices", 5_000_000, [4, 64, 56, 56])
    back = op("max_pool2d_with_indices_backward", 600_000, [4, 64, 28, 28], [4, 64, 56, 56], phase="backward")
    change = changes(CONV, pool, back)["cpu_channels_last"]
    assert change.gpu_ms == pytest.approx(2.5 + 4.75 + 0.33, abs=1e-5)
    assert "Read in NCHW: 1 convolution, 2 pooling ops, 15.6 ms; channels last 8.02 ms" in change.why


def test_images_that_are_channels_last_already():
    last = CONV | {"strides": [[64 * 56 * 56, 1, 56 * 64, 64], [576, 9, 3, 1]]}
    assert changes(last) == {}


def test_a_chain_of_elementwise_ops():
    """Each op moves 2 * 4 MiB in 1 ms. In one pass 8 MiB remain: 1 of 4 ms."""
    ops = [op("mul", 1_000_000, [1024, 1024], []), *(op("neg", 1_000_000, [1024, 1024]) for _ in range(3))]
    change = changes(*ops)["cpu_fusion"]
    assert change.gpu_ms == pytest.approx(3.0, rel=0.02)
    assert change.kernels == 4


def test_copies_of_numbers_end_no_chain():
    """As y * 0.5 + 1.5 and so on: each number is copied to a tensor first. 3 of 4 ms, as without the copies."""
    number = op("copy_", 4_000, [], [])
    ops = [op("mul", 1_000_000, [1024, 1024], []), *(op("neg", 1_000_000, [1024, 1024]) for _ in range(3))]
    change = changes(number, *(each for one in ops for each in (one, number)))["cpu_fusion"]
    assert change.gpu_ms == pytest.approx(3.0, rel=0.02)
    assert change.kernels == 4
    vector = op("copy_", 4_000, [2], [2])
    assert "cpu_fusion" not in changes(*(each for one in ops for each in (one, vector)))


def test_what_exp_takes_beyond_its_bytes_stays():
    """exp takes 9 ms, of which 1 ms would do for its bytes: of 12 ms, 1 ms for the bytes and 8 ms remain."""
    plain = [op("neg", 1_000_000, [1024, 1024]) for _ in range(3)]
    change = changes(*plain, op("exp", 9_000_000, [1024, 1024]))["cpu_fusion"]
    assert change.gpu_ms == pytest.approx(3.0, rel=0.02)


def test_a_step_that_waits_for_its_data():
    """Two stacks of 1 ms and a pause of 3 ms before the last, beside 10 ms. With all of 8 cores in use, 1/8 remains."""
    stack = op("cat", 1_000_000, [64, 3, 32, 32], phase="data")
    rows = [stack, MM | {"ns": 10_000_000}, stack | {"start": 14_000_000}]
    assert changes(*rows)["cpu_data_loader"].saved_ms == pytest.approx(5 * 7 / 8, abs=1e-5)
    free = CpuFacts(cores=8, threads=4, bf16="")
    assert changes(*rows, facts=free)["cpu_data_loader"].saved_ms == pytest.approx(5.0, abs=1e-5)
    assert "cpu_data_loader" not in changes(*rows, facts=CpuFacts(cores=1, threads=1, bf16=""))


def trace(tmp_path, own):
    """A trace with one op on the CPU, and this under its key pyprof."""
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 4000, "args": {}}]
    file = tmp_path / "net.json.gz"
    with gzip.open(file, "wt", encoding="utf-8") as text:
        json.dump({"pyprof": own, "traceEvents": events}, text)
    return file


def test_the_cpu_comes_from_the_trace_and_stays_in_parquet(tmp_path):
    from pyprof.table.parquet import read_parquet, write_parquet

    facts = {"cores": 8, "threads": 2, "bf16": "amx"}
    found = load_table(trace(tmp_path, {"cpu": {"version": 1, "facts": facts}}), str)
    assert found.table.cpu == CpuFacts(8, 2, "amx")
    write_parquet(found.table, tmp_path / "net.parquet")
    assert read_parquet(tmp_path / "net.parquet").cpu == CpuFacts(8, 2, "amx")


@pytest.mark.parametrize(
    ("own", "warning"),
    [
        ({"version": 2}, "the record of the CPU has version 2, not 1"),
        (
            {"version": 1, "facts": {"cores": 0, "threads": 1, "bf16": ""}},
            "what was recorded of the CPU cannot be read",
        ),
    ],
)
def test_a_record_that_cannot_be_read_is_left_out(tmp_path, own, warning):
    found = load_table(trace(tmp_path, {"cpu": own}), str)
    assert found.table.cpu is None
    assert any(warning in text for text in found.warnings)


def test_this_cpu_is_recorded():
    torch = pytest.importorskip("torch")
    import os
    from pathlib import Path

    from pyprof.cpu_record import cpu_record

    facts = cpu_record()["facts"]
    assert facts["threads"] == torch.get_num_threads()
    assert facts["cores"] == len(os.sched_getaffinity(0))
    flags = Path("/proc/cpuinfo").read_text(encoding="ascii").split()
    assert facts["bf16"] == ("amx" if "amx_tile" in flags else "avx512_bf16" if "avx512_bf16" in flags else "")
