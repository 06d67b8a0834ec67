"""Copies of real captures, searched for what the originals hold of their machine and user, by this test's own rules."""

import gzip
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.cli import main

FILES = {  # and how many private words of it are known; the least is to show that this test finds them
    "nsys/hpcgroup+pipit__pipit__tests__data__saxpy-mpi-cuda_nsys_perlmutter0.sqlite.gz": 1500,
    "nsys/jsun-012+assignment2-systems__result.sqlite.gz": 100,
    "round2/rocpd_mi300x_batched_gemm.db.gz": 5,
    "kineto/AMD-AGI+TraceLens__tests__traces__h100__gaunernst_bert-small-uncased__1016001_737b43a141.json.gz": 5,
    "ncu/brycelelbach+nsightful__tests__copy_blocked.details.csv": 1,
}
ASSIGNED = re.compile(r"(?:^|[\s\"'\0;])[A-Z_][A-Z0-9_]{2,}=([^\s\"'\0]{5,})")  # the value of a variable
PATH = re.compile(r"(?<![\w.])((?:/[\w.+@-]+){3,}|[A-Z]:(?:\\+[\w .+@-]+){2,})")
HOME = re.compile(r"/(?:home|Users)/([\w.-]{4,})|[A-Z]:\\+Users\\+([\w.-]{4,})")
HOST = re.compile(r'(?i)"?host_?name"?\s*[:=]\s*"([^"]{4,})"')
DEVICE = re.compile(r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
# Words of a program's environment that also stand in names of kernels, in versions and in metadata; files of any Linux
ORDINARY = re.compile(r"(?i)true|false|enabled?|dynamic|normal|nvidia|python3?|batch|screen|utf-8|[\d.,]+|/proc/.*")


def content(path: Path) -> bytes:
    found = path.read_bytes()
    return gzip.decompress(found) if found[:2] == b"\x1f\x8b" else found


def texts_of(found: bytes, folder: Path) -> tuple[list[str], set[str]]:
    """All texts of a file; of a database also the names of the machine's processes, its host and its command line."""
    if not found.startswith(b"SQLite format 3"):
        return [found.decode("utf-8", "replace")], set()
    (folder / "net.sqlite").write_bytes(found)
    with closing(sqlite3.connect(folder / "net.sqlite")) as db:
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {table: db.execute(f'SELECT * FROM "{table}"').fetchall() for table in tables}
    texts = [value for found in rows.values() for row in found for value in row if isinstance(value, str)]
    processes = {value for row in rows.get("PROCESSES", []) for value in row if isinstance(value, str)}
    told = [*rows.get("TARGET_INFO_SYSTEM_ENV", []), *rows.get("META_DATA_CAPTURE", [])]
    named = {str(row[-1]) for row in told if re.search("(?i)host|user|command|dir", " ".join(map(str, row[:-1])))}
    return texts, processes | named


def private_words(found: bytes, folder: Path) -> set[str]:
    texts, words = texts_of(found, folder)
    for text in texts:
        for form in (ASSIGNED, PATH, HOME, HOST):
            words.update(group for match in form.findall(text) for group in ([match] if form != HOME else match))
        words.update(DEVICE.findall(text))
    return {word for word in words if len(word) > 4 and not ORDINARY.fullmatch(word)}


@pytest.mark.parametrize("name", FILES)
def test_the_copy_holds_no_private_word_of_the_original(name, data, tmp_path):
    words = private_words(content(data / name), tmp_path)
    assert len(words) >= FILES[name]
    copy = tmp_path / "copy"
    assert main(["scrub", "-q", str(data / name), "-o", str(copy)]) == 0
    left = content(copy).lower()
    forms = {word: {word.lower().encode(), word.lower().encode("utf-16-le")} for word in words}
    assert [word for word, bytes_ in forms.items() if any(form in left for form in bytes_)] == []
