"""A profiler's database -> a new one with the tables and columns that pyprof reads, and nothing else.

Nothing is deleted from a copy: SQLite would keep it in free pages. A table, column or text that no reader knows is
never written. Of the texts that others refer to by number (StringIds), only those stay to which a row that is kept
refers.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyprof.captured_record import CAPTURED_RANGE
from pyprof.errors import InputError
from pyprof.parse.databases.database import Database, Source
from pyprof.parse.formats import nvprof, rocpd
from pyprof.parse.formats.rocm_events import AGENT_KEYS
from pyprof.parse.nsys import tables as nsys
from pyprof.parse.nsys.reader import RANK_NAME
from pyprof.parse.scrub.captured_records import cleaned_records
from pyprof.parse.scrub.private_text import Cleaner
from pyprof.parse.scrub.private_tree import cleaned_tree

NO_TEXT = "[removed]"  # a text where a number belongs
Clean = Callable[[Any], Any]


class Form(NamedTuple):
    """A profiler's tables: which columns hold texts, and which refer to the table of texts."""

    sources: tuple[Source, ...]
    texts: frozenset[tuple[str, str]]
    strings: Source  # the table of texts
    references: frozenset[str]  # columns that hold its ids
    names: str = ""  # a table of names and values, of which only some stay
    kept: frozenset[str] = frozenset()


NSYS = Form(
    nsys.EVERY,
    frozenset({
        ("NVTX_EVENTS", "text"), ("NVTX_EVENTS", "jsonText"), ("TARGET_INFO_GPU", "name"), ("DIAGNOSTIC_EVENT", "text"),
        ("META_DATA_EXPORT", "name"), ("META_DATA_EXPORT", "value"), ("ENUM_CUDA_MEM_KIND", "label"),
        ("NVTX_PAYLOAD_SCHEMA_ENTRIES", "name"), ("NVTX_PAYLOAD_ENUM_ENTRIES", "name"), ("StringIds", "value"),
    }),
    nsys.STRINGS,
    frozenset({"shortName", "demangledName", "mangledName", "nameId", "textId", "jsonTextId"}),
    "META_DATA_EXPORT",
    frozenset({"EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"}),
)  # fmt: skip
NVPROF = Form(
    tuple(value for value in (*vars(nvprof).values(), *nvprof.KERNELS) if isinstance(value, Source)),
    frozenset({("StringTable", "value")}),
    nvprof.STRINGS,
    frozenset({"name"}),
)
ROCPD = Form(
    tuple(value for value in vars(rocpd).values() if isinstance(value, Source)),
    frozenset({
        ("rocpd_string", "string"), ("rocpd_event", "extdata"), ("rocpd_info_agent", "extdata"),
        ("rocpd_info_kernel_symbol", "kernel_name"), ("rocpd_info_kernel_symbol", "display_name"),
    }),
    rocpd.STRINGS,
    frozenset({"name_id", "category_id", "apiName_id", "args_id", "description_id", "opType_id"}),
)  # fmt: skip
# Tables of names and values of nsys that are not copied: their values for such names are words to remove.
_TELLING = ("META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SYSTEM_ENV")
_TELLING_NAME = re.compile(r"HOST_?NAME|USER_?NAME|(?:^|[:_])(?:HOST|USER)$", re.IGNORECASE)
_WORD = re.compile(rb"[ -~]{12,}")  # so many readable bytes in a payload of numbers are a text


def form_of(db: Database) -> Form:
    """Whose database it is."""
    if nvprof.is_nvprof(db):
        return NVPROF
    return ROCPD if rocpd.is_rocpd(db) else NSYS


def learn(db: Database, cleaner: Cleaner) -> None:
    """Learn the host's and the user's name from tables that are not copied."""
    for table in _TELLING:
        if db.has(table, "name") and db.has(table, "value"):
            rows = db.records(Source(table, (("name", "name"), ("value", "value"))))
            cleaner.learn(str(value) for name, value in rows if value and _TELLING_NAME.search(str(name)))


def scrub_database(db: Database, target: Path, cleaner: Cleaner) -> list[str]:
    """Write the database's copy to ``target``, an empty file, whose name is taken away once it is open.

    So nothing is left of it if the process is killed. Returns the names of the tables that were left out.
    """
    form = form_of(db)
    columns = _columns(db, form)
    if not columns:
        raise InputError(db.file, "expected the tables of nsys, nvprof or rocprofv3, found none of them")
    cleaner.known(cleaned_records(_ranges_of_records(db, form, columns), cleaner))
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        copy.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN IMMEDIATE")
        with suppress(OSError):  # a system on which an open file cannot lose its name
            target.unlink()
        for table, names in columns.items():
            listed = ", ".join(f'"{name}"' for name in names)
            copy.execute(f'CREATE TABLE "{table}" ({listed})')
            insert = f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(names))})'  # noqa: S608 (our own text)
            copy.executemany(insert, _rows(db, form, table, names, cleaner))
        copy.execute("COMMIT")
    return sorted(name for name in db.columns if name not in columns)


