"""An nvprof database as a recording (see ``parse/nvprof.py``): one process, times since 1970, markers."""

from __future__ import annotations

import struct
from functools import cached_property

import numpy as np

from pyprof.parse.cupti import name_operations, triples
from pyprof.parse.database import Database
from pyprof.parse.join import lookup
from pyprof.parse.names import demangle, short_name
from pyprof.parse.nvprof import BEGIN, CALLS, COMMON, END, KERNELS, LAUNCH, PREFIX
from pyprof.parse.stats.recording import Calls, Gpu, Recording, Spans
from pyprof.table import Coded, Ints, distinct

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
        tables = [self._gpu_table(kind, table) for kind, table in enumerate((kernel, "MEMCPY", "MEMSET"))]
        data = {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}
        name, base, mangled = self._names(data)
        return Gpu(
            kind=data["kind"],
            start=data["start"],
            end=data["end"],
            bytes=data["bytes"],
            device=data["deviceId"],
            name=name,
            base=base,
            mangled=mangled,
            grid=triples(data["gridX"], data["gridY"], data["gridZ"]),
            block=triples(data["blockX"], data["blockY"], data["blockZ"]),
            launch=self.api.at(self._launches(data["correlationId"])),
        )

    def _gpu_table(self, kind: int, table: str) -> dict[str, Ints]:
        self.db.require(PREFIX + table, "start", "end", "correlationId")
        keys = (*COMMON, *LAUNCH)
        data = dict(zip(keys, self.db.ints(PREFIX + table, *keys), strict=True))
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
        return {id_: str(value) for id_, value in self.db.rows("SELECT _id_, value FROM StringTable ORDER BY _id_")}

    @cached_property
    def spans(self) -> Spans:
        table = f"{PREFIX}MARKER"
        if not self.db.has(table):
            return Spans.none()
        query = f"SELECT flags, timestamp, id, objectKind, objectId, name FROM {table} ORDER BY timestamp, _id_"  # noqa: S608
        rows: list[list[int]] = []
        names: list[str] = []
        opened: dict[int, int] = {}  # marker's id -> row
        last = 0
        for flags, time, id_, kind, owner, name in self.db.connection.execute(query):
            last = time
            if flags == END and id_ in opened:
                rows[opened.pop(id_)][1] = time
            elif flags == BEGIN and kind == THREAD:
                opened[id_] = len(rows)
                rows.append([time, 0, *_thread(owner)])
                names.append(f":{self._strings.get(name, '')}")
        for number in opened.values():  # never closed
            rows[number][1] = last
        start, end, pid, tid = np.array(rows, np.int64).reshape(-1, 4).T.copy()
        pushed = np.zeros(len(rows), np.bool_)
        return Spans(start, end, pid, tid, Coded.of(names), startend=pushed, one_thread=~pushed)


def _thread(owner: object) -> tuple[int, int]:
    """(process, thread): 32 bits each, little-endian, as SQLite text or blob."""
    data = owner.encode("latin-1", "replace") if isinstance(owner, str) else owner
    pid, tid = struct.unpack("<II", (data if isinstance(data, bytes) else b"")[:8].ljust(8, b"\0"))
    return pid, tid
