"""The traces of a made-up job, in which each rank's delays are known.

Each step has layers of 1 ms forward and backward, an all-reduce of all ranks (0.5 ms once the last one has come) and an
optimizer of 1 ms. The host launches each kernel 20 µs before it starts, so that what delays the host delays the GPU.
"""

from pathlib import Path
from typing import NamedTuple

from tests.parse.kineto.kineto_file import Event, begin, call, kernel, op, write, x

LAYERS, LAYER_US, MOVING_US, STEPS = 4, 1000.0, 500.0, 3
BYTES = 1 << 20
CODE = "train.py(12): step"


class Rank(NamedTuple):
    """How one rank differs from the others, in µs per step."""

    pause: float = 0.0  # of the host before the first layer
    layers: int = LAYERS
    longer: float = 0.0  # of each layer's kernel


def write_job(folder: Path, ranks: list[Rank], names: str = "rank{}.json", recorded: bool = True) -> list[Path]:
    """A trace per rank; without ``recorded`` the traces do not say which rank they are."""
    events: list[list[Event]] = [[begin(0)] for _ in ranks]
    clock = [100.0] * len(ranks)
    corr = 0
    for step in range(STEPS):
        begun = list(clock)
        for number, rank in enumerate(ranks):
            clock[number] += rank.pause
            for layer in range(2 * rank.layers):
                corr += 1
                took = LAYER_US + rank.longer
                clock[number] += 20
                events[number] += _launched(f"aten::mm{layer % 2}", clock[number], took, corr)
                clock[number] += took
        together = max(clock) + 20 + MOVING_US
        for number in range(len(ranks)):
            corr += 1
            events[number] += _reduced(clock[number] + 20, together, corr, len(ranks))
            corr += 1
            events[number] += _launched("aten::add_", together + 20, LAYER_US, corr)
            clock[number] = together + 20 + LAYER_US
            events[number].append(
                x("user_annotation", f"ProfilerStep#{step}", begun[number], clock[number] - begun[number])
            )
    files = []
    for number, own in enumerate(events):
        header = {"distributedInfo": {"rank": number, "world_size": len(ranks)}} if recorded else {}
        files.append(write(folder / names.format(number), *own, **header))
    return files


def _launched(name: str, start: float, took: float, corr: int) -> list[Event]:
    return [op(name, start - 20, 10), call(start - 18, corr), kernel(start, took, corr, "gemm_kernel")]


def _reduced(start: float, end: float, corr: int, ranks: int) -> list[Event]:
    meta = {"Collective_name": "allreduce", "In_msg_nelems": BYTES // 4, "Out_msg_nelems": BYTES // 4}
    meta |= {"Group_size": ranks, "dtype": "Float", "Process_Group_Name": "0"}
    record = op("record_param_comms", start - 20, 10, **meta)
    return [record, call(start - 18, corr), kernel(start, end - start, corr, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")]
