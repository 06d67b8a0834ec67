"""The calls of the page's model: the fields that are the same in every step, stored once."""

from typing import Any

import numpy as np

from pyprof.prof.limits.roofline import Roofline
from pyprof.prof.table.params import params
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import classes, kinds
from pyprof.table.columns import NULL, Coded, Ints, Table, distinct, known
from pyprof.table.schema import list_texts

# Texts of a call: key in the model -> the table's column.
TEXTS = {"name": "kShortName", "long": "kLongName"}
TEXTS |= {key: key for key in "aten phase dir kind sizes dtypes args reason grid block api".split()}
LISTS = {  # key in the model -> the table's column, and the separator of its items
    "op": ("op", "."),
    "layer": ("layer", "\x1f"),
    "trace": ("trace", "\n"),
    "functions": ("functions", "\n"),
}


def call_columns(table: Table, annotation: Annotation, limits: Roofline) -> tuple[dict[str, Any], Ints]:
    """Columns with one entry per distinct call, and the number of each row's call."""
    texts = _texts(table, annotation, limits)
    numbers = {
        "flops": annotation.flops,
        "bytes": annotation.bytes,
        "sol_ns": _whole(limits.sol_ns),
        "device": np.where(limits.device < 0, NULL, limits.device),
        **_measured(annotation),
    }
    keys, call = distinct(*(column.codes for column in texts.values()), *numbers.values())
    columns = [list(column) for column in zip(*keys, strict=True)] or [[] for _ in (*texts, *numbers)]
    pairs = zip(texts.items(), columns, strict=False)
    coded = {key: {"values": column.values, "codes": codes} for (key, column), codes in pairs}
    plain = dict(zip(numbers, ([known(v) for v in column] for column in columns[len(texts) :]), strict=True))
    return {"texts": coded, "numbers": plain}, call


def _texts(table: Table, annotation: Annotation, limits: Roofline) -> dict[str, Coded]:
    return {
        **{key: table.coded(column) for key, column in TEXTS.items()},
        **{key: _joined(table.coded(column), by) for key, (column, by) in LISTS.items()},
        "params": params(table),
        "work": kinds(table, annotation),
        "class": classes(table, annotation),
        "family": annotation.family,
        "role": annotation.role,
        "tc": annotation.tc,
        "tcprec": annotation.tcprec,
        "unit": limits.unit,
        "bound": limits.bound,
    }


def _measured(annotation: Annotation) -> dict[str, Ints]:
    """FLOPs executed and DRAM bytes, where a report of Nsight Compute was joined."""
    counters = annotation.counters
    return {} if counters is None else {name: counters.whole(name) for name in ("exec_flops", "dram")}


def _joined(column: Coded, by: str) -> Coded:
    return Coded(column.codes, [by.join(list_texts(text)) for text in column.values])


def _whole(values: np.ndarray[Any, np.dtype[np.float64]]) -> Ints:
    finite = np.isfinite(values) & (np.abs(values) < 2**62)
    return np.where(finite, np.rint(np.where(finite, values, 0)), NULL).astype(np.int64)
