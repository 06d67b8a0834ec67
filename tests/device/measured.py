"""What the two profilers say of the suite's kernels, case by case, joined.

Both see the cases between marker kernels, in launch order. Within a case a kernel is matched by order and name; a
kernel that only one profiler saw is kept, so that nothing disappears unseen.
"""

import csv
import ctypes
import ctypes.util
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from pyprof.parse.detect import reader
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL

MARKER = "spin_kernel"
OPS = {"bf16": "sm__ops_path_tensor_src_bf16_dst_fp32", "fp16": "sm__ops_path_tensor_src_fp16",
       "fp64": "sm__ops_path_tensor_src_fp64", "fp8": "sm__ops_path_tensor_src_fp8",
       "int1": "sm__ops_path_tensor_src_int1", "int8": "sm__ops_path_tensor_src_int8",
       "tf32": "sm__ops_path_tensor_src_tf32_dst_fp32"}  # fmt: skip


@dataclass
class Kernel:
    """``ours``: what pyprof says; ``seen``: what the hardware counted."""

    case: str
    name: str
    ours: dict[str, str] = field(default_factory=dict)
    flops: int | None = None
    bytes: int | None = None
    seen: dict[str, int] = field(default_factory=dict)  # precision -> tensor operations executed
    read: int | None = None
    write: int | None = None
    ns: int | None = None


def kernels(folder: Path) -> list[Kernel]:
    """The kernels of every case that both profilers saw."""
    traced, counted = _traced(folder), {}
    for file in sorted(folder.glob("*.csv")):
        counted.update(_counted(file))
    return [kernel for case, rows in traced.items() if case in counted for kernel in _joined(rows, counted[case])]


def checks(folder: Path) -> dict[str, str]:
    checks: dict[str, str] = json.loads((folder / "trace.cases.json").read_text())["checks"]
    return checks


def _traced(folder: Path) -> dict[str, list[Kernel]]:
    file = folder / "trace.json.gz"
    table = correlate(reader(file)(file))
    found = annotate(table)
    short, long, kind = (table.coded(key).texts() for key in ("kShortName", "kLongName", "kind"))
    columns = {key: getattr(found, key).texts() for key in ("tc", "tcprec", "role", "family")}
    columns |= {key: table.coded(key).texts() for key in ("aten", "sizes", "dtypes", "kind")}
    launched = sorted(range(len(table)), key=lambda row: int(table.ints("corr")[row]))
    rows = [
        Kernel(
            "",
            readable(long[i] or short[i]),
            {key: texts[i] for key, texts in columns.items()},
            _known(found.flops[i]),
            _known(found.bytes[i]),
        )
        for i in launched
        if kind[i] in ("kernel", "memset", "memcpy")
    ]
    return _cases(rows, file.parent / "trace.cases.json")


def _known(amount: int) -> int | None:
    return None if amount == NULL else int(amount)


def _counted(file: Path) -> dict[str, list[Kernel]]:
    with file.open(newline="") as lines:
        header, _, *body = csv.reader(line for line in lines if line.startswith('"'))
    rows = [_row(dict(zip(header, row, strict=True))) for row in body]
    return _cases(rows, file.with_suffix("").with_suffix(".cases.json"))


def _row(cells: dict[str, str]) -> Kernel:
    def number(metric: str) -> int:
        return int(float(cells.get(f"{metric}.sum", "0").replace(",", "")))  # tensor operations may not be measured

    seen = {word: count for word, metric in OPS.items() if (count := number(metric))}
    return Kernel("", readable(cells["Kernel Name"]), seen=seen, read=number("dram__bytes_read"),
                  write=number("dram__bytes_write"), ns=number("gpu__time_duration"))  # fmt: skip


def _cases(rows: Sequence[Kernel], names: Path) -> dict[str, list[Kernel]]:
    """What stands between the first and second marker is the first case's, and so on."""
    ran = json.loads(names.read_text())["ran"]
    cases: dict[str, list[Kernel]] = {}
    inside = False
    for row in rows:
        if MARKER in row.name:
            inside = not inside
            if inside:
                cases[ran[len(cases)]] = []
        elif inside:
            row.case = ran[len(cases) - 1]
            cases[row.case].append(row)
    assert list(cases) == ran, f"{names}: {len(ran)} cases, {len(cases)} pairs of markers"
    return cases


def _joined(ours: Sequence[Kernel], seen: Sequence[Kernel]) -> Iterator[Kernel]:
    """By order and name: the longest common subsequences of names stand together."""
    match = SequenceMatcher(None, [k.name for k in ours], [k.name for k in seen], autojunk=False)
    for what, a, b, c, d in match.get_opcodes():
        if what == "equal":
            yield from (_both(x, y) for x, y in zip(ours[a:b], seen[c:d], strict=True))
        else:
            yield from ours[a:b]
            yield from seen[c:d]


def _both(ours: Kernel, seen: Kernel) -> Kernel:
    return Kernel(ours.case, ours.name, ours.ours, ours.flops, ours.bytes, seen.seen, seen.read, seen.write, seen.ns)


@cache
def _demangler() -> ctypes.CDLL:
    library = ctypes.CDLL(ctypes.util.find_library("stdc++") or "libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library


@cache
def readable(name: str) -> str:
    """A mangled name demangled; others as they are."""
    if not name.startswith("_Z"):
        return name
    status = ctypes.c_int()
    text = _demangler().__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    return ctypes.string_at(text).decode() if not status.value else name
