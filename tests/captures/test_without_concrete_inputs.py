"""Traces before PyTorch 2.1 have no "Concrete Inputs": what the arguments' values decide, comes from the backward.

The reference is the same capture with these values, whose counts the hardware's counters confirm.
"""

import gzip
import json

import numpy as np
import pytest

from pyprof.prof.captured import read_capture
from pyprof.table.columns import NULL
from tests.paths import GOLDEN

# sum and mean of one dimension and of all have different numbers of arguments, but nothing says which dimension it is
SIZED = ("conv", "pool", "::sum", "::mean")


@pytest.fixture(scope="module", params=["h200_resnet50_bf16", "h200_lenet_fp32"])
def both(request, tmp_path_factory):
    whole = GOLDEN / f"{request.param}.json.gz"
    trace = json.loads(gzip.decompress(whole.read_bytes()))
    for event in trace["traceEvents"]:
        event.get("args", {}).pop("Concrete Inputs", None)
    bare = tmp_path_factory.mktemp("bare") / "bare.json"
    bare.write_text(json.dumps(trace))
    return read_capture([whole]), read_capture([bare])


def test_convolutions_pools_and_sums_count_the_same(both):
    whole, bare = both
    op = whole.table.coded("aten")
    rows = np.flatnonzero(op.where(lambda name: any(part in name for part in SIZED)))
    assert len(rows) > 5
    assert bare.annotation.flops[rows].tolist() == whole.annotation.flops[rows].tolist()
    assert bare.annotation.bytes[rows].tolist() == whole.annotation.bytes[rows].tolist()


def test_all_flops_are_known(both):
    _, bare = both
    assert (bare.annotation.flops != NULL).all()
