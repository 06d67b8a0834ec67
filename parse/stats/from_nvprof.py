"""An nvprof database as a recording (see ``parse/formats/nvprof.py``): one process, times since 1970, markers."""

from __future__ import annotations

import struct
from functools import cached_property

import numpy as np

from pyprof.parse.formats.cupti import name_operations
from pyprof.parse.formats.database import Database
from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.formats.key_join import lookup
from pyprof.parse.formats.nvprof import BEGIN, CALLS, COMMON, END, KERNELS, LAUNCH, PREFIX
from pyprof.parse.formats.possible_times import settle
from pyprof.parse.stats.recording import Calls, Gpu, Recording, Spans, by_start, one_after_another
from pyprof.table.columns import Coded, Ints, distinct

THREAD = 2  # CUpti_ActivityObjectKind: the marker's object is a thread


class NvprofRecording(Recording):
    """The events of an open database."""

    def __init__(self, db: Database) -> None:
        self.db = db

    @cached_property
    def api(self) -> Calls:
        """Runtime calls, then driver calls: one that launches shadows the driver call under it."""
        tables = [self._calls(table) for table in ("RUNTIME", "DRIVER")]
        start, end, pid, tid = (
            np.concatenate([getattr(table, column) for table in tables]) for column in ("start", "end", "pid", "tid")
        )
        return Calls(start, end, pid, tid, Coded.concat([table.name for table in tables]))

    def _calls(self, table: str) -> Calls:
        keys = ("start", "end", "processId", "threadId", "cbid")
        start, end, pid, tid, cbid = self.db.ints(PREFIX + table, *keys)
        used, codes = distinct(cbid)
        names = [CALLS.get((table, number), f"{table.lower()} call {number}") for (number,) in used]
        return Calls(start, end, pid, tid & 0xFFFFFFFF, Coded(codes.astype(np.int32), names))

    @cached_property
    def gpu(self) -> Gpu:
        kernel = next((name for name in KERNELS if self.db.has(PREFIX + name)), KERNELS[0])
        data = one_after_another(self._gpu_table(i, table) for i, table in enumerate((kernel, "MEMCPY", "MEMSET")))
        launch = self.api.at(self._launches(data["correlationId"]))
        return Gpu.of_activity(data, self._names(data), launch)

    def _gpu_table(self, kind: int, table: str) -> dict[str, Ints]:
        self.db.require(PREFIX + table, "start", "end", "correlationId")
        keys = (*COMMON, *LAUNCH)
        data = dict(zip(keys, self.db.ints(PREFIX + table, *keys), strict=True))
        data["start"], data["end"], _ = settle(data["start"], data["end"], earliest=1)
        data["kind"] = np.full(len(data["start"]), kind, np.int64)
        return data

    def _launches(self, wanted: Ints) -> Ints:
        """The call of each correlation id."""
        ids = np.concatenate([self.db.ints(PREFIX + table, "correlationId")[0] for table in ("RUNTIME", "DRIVER")])
        return lookup(np.zeros_like(ids), ids, np.zeros_like(wanted), wanted)

    def _names(self, data: dict[str, Ints]) -> list[Coded]:
        """Demangled, short and mangled."""
        used, codes = distinct(data["name"])
        mangled = [self._strings.get(id_, "") for (id_,) in used]
        kinds = ([demangle(name) for name in mangled], [short_name(name) for name in mangled], mangled)
        names = [Coded(codes.astype(np.int32), list(texts)) for texts in kinds]
        for number, kind in enumerate(("memcpy", "memset"), 1):
            name_operations(names, data["kind"] == number, kind, data["copyKind"])
        return names

    @cached_property
    def _strings(self) -> dict[int, str]:
        return self.db.texts("StringTable", "_id_")

    @cached_property
    def spans(self) -> Spans:
        table = f"{PREFIX}MARKER"
        if not self.db.has(table):
            return Spans.none()
        flags, time, id_, kind, name = self.db.ints(table, "flags", "timestamp", "id", "objectKind", "name")
        begins, ends = np.flatnonzero((flags == BEGIN) & (kind == THREAD)), np.flatnonzero(flags == END)
        end = lookup(np.zeros_like(ends), id_[ends], np.zeros_like(begins), id_[begins])
        last = time.max(initial=0)  # a range that was never closed lasts until then
        owners = self.db.rows(f"SELECT objectId FROM {table}")  # noqa: S608 (our own text)
        threads = [_thread(owners[row][0]) for row in begins.tolist()]
        pid, tid = np.array(threads, np.int64).reshape(-1, 2).T
        texts = Coded.of(f":{self._strings.get(number, '')}" for number in name[begins].tolist())
        pushed = np.zeros(len(begins), np.bool_)
        stop = np.where(end >= 0, time[ends][end], last) if len(ends) else np.full(len(begins), last)
        ids = by_start(time[begins], stop)
        return Spans(time[begins], stop, pid, tid, texts, startend=pushed, one_thread=~pushed, id=ids)


def _thread(owner: object) -> tuple[int, int]:
    """(process, thread): 32 bits each, little-endian, as SQLite text or blob."""
    data = owner.encode("latin-1", "replace") if isinstance(owner, str) else owner
    pid, tid = struct.unpack("<II", (data if isinstance(data, bytes) else b"")[:8].ljust(8, b"\0"))
    return pid, tid
