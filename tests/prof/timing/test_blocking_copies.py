"""Copies to the GPU that hold the CPU: by hand, and found again from raw files."""

import gzip
import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.time_sentences import blocking_sentences
from pyprof.prof.timing.blocking_copies import BlockingCopies, blocking_copies
from pyprof.prof.work.annotate import annotate
from tests.parse.kineto import kineto_file
from tests.parse.nsys.nsys_file import API, KERNEL, call, kernel, process, write
from tests.prof.changes.rules.advice_rows import table
from tests.tables import parsed

US = 1000
TO = {"op": ["Tensor.to"], "trace": ["train.py:9", "batch.py:3"], "phase": "data"}


def copy(start, ns, api, call, name="Memcpy HtoD (Pageable -> Device)", kind="cudaMemcpyAsync", **more):
    times = {"start": start * US, "ns": ns * US, "apiStart": api * US, "apiDuration": call * US}
    return {"kShortName": name, "kind": "memcpy", "api": kind, "bytes": 4, **TO, **times, **more}


PINNED, HOST = "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)"
UNTOLD = "[CUDA memcpy Host-to-Device]"
TOLD = {kind: {"kLongName": f"{UNTOLD} ({kind} -> Device)"} for kind in ("Pageable", "Pinned")}
ROWS = {  # what is copied -> (a row, the µs that it holds the CPU; None: it does not)
    "pageable, and waited for": (copy(100, 2, 0, 5, apiSync=97 * US), 102),
    "pageable, staged": (copy(4, 2, 0, 5), 5),
    "pinned, not non_blocking": (copy(100, 2, 0, 5, PINNED, apiSync=97 * US), 102),
    "pinned, non_blocking": (copy(100, 2, 0, 5, PINNED), None),
    "nsys tells pageable, staged": (copy(100, 2, 0, 5, UNTOLD, **TOLD["Pageable"]), 5),
    "nsys tells pinned, and the call lasts": (copy(100, 20, 0, 115, UNTOLD, **TOLD["Pinned"]), None),
    "nsys does not tell, and the call returns": (copy(100, 2, 0, 5, UNTOLD), None),
    "nsys does not tell, and the call lasts into its copy": (copy(100, 20, 0, 115, UNTOLD), 115),
    "a synchronous call": (copy(100, 2, 0, 103, UNTOLD, "cudaMemcpy"), 103),
    "to the host": (copy(100, 2, 0, 103, HOST, apiSync=5 * US), None),
    "a call of unknown length": (copy(100, 2, 0, 5, apiSync=97 * US) | {"apiDuration": None}, None),
}


@pytest.mark.parametrize("what", ROWS)
def test_what_holds_the_cpu(what):
    row, held = ROWS[what]
    assert [place.held_ns for place in blocking_copies(table(row))] == ([] if held is None else [held * US])


def test_places_by_hand():
    other = {"op": ["index"], "trace": []}
    rows = [copy(100, 2, 0, 5, apiSync=97 * US), copy(300, 3, 200, 5, PINNED, apiSync=97 * US),
            copy(400, 1, 390, 12, **other)]  # fmt: skip
    assert blocking_copies(table(*rows)) == [
        BlockingCopies("Tensor.to", "batch.py:3", 2, 1, 1, 204 * US, 5 * US),
        BlockingCopies("index", "", 1, 1, 0, 12 * US, 1 * US),
    ]


def said(*rows):
    made = table({"kShortName": "k", "start": 0, "ns": 1000 * US}, *rows)
    return list(blocking_sentences(summarise(made, annotate(made))))


def test_a_program_without_ops_is_not_told_to_pass_arguments_of_pytorch():
    no_op = {"op": None, "trace": None}
    made = table({"kShortName": "k", "start": 0, "ns": 1000 * US}, {**copy(100, 2, 0, 5, apiSync=97 * US), **no_op})
    (words,) = blocking_sentences(summarise(made, annotate(made)))
    assert words.endswith("; copies of pinned memory by an asynchronous call do not.")


def test_the_sentence():
    # of 1000 µs from the first start to the last end; 102 and 102 of it in calls and waits, 4 on the GPU
    waited = [copy(at + 100, 2, at, 5, apiSync=97 * US) for at in (0, 200)]
    assert said(*waited) == [
        "2 copies of pageable memory to the GPU hold the CPU for 0.2040 ms of 1.000 ms and take 0.0040 ms on the GPU: "
        "Tensor.to at batch.py:3 (2, 0.2040 ms); pin the memory and pass non_blocking=True."
    ]
    (pinned,) = said(copy(100, 2, 0, 5, PINNED, apiSync=97 * US))
    assert pinned.startswith("1 copy of pinned memory to the GPU holds the CPU for 0.1020 ms")
    assert pinned.endswith(" (1, 0.1020 ms); pass non_blocking=True.")
    (untold,) = said(copy(100, 2, 0, 103, UNTOLD, "cudaMemcpy"))
    assert untold.startswith("1 copy to the GPU holds")
    assert said(copy(4, 2, 0, 5)) == []  # 5 of 1000 µs are not worth a sentence


