"""Writes the scrubbed copy of a file to a temporary file, in the file's own form."""

from __future__ import annotations

import os
import pickle
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pyprof.errors import InputError, PyprofError
from pyprof.files import link_unnamed, open_input, unnamed_file
from pyprof.parse.databases.database import HEADER
from pyprof.parse.databases.parquet_folder import opened
from pyprof.parse.detect import is_parquet_folder
from pyprof.parse.formats.plain_pickle import is_pickle, load_plain
from pyprof.parse.ncu.table_lines import HEADER as NCU_HEADER
from pyprof.parse.nsys.tables import EVERY
from pyprof.parse.scrub.private_text import Cleaner
from pyprof.parse.scrub.private_tree import cleaned_tree
from pyprof.parse.scrub.scrub_database import learn, scrub_database
from pyprof.parse.scrub.scrub_ncu import scrub_ncu
from pyprof.parse.scrub.scrub_table import scrub_table, texts_of_table
from pyprof.parse.scrub.scrub_trace import scrub_json
from pyprof.table.netdict import FIRST_KEY, write_netdict
from pyprof.table.parquet import is_parquet, write_columns
from pyprof.table.read_table import read_table
from pyprof.table.schema import COLUMN

SNAPSHOT = "expected a memory snapshot of PyTorch"


class Copied(NamedTuple):
    """The copy, to be read from its beginning."""

    file: BufferedRandom
    texts: list[str] | None  # of a form that packs them; None: its bytes show them
    left_out: list[str]  # tables of a database that are not copied


@contextmanager
def copied(file: Path, cleaner: Cleaner) -> Iterator[Copied]:
    """The file's scrubbed copy. Raises InputError for a file that pyprof does not read."""
    folder = Path(tempfile.gettempdir())
    name = folder / f"pyprof-{uuid.uuid4().hex}"
    handle = unnamed_file(folder)
    if handle is None:
        handle = _named_file(name)
    with open(handle, "w+b") as copy:
        try:
            if is_parquet_folder(file) or _head(file).startswith(HEADER):
                texts, left = None, _database(file, cleaner, copy, name)
            else:
                name.unlink(missing_ok=True)
                texts, left = _write(file, cleaner, copy), []
            copy.flush()
            copy.seek(0)
        except OSError as error:
            raise PyprofError(f"{file}: cannot be copied in the temporary folder: {error.strerror or error}") from error
        finally:
            name.unlink(missing_ok=True)
        yield Copied(copy, texts, left)


def _head(file: Path) -> bytes:
    with open_input(str(file)) as source:
        return bytes(source.peek(4096)[:4096])


def _database(file: Path, cleaner: Cleaner, copy: BinaryIO, name: Path) -> list[str]:
    """Write the copy of a database, which needs a name, and loses it once it is open. Returns the tables left out."""
    with opened(file, EVERY) as db:
        learn(db, cleaner)
        if not name.exists():
            _name(copy, name)
        return scrub_database(db, name, cleaner)


def _name(empty: BinaryIO, name: Path) -> None:
    try:
        link_unnamed(empty.fileno(), name)
    except OSError:  # a system without hard links, or that does not allow this one
        named = _named_file(name)
        os.dup2(named, empty.fileno())
        os.close(named)


def _named_file(name: Path) -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def _write(file: Path, cleaner: Cleaner, copy: BinaryIO) -> list[str] | None:
    """Write the copy of a file that is no database. Returns its texts where it packs them."""
    with open_input(str(file)) as source:
        head = bytes(source.peek(4096)[:4096])
        if is_pickle(head):
            copy.write(_snapshot(source.read(), file, cleaner))
        elif head.lstrip()[:1] in (b"{", b"[") and not _is_netdict(head):
            copy.write(scrub_json(file, source.read(), cleaner))
        elif NCU_HEADER.search(head.decode("utf-8", "replace")) or head.startswith(b"=="):
            scrub_ncu(source, str(file), copy, cleaner)
        else:
            return _table(file, cleaner, copy)
    return None


def _is_netdict(head: bytes) -> bool:
    match = FIRST_KEY.match(head)
    return match is not None and match["key"].decode() in COLUMN


def _snapshot(content: bytes, file: Path, cleaner: Cleaner) -> bytes:
    try:
        return pickle.dumps(cleaned_tree(load_plain(content, file, SNAPSHOT), cleaner), protocol=4)
    except RecursionError:
        raise InputError(file, f"{SNAPSHOT}, found values nested without end") from None


def _table(file: Path, cleaner: Cleaner, copy: BinaryIO) -> list[str] | None:
    table = read_table(str(file))
    cleaner.learn_from("\0".join(texts_of_table(table)).encode("utf-8", "replace"))
    table = scrub_table(table, cleaner)
    if is_parquet(str(file)):
        write_columns(table, copy)
        return list(texts_of_table(table))
    write_netdict(table, copy)
    return None
