"""Bytes by kernel names (nsys) against bytes by recorded dtypes (Kineto) of the same program."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL
from tests.tables import parsed

# Kineto knows strides: the backward of a mean reads its gradient expanded, 1/49 of the elements that NVTX's shape has
BROADCAST = ("aten::div", "[[32,2048,7,7],[]]")
# Kineto lists a Python number as a 0-d tensor (8 bytes), and knows attention's dropout, whose state is 16 bytes
SMALL = 16


def _bytes(file: Path) -> tuple[dict[tuple[str, str], list[int]], float]:
    """(calls, bytes) of each aten op on each shapes, and the share of GPU time whose bytes are known."""
    table = parsed(file)
    found = annotate(table)
    ns, known = table.ints("kDuration"), found.bytes != NULL
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    columns = (table.coded("aten").texts(), table.coded("sizes").texts(), found.role.texts(), known.tolist())
    for i, (aten, sizes, role, told) in enumerate(zip(*columns, strict=True)):
        if aten and told and role == "main":
            one = sums[aten, sizes.replace(" ", "")]
            one[0], one[1] = one[0] + 1, one[1] + int(found.bytes[i])
    return sums, float(ns[known].sum() / np.maximum(1, ns.sum()))


@pytest.mark.parametrize(
    ("nsys", "kineto"),
    [("h200_gpt2_step", "h200_gpt2_bf16"), ("h200_resnet50_step_pytorch_flag", "h200_resnet50_bf16")],
)
def test_names_and_records_give_the_same_bytes(nsys: str, kineto: str, data: Path) -> None:
    by_name, share = _bytes(data / "nsys" / f"{nsys}.sqlite.gz")
    recorded, _ = _bytes(data / "kineto" / f"{kineto}.json.gz")
    both = by_name.keys() & recorded.keys() - {BROADCAST}
    other = {key: (by_name[key], recorded[key]) for key in both if by_name[key][0] != recorded[key][0]}
    far = {key: (by_name[key], recorded[key]) for key in both
           if abs(by_name[key][1] - recorded[key][1]) > SMALL * by_name[key][0]}  # fmt: skip
    assert (other, far) == ({}, {})
    assert len(both) > 50
    assert share > 0.97