def test_the_synchronisation_of_a_traces_copy(tmp_path):
    def api(name, ts, dur, corr, tid=kineto_file.MAIN):
        return kineto_file.x("cuda_runtime", name, ts, dur, tid=tid, correlation=corr)

    def moved(ts, corr):
        return kineto_file.x("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", ts, 1, 7, 0, correlation=corr, device=0)

    calls = [
        api("cudaMemcpyAsync", 10, 2, 1), api("cudaStreamSynchronize", 13, 40, 2),
        api("cudaMemcpyAsync", 60, 2, 3), api("cudaLaunchKernel", 63, 2, 4), api("cudaStreamSynchronize", 66, 9, 5),
        api("cudaMemcpyAsync", 80, 2, 6), api("cudaStreamSynchronize", 83, 9, 7, kineto_file.AUTOGRAD),
        api("cudaMemcpyAsync", 95, 2, 8), api("cudaDeviceSynchronize", 98, 9, 9),
    ]  # fmt: skip
    path = kineto_file.write(tmp_path / "a.json", *calls, *(moved(50 + corr, corr) for corr in (1, 3, 6, 8)))
    found = parsed(path)
    assert [None if ns < 0 else ns for ns in found.ints("apiSync").tolist()] == [40_000, None, None, None]


def test_the_synchronisation_of_an_exports_copy(tmp_path):
    names = [
        (1, "gemm"),
        (101, "void gemm<float>(int)"),
        (50, "cudaMemcpyAsync_v3020"),
        (51, "cudaStreamSynchronize_v3020"),
    ]
    copies = [(100 + n, 101 + n, 0, 7, n, process(7), 64, 1) for n in (1, 2)]
    wait = (*call(20, 9)[:1], 70, *call(20, 9)[2:-1], 51)
    path = write(tmp_path / "net.sqlite", **{
        "StringIds": names, KERNEL: [kernel(300, 3)], "CUPTI_ACTIVITY_KIND_MEMCPY": copies,
        API: [call(10, 1), wait, call(80, 2), call(90, 3)],
    })  # fmt: skip
    found = parsed(path)
    assert [None if ns < 0 else ns for ns in found.ints("apiSync").tolist()] == [50, None, None]


def test_an_export_names_the_memory_of_its_copies(data: Path, tmp_path: Path) -> None:
    """A100: 292 copies from pageable memory (srcKind 0), 2 from pinned (1); ENUM_CUDA_MEM_KIND labels the numbers."""
    (file,) = (path for path in (data / "nsys").iterdir() if path.name.endswith("result_2_7B.sqlite.gz"))
    with gzip.open(file) as packed, (tmp_path / "net.sqlite").open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    query = """
        SELECT e.label, COUNT(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY m JOIN ENUM_CUDA_MEM_KIND e ON e.id = m.srcKind
        WHERE m.copyKind = 1 GROUP BY e.label
    """
    with closing(sqlite3.connect(tmp_path / "net.sqlite")) as db:
        counts = dict(db.execute(query).fetchall())
    assert counts == {"Pageable": 292, "Pinned": 2}
    found = parsed(file)
    names = Counter(name for name in found.coded("kLongName").texts() if "memcpy Host-to-Device" in name)
    assert names == {f"{UNTOLD} ({kind} -> Device)": count for kind, count in counts.items()}
    assert set(found.coded("kShortName").texts()) >= {UNTOLD}  # as nsys stats prints it
    assert sum(place.pageable for place in blocking_copies(found)) > 200


def test_owlv2_waits_for_its_steps_in_five_copies(data: Path) -> None:
    """The trace itself: five copies of 82,944 bytes, each call directly followed by a wait of 68 to 73 ms."""
    file = data / "round2" / "tracelens_h100_owlv2.json.gz"
    with gzip.open(file, "rt") as text:
        events = [
            event for event in json.load(text)["traceEvents"] if event.get("cat") in ("cuda_runtime", "gpu_memcpy")
        ]
    small = {
        e["args"]["correlation"] for e in events if e["cat"] == "gpu_memcpy" and e["args"].get("bytes") == 82944
        and "HtoD" in e["name"]
    }  # fmt: skip
    calls = sorted((e for e in events if e["cat"] == "cuda_runtime"), key=lambda e: e["ts"])
    held = sum(a["dur"] + b["dur"] for a, b in pairwise(calls) if a["args"]["correlation"] in small)
    found = blocking_copies(parsed(file))[0]
    assert (found.rows, found.pageable, len(small)) == (5, 5, 5)
    assert found.held_ns == pytest.approx(1000 * held, rel=1e-6) and 358e6 < found.held_ns < 359e6


def test_an_exports_copies_from_its_tables(data: Path, tmp_path: Path) -> None:
    """FSDP with offloading on H100: per copy to the device, its call and the thread's next one, from SQLite's rows."""
    (file,) = (path for path in (data / "nsys").iterdir() if "mfu_2gpu_before" in path.name)
    with gzip.open(file) as packed, (tmp_path / "net.sqlite").open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    db = sqlite3.connect(tmp_path / "net.sqlite")
    query = """
        SELECT r.globalTid, r.start, r.end, r.correlationId, s.value FROM CUPTI_ACTIVITY_KIND_RUNTIME r
        JOIN StringIds s ON s.id = r.nameId ORDER BY r.globalTid, r.start
    """
    calls = db.execute(query).fetchall()
    copied = db.execute("SELECT correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1").fetchall()
    db.close()
    wanted = {(corr, pid >> 24) for corr, pid in copied}
    held = 0
    for (tid, start, end, corr, _), (next_tid, begin, finish, _, name) in pairwise(calls):
        if (corr, tid >> 24) in wanted and next_tid == tid and "StreamSynchronize" in name:
            held += end - start + finish - begin
    assert sum(place.held_ns for place in blocking_copies(parsed(file))) == held > 300e6
