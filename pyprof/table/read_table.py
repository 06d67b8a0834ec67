"""Read the kernel table from a file in any of its formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.errors import InputError
from pyprof.files import Name, is_standard, open_input

if TYPE_CHECKING:
    from pyprof.table.columns import Table


def read_table(name: Name) -> Table:
    """Read net.dict (also .gz, also from standard input: None or ``-``) or net.parquet (from a file only)."""
    from pyprof.table.netdict import read_netdict
    from pyprof.table.parquet import MAGIC, is_parquet, read_parquet

    shown = "standard input" if is_standard(name) else str(name)
    with open_input(name) as source:
        if source.peek(len(MAGIC))[: len(MAGIC)] != MAGIC:
            return read_netdict(source, shown)
        if not is_parquet(name):
            found = "Parquet on standard input" if is_standard(name) else "Parquet in gzip"
            raise InputError(shown, f"expected a net.dict, found {found}; give the name of a plain Parquet file")
    return read_parquet(Path(str(name)))
