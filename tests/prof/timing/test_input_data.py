"""Which copies bring a batch."""

from pathlib import Path

import pytest

from pyprof.prof.load import load_table
from pyprof.prof.timing.input_data import input_data
from pyprof.prof.timing.waiting import waits
from tests.prof.changes.rules.advice_rows import table


def copies(*sizes, **more):
    return [
        {"kShortName": "Memcpy HtoD", "kind": "memcpy", "ns": 5, "phase": "data", "bytes": size} | more
        for size in sizes
    ]


def kernel(phase):
    return {"kShortName": "k", "ns": 5, "phase": phase}


TRAINING, SERVER = kernel("backward"), kernel("forward")
ROWS = {  # rows -> which bring a batch
    "training: more than single values": ([*copies(64), TRAINING, *copies(65), TRAINING], [0, 0, 1, 0]),
    "training: several copies are one batch": ([*copies(8, 57), TRAINING, *copies(8, 56)], [1, 1, 0, 0, 0]),
    "training: an unknown size": ([*copies(None, 8), TRAINING, *copies(8)], [1, 1, 0, 0]),
    "a server: lists of requests": ([*copies(256), SERVER, *copies(2048, 7104), SERVER], [0, 0, 0, 0, 0]),
    "a server: images": ([*copies(65_535), SERVER, *copies(65_535, 1), SERVER, *copies(65_536)], [0, 0, 1, 1, 0, 1]),
    "a server: an unknown size": ([*copies(None), SERVER], [0, 0]),
    "a server: what a DataLoader computes": ([kernel("data"), *copies(256), SERVER], [1, 1, 0]),
    "two GPUs have a batch each": ([*copies(65_535), *copies(65_535, device=1)], [0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("why", ROWS)
def test_the_rows_of_a_batch(why):
    rows, expected = ROWS[why]
    assert input_data(table(*rows)).astype(int).tolist() == expected


def test_a_server_that_waits_before_256_bytes_has_no_late_input_data(data: Path):
    """vLLM: one copy of 256 bytes, after 56.138 ms in which nothing was launched."""
    found = waits(load_table(data / "round2" / "tracelens_vllm_capture.json.gz").table).causes
    name, _, ns = found[0]
    assert name == "host" and ns > 56_138_000
    assert "data" not in [name for name, _, _ in found]
