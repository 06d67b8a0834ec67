"""Read the kernel table from a file in any of its formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.errors import InputError
from pyprof.files import Name, is_standard, open_input

if TYPE_CHECKING:
    from pyprof.table.columns import Table
    from pyprof.table.container import Container


def read_table(name: Name) -> Table:
    """Read net.dict (also .gz, also from standard input: None or ``-``) or net.parquet (from a file only).

    Of a container it reads the kernel table alone.
    """
    from pyprof.table.container import is_container, read_container
    from pyprof.table.netdict import read_netdict
    from pyprof.table.parquet import MAGIC, is_parquet, read_parquet

    if not is_standard(name) and is_container(Path(str(name))):
        return kernels_of(read_container(Path(str(name))), str(name))
    shown = "standard input" if is_standard(name) else str(name)
    with open_input(name) as source:
        if source.peek(len(MAGIC))[: len(MAGIC)] != MAGIC:
            return read_netdict(source, shown)
        if not is_parquet(name):
            found = "Parquet on standard input" if is_standard(name) else "Parquet in gzip"
            raise InputError(shown, f"expected a net.dict, found {found}; give the name of a plain Parquet file")
    return read_parquet(Path(str(name)))


def kernels_of(container: Container, shown: str) -> Table:
    """The kernel table of a container. Raises InputError if it has none."""
    if container.kernels is None:
        found = "allocations alone: pyprof memory reads them" if container.memory is not None else "nothing"
        raise InputError(shown, f"expected GPU operations or CPU ops, found {found}")
    return container.kernels
