"""The inference server's batch that each call of attention is part of: the lengths of its requests, and the cache.

Only calls whose model counts by the batch get one, so that other ops with the same shapes are counted once for all.
"""

import json
import re

import numpy as np

from pyprof.prof.ops.evaluation import find, takes_batch
from pyprof.prof.ops.paged_attention import CACHE_PLACES, Batch
from pyprof.serving_range import serving_range
from pyprof.table.columns import Bools, Coded, Ints, Table, distinct

WINDOWED = re.compile(r"SlidingOrChunked")  # TensorRT-LLM's fmhaSm100aKernel; other kernels' names alone do not tell
# AITER's unified_attention, and vLLM's on AMD's GPUs, choose between two kernels by what all layers of a batch have in
# common, and by whether there is a sliding window (use_2d_kernel). So where both run, those of the first have windows.
BY_WINDOW = (re.compile(r"kernel_unified_attention_2d"), re.compile(r"kernel_unified_attention_3d"))


def batches_of_calls(table: Table, names: Coded, number: Ints) -> tuple[Ints, list[Batch | None]]:
    """The batches, and each row's index into them; None is the first, for calls that do not count by one.

    ``names`` of the kernels; ``number`` of each row's call.
    """
    counted = table.coded("aten").where(_counts_by_batch)
    rows = np.flatnonzero(counted)
    code = np.zeros(len(table), np.int64)
    if not len(rows):
        return code, [None]
    serving, dtype = table.coded("serving"), cache_dtype(table)
    windowed = np.zeros(int(number.max(initial=0)) + 1, bool)
    windowed[number[counted & (names.where(WINDOWED.search) | _beside_whole(table, names, serving))]] = True
    keys, place = distinct(serving.codes[rows], windowed[number[rows]])
    found = [Batch(serving_range([*serving.values, ""][text]), dtype, bool(window)) for text, window in keys]
    code[rows] = place + 1
    return code, [None, *found]


def _beside_whole(table: Table, names: Coded, serving: Coded) -> Bools:
    """The rows of kernels that only layers with a window run, since layers of the same sizes run another one."""
    first, second = (names.where(pattern.search) for pattern in BY_WINDOW)
    rows = np.flatnonzero(first | second)
    found = np.zeros(len(table), bool)
    step = table.ints("step") if "step" in table.columns else serving.codes
    columns = (step, serving.codes, *(table.coded(key).codes for key in ("aten", "sizes", "dtypes")))
    _, place = distinct(*(column[rows] for column in columns))
    both = np.zeros(int(place.max(initial=-1)) + 1, bool)
    both[place[second[rows]]] = True
    found[rows] = first[rows] & both[place]
    return found


def _counts_by_batch(aten: str) -> bool:
    model = find(aten) if aten else None
    return model is not None and takes_batch(model)


def cache_dtype(table: Table) -> str:
    """The dtype of the cached keys, from the ops that write them; empty if there are none, or several dtypes."""
    aten, dtypes = table.coded("aten"), table.coded("dtypes")
    rows = np.flatnonzero(aten.where(lambda op: bool(op) and find(op) in CACHE_PLACES))
    pairs, _ = distinct(aten.codes[rows], dtypes.codes[rows])
    found = set()
    for op, code in pairs:
        listed = json.loads(dtypes.values[code]) if code >= 0 else []
        place = CACHE_PLACES[find(aten.values[op]) or ""]
        found.add(listed[place] if place < len(listed) and isinstance(listed[place], str) else "")
    return found.pop() if len(found) == 1 else ""
