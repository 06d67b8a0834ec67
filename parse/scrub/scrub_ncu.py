"""A table of Nsight Compute -> the same table without names of processes and hosts, and without ncu's log."""

from io import BufferedReader
from typing import BinaryIO

from pyprof.errors import InputError
from pyprof.parse.ncu.row_layout import BETWEEN
from pyprof.parse.ncu.table_lines import Noise, records
from pyprof.parse.scrub.private_text import Cleaner

_OWNERS = {"Process Name": "process", "Host Name": "host"}


def scrub_ncu(source: BufferedReader, file: str, out: BinaryIO, cleaner: Cleaner) -> None:
    """Write the tables of a file. Raises InputError if it has none, or a row is cut."""
    noise, names, rows = Noise(), list[str](), 0
    for record in records(source, file, noise):
        names = record.fields if record.is_header else names
        rows += not record.is_header
        cells = [_cell(names, place, text, record.is_header, cleaner) for place, text in enumerate(record.fields)]
        out.write(f'"{BETWEEN.join(cells)}"\n'.encode())
    if not rows:
        raise InputError(file, "expected a table of Nsight Compute with rows, found none")
    if noise.lines:
        cleaner.removed["line of ncu's log"] += noise.lines


def _cell(names: list[str], place: int, text: str, is_header: bool, cleaner: Cleaner) -> str:
    """A cell as ncu writes it, with quotation marks that are not doubled."""
    owner = _OWNERS.get(names[place]) if place < len(names) else None
    if is_header or not text or owner is None:
        return cleaner.text(text)
    cleaner.removed[f"name of a {owner}"] += 1
    return owner
