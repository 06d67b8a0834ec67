"""Small tables and pages of them, for the tests of the web page."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.prof.report.page_model import page_model
from pyprof.prof.report.render import render
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.table.columns import NULL, Coded, Table
from pyprof.table.netdict import write_netdict

# name, op, phase, dir, start, duration, step, stream
ROWS = (
    ("k_fwd", '["relu"]', "forward", "fprop", 100, 10, 0, 7),
    ("copy", "", "other", "", 105, 10, 0, 8),  # beside forward and backward
    ("k_bwd", '["relu"]', "backward", "bprop", 110, 20, 0, 7),
    ("k_opt", '["SGD.step"]', "optimizer", "", 140, 10, 0, 7),
    ("k_fwd", '["relu"]', "forward", "fprop", 160, 14, 1, 7),
)
HOSTILE = "</script><img src=x onerror=window.pwned=1>\u2028<!--<script>'\"&{{7*7}}"


def small(rows: tuple[tuple[Any, ...], ...] = ROWS, **more: Any) -> Table:
    name, op, phase, direction, start, duration, step, stream = zip(*rows, strict=True)
    ints = {"start": start, "kDuration": duration, "step": step, "stream": stream}
    texts = {"kShortName": name, "op": op, "phase": phase, "dir": direction}
    kind = ["memcpy" if n == "copy" else "kernel" for n in name]
    return Table(
        len(rows),
        {
            **{key: np.array(values, np.int64) for key, values in ints.items()},
            **{key: Coded.of(values) for key, values in texts.items()},
            "kind": Coded.of(kind),
            **more,
        },
    )


def write_small(file: Path) -> None:
    with file.open("wb") as out:
        write_netdict(small(), out)


def model_of(table: Table, title: str = "", **more: Any) -> dict[str, Any]:
    """``more`` replaces parts of the model."""
    return {**page_model(table, annotate(table), title=title), **more}


def uncounted(rows: int) -> Annotation:
    unknown, text = np.full(rows, NULL, np.int64), Coded.empty(rows)
    return Annotation(unknown, unknown, text, text, text, text, {})


def page_of(table: Table, **more: Any) -> str:
    out = io.BytesIO()
    render(model_of(table, **more), out)
    return out.getvalue().decode()