def _ranges_of_records(db: Database, form: Form, columns: dict[str, list[str]]) -> Iterator[str]:
    """The texts of ranges that have pyprof's record of captured graphs."""
    for table, name in sorted(form.texts) if form is NSYS else ():
        if name in columns.get(table, ()):
            query = f'SELECT DISTINCT "{name}" FROM "{table}" WHERE "{name}" LIKE ?'  # noqa: S608 (our own text)
            found = db.execute(query, f"{CAPTURED_RANGE}%")
            yield from (text for (text,) in found if isinstance(text, str))


def _columns(db: Database, form: Form) -> dict[str, list[str]]:
    """The columns of each table that the database has and pyprof reads."""
    found: dict[str, list[str]] = {}
    for source in form.sources:
        wanted = [column for _, column in source.columns if db.has(source.table, column)]
        wanted += [source.only[0]] if source.only and db.has(source.table, source.only[0]) else []
        if wanted:
            found[source.table] = list(dict.fromkeys([*found.get(source.table, []), *wanted]))
    return found


def _rows(db: Database, form: Form, table: str, names: list[str], cleaner: Cleaner) -> Iterator[tuple[Any, ...]]:
    listed = ", ".join(f'"{name}"' for name in names)
    rows = db.execute(f'SELECT {listed} FROM "{table}" ORDER BY {db.key(table) or "NULL"}')  # noqa: S608 (our own text)
    clean = [_cleaning(form, table, name, cleaner) for name in names]
    for row in filter(_keeping(db, form, table, names), rows):
        yield tuple(function(value) for function, value in zip(clean, row, strict=True))


def _cleaning(form: Form, table: str, name: str, cleaner: Cleaner) -> Clean:
    """What becomes of a column's values. Numbers stay; a text or bytes in a column of numbers do not."""
    if name == "binaryData":
        return lambda value: None if not isinstance(value, bytes) or _WORD.search(value) else value
    if table == nvprof.MARKERS.table and name == "objectId":  # the process and the thread, 12 bytes
        return lambda value: (
            NO_TEXT if isinstance(value, str) or (isinstance(value, bytes) and len(value) > 16) else value
        )
    if (table, name) not in form.texts:
        return lambda value: NO_TEXT if isinstance(value, str | bytes) else value
    if name == "extdata":
        return lambda value: _of_extdata(value, cleaner)
    return lambda value: cleaner.text(_as_text(value)) if isinstance(value, str | bytes) else value


def _as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


# What is read of the JSON texts of rocprofv3: the message of a ROCTX range, and the facts of an agent.
_EXTRA = AGENT_KEYS | {"message"}


def _of_extdata(value: Any, cleaner: Cleaner) -> Any:
    if value in (None, ""):
        return value
    try:
        return json.dumps(cleaned_tree(json.loads(value), cleaner, _EXTRA)) if isinstance(value, str) else NO_TEXT
    except (ValueError, RecursionError):
        return NO_TEXT


def _keeping(db: Database, form: Form, table: str, names: list[str]) -> Callable[[tuple[Any, ...]], bool]:
    """Which rows of a table the copy keeps."""
    if table == form.names:
        name = names.index("name") if "name" in names else 0
        return lambda row: row[name] in form.kept
    if table != form.strings.table:
        return lambda row: True
    db.check(form.strings)
    used, threads = _referred(db, form), _of_threads(db) if form is NSYS else frozenset()
    id_, text = (names.index(form.strings.column(part)) for part in ("id", "text"))

    def kept(row: tuple[Any, ...]) -> bool:  # of a thread, MPI Rank 3 alone: other names may tell something
        return row[id_] in used or (row[id_] in threads and bool(RANK_NAME.fullmatch(str(row[text]))))

    return kept


def _referred(db: Database, form: Form) -> frozenset[object]:
    """The ids of texts that rows refer to."""
    found: set[object] = set()
    for table, names in _columns(db, form).items():
        for name in names:
            if name in form.references and table != nsys.THREAD_NAMES.table and (table, name) not in form.texts:
                rows = db.execute(f'SELECT DISTINCT "{name}" FROM "{table}"')  # noqa: S608 (our own text)
                found.update(value for (value,) in rows)
    return frozenset(found)


def _of_threads(db: Database) -> frozenset[object]:
    return frozenset(name for _, name in db.records(nsys.THREAD_NAMES, "thread", "name"))
