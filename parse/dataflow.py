"""The shapes of intermediates, from who consumes them.

With record_shapes PyTorch writes `input_op_ids = [(producer, output), ...]` beside the sizes of an op's inputs: the
size of input i is the shape of output `output` of op `producer`. NVTX ranges carry no strides, paddings or outputs, so
this is how a convolution's output is known.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.parse.capture import Ranges
from pyprof.parse.database import Database
from pyprof.parse.scope import Kind, Scope
from pyprof.table import NULL

# Ops whose output shape their inputs' shapes do not tell.
NEEDED = frozenset(
    f"aten::{op}"
    for op in (
        "conv1d conv2d conv3d convolution _convolution cudnn_convolution miopen_convolution mkldnn_convolution"
        " conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution_transpose max_pool2d"
        " max_pool2d_with_indices avg_pool2d max_pool3d_with_indices avg_pool3d sum mean amax amin max min argmax"
        " cat stack index upsample_nearest2d upsample_bilinear2d _adaptive_avg_pool2d adaptive_avg_pool2d"
    ).split()
)
_LINKS = re.compile(r"\((\d+),(-?\d+)\)")
_SIZES = re.compile(r"\[[\d, ]*\]")


def output_shapes(db: Database, ranges: Ranges, scopes: list[Scope], tids: list[int]) -> dict[int, str]:
    """Range index -> JSON list with the shape of the range's first output, where a later op consumed it.

    ``tids`` are the globalTids of the threads' numbers. Read in a pass of its own, and only where the capture has ops
    that need it: the links differ from call to call, and keeping them would cost more than the rest of the capture.
    """
    codes = [code for code, scope in enumerate(scopes) if scope.kind == Kind.OP and scope.name in NEEDED]
    producers = np.flatnonzero(np.isin(ranges.scope, codes) & (ranges.op_id != NULL))
    pids = [(tid >> 24) & 0xFFFFFF for tid in tids]
    wanted = {(pids[int(ranges.thread[i])], int(ranges.op_id[i])): int(i) for i in producers.tolist()}
    outs: dict[int, str] = {}
    if not wanted:
        return outs
    query = "SELECT globalTid, text FROM NVTX_EVENTS WHERE instr(text, ', input_op_ids = ') ORDER BY rowid"
    for tid, text in db.connection.execute(query):
        head, _, links = text.partition(", input_op_ids = ")
        pid = (tid >> 24) & 0xFFFFFF
        for position, (producer, output) in enumerate(_LINKS.findall(links)):
            index = wanted.get((pid, int(producer))) if output == "0" else None
            if index is not None and index not in outs:
                shape = _shape(head, position)
                if shape:
                    outs[index] = f"[{shape}]"
    return outs


def _shape(head: str, position: int) -> str:
    """The shape of input ``position`` in a range text's `sizes = [[..], ..]`, empty where it is cut or none."""
    sizes = _SIZES.findall(head.partition(", sizes = [")[2])
    return sizes[position] if position < len(sizes) and sizes[position] != "[]" else ""
