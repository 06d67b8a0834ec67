"""nsys and nvprof databases as recordings. Tables, columns: ``parse/nsys/tables.py``, ``parse/formats/nvprof.py``."""

from collections import defaultdict
from functools import cached_property
from itertools import count, pairwise

import numpy as np

from pyprof.errors import SchemaError
from pyprof.parse.attribute.capture import OPEN
from pyprof.parse.databases.database import Database
from pyprof.parse.formats import cupti, nvprof
from pyprof.parse.formats.cupti import gpu_operations, name_operations, texts_of
from pyprof.parse.nsys import reader as nsys
from pyprof.parse.nsys.api_launches import read_calls
from pyprof.parse.nsys.nvtx_sql import START_END, RangeSql, check_types, domain_names, last_time
from pyprof.parse.nsys.operations import KINDS, SOURCES, process_numbers
from pyprof.parse.nsys.tables import API, NVTX, OS_CALLS, STRINGS, process_of, thread_of
from pyprof.parse.stats.recording import Calls, Gpu, Recording, Spans
from pyprof.table.columns import NULL, Coded, Ints, distinct, lookup

_SOURCES, _KINDS = SOURCES[:3], KINDS[:3]  # nsys stats leaves opaque graphs out


class _DatabaseRecording(Recording):
    """The events of an open database."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._of_gpu: list[str] = []  # warnings

    @cached_property
    def _api(self) -> cupti.Calls:
        """All calls, also those whose times are not known."""
        raise NotImplementedError

    @cached_property
    def api(self) -> Calls:
        return Calls(*self._api[:5]).timed()


class NsysRecording(_DatabaseRecording):
    """The events of an open nsys export."""

    @property
    def warnings(self) -> list[str]:
        return [*self._of_gpu, *nsys.other_types(self.db)]

    @cached_property
    def _api(self) -> cupti.Calls:
        self.db.require(API.table, API.column("name"))
        return read_calls(self.db)[1]

    @cached_property
    def os(self) -> Calls:
        data = self.db.read(OS_CALLS)
        names = texts_of(data["name"], self.db.texts(STRINGS, data["name"]))
        calls = Calls(data["start_ns"], data["end_ns"], process_of(data["thread"]), thread_of(data["thread"]), names)
        return calls.timed()

    @cached_property
    def spans(self) -> Spans:
        return _spans(self.db) if self.db.has(NVTX.table) else Spans.none()

    @cached_property
    def gpu(self) -> Gpu:
        data, self._of_gpu, _ = gpu_operations(self.db, _SOURCES)
        pid = process_numbers(data["process"], self.db)
        call = lookup(self._api.pid, self._api.corr, pid, data["corr"])
        return Gpu.of_activity(data, self._names(data), Calls(*self._api[:5]).at(call))

    def _names(self, data: dict[str, Ints]) -> list[Coded]:
        """Demangled, short and mangled names. A missing mangled name is replaced by the demangled one, as in nsys."""
        long, short, mangled = (data[name] for name in ("long_name", "short_name", "mangled_name"))
        ids = [long, short, np.where(mangled == NULL, long, mangled)]
        strings = self.db.texts(STRINGS, np.concatenate(ids))
        names = [texts_of(column, strings) for column in ids]
        name_operations(names, data, _KINDS)
        return names


def _spans(db: Database) -> Spans:
    db.check(NVTX)
    check_types(db)
    sql, e = RangeSql(db), db.expressions(NVTX)
    names = ("start_ns", "end_ns", "thread", "end_thread", "event_type", "domain")
    number = "row_number() OVER ()" if sql.order == "NULL" else sql.order
    text = f"coalesce({sql.text}, '')"
    numbers = [*(f"coalesce({e[name]}, {NULL})" for name in names), number, f"length(CAST({text} AS BLOB))"]
    texts, read = _Texts(), list[list[Ints]]()
    try:
        for columns, joined in db.chunks(numbers, NVTX.table, sql.join, sql.is_timed, text):
            read.append([*columns[:-1], texts.add(joined, columns[-1])])
    except ValueError as error:
        found = f"expected numbers and texts in {NVTX.table}, found another value ({error}); export it again"
        raise SchemaError(db.file, found) from None
    columns = [np.concatenate(parts) for parts in zip(*read, strict=True)] or [np.zeros(0, np.int64)] * len(numbers)
    read.clear()
    row = columns[-2]
    once = np.diff(row, prepend=row[:1] - 1) != 0  # a text whose id stands twice gives a range two rows
    columns = [column[once] for column in columns]
    start, end, thread, end_thread, event_type, domain, row, code = columns
    return Spans(
        start=start,
        end=np.where(end == NULL, last_time(db), end),
        pid=process_of(thread),
        tid=thread_of(thread),
        name=_range_names(db, thread >> 24, domain, code, texts.taken()),
        startend=np.isin(event_type, START_END),
        one_thread=end_thread == NULL,  # nsys names the thread that ended a range only if it is a different one
        id=row,
    )


class _Texts:
    """The distinct texts of ranges, numbered in order of appearance."""

    def __init__(self) -> None:
        self.known: defaultdict[str, int] = defaultdict(count().__next__)

    def taken(self) -> list[str]:
        """The texts, which are then forgotten."""
        texts = list(self.known)
        self.known.clear()
        return texts

    def add(self, joined: bytes, lengths: Ints) -> Ints:
        """The numbers of texts, given joined and their lengths in bytes."""
        ends = np.cumsum(lengths)
        if ends[-1] != len(joined):
            raise ValueError("texts of another encoding than UTF-8")
        bounds = [0, *ends.tolist()]
        if joined.isascii():
            text = joined.decode()
            pieces = [text[begin:end] for begin, end in pairwise(bounds)]
        else:
            pieces = [joined[begin:end].decode("utf-8", "replace") for begin, end in pairwise(bounds)]
        return np.fromiter(map(self.known.__getitem__, pieces), np.int64, len(pieces))


def _range_names(db: Database, process: Ints, domain: Ints, code: Ints, texts: list[str]) -> Coded:
    """`domain:text` of every range; the default domain has no name. ``process``: globalTids without their threads."""
    names = domain_names(db)
    owners, owner = distinct(process, domain)
    # A domain's number stands where a sliced file has lost the event that names it.
    prefixes = [f"{names.get((p, d), '' if d in (0, NULL) else f'domain {d}')}:" for p, d in owners]
    if len(owners) == 1:  # as nearly always: millions of texts are changed one by one, each old one freed
        for place, text in enumerate(texts):
            texts[place] = prefixes[0] + text
        return Coded(code.astype(np.int32), texts)
    used, codes = distinct(owner, code)
    return Coded(codes.astype(np.int32), [prefixes[o] + texts[c] for o, c in used])


class NvprofRecording(_DatabaseRecording):
    """The events of an open nvprof database: one process, times since 1970, markers."""

    @property
    def warnings(self) -> list[str]:
        return [*self._of_gpu, *nvprof.other_warnings(self.db)]

    @cached_property
    def _api(self) -> cupti.Calls:
        return nvprof.read_calls(self.db)

    @cached_property
    def gpu(self) -> Gpu:
        data, self._of_gpu, _ = nvprof.read_operations(self.db)
        call, calls = nvprof.find_calls(self._api, data["corr"]), Calls(*self._api[:5])
        return Gpu.of_activity(data, nvprof.operation_names(self.db, data), calls.at(call))

    @cached_property
    def spans(self) -> Spans:
        markers = nvprof.read_markers(self.db)
        pid, tid, start, end = np.array([marker[:4] for marker in markers], np.int64).reshape(-1, 4).T
        last = np.concatenate([start, end[end != OPEN]]).max(initial=0)
        end = np.where(end == OPEN, last, end)  # open ranges end at the last time
        return Spans.pushed(start, end, pid, tid, Coded.of(f":{marker.text}" for marker in markers))
