"""The devices of a table, and their operations."""

from collections.abc import Iterator

import numpy as np

from pyprof.table.columns import NULL, Bools, Ints, Table, distinct, kept_with_table

# How nsys and Kineto name copies
TO_DEVICE, TO_HOST = ("Host-to-Device", "HtoD"), ("Device-to-Host", "DtoH")
WITHIN = "Device-to-Device", "DtoD"
SMALL = 64  # most bytes of a copy of single values, such as that of .item()
DeviceKey = tuple[int, ...]  # rank, process, device; NULL where unknown
# A launch takes the host 3 to 20 µs. One that takes longer than this does something else first, such as loading the
# kernel's code (6.5 ms for a fill in a first step on an MI250, 900 ms for a first convolution on an A100; 5.4 ms for
# the first copy from pinned memory on an H200).
LONG_LAUNCH_NS = 200_000


@kept_with_table
def devices_of_rows(table: Table) -> tuple[list[DeviceKey], Ints]:
    """The devices in order, and each row's index into them."""
    keys, device = distinct(table.ints("rank"), table.ints("pid"), table.ints("device"))
    device.flags.writeable = False
    return keys, device


def device_rows(table: Table, wanted: Bools | None = None) -> Iterator[tuple[DeviceKey, Ints]]:
    """Each device with its rows that have a start time; only the ``wanted`` rows, if given."""
    keys, device = devices_of_rows(table)
    timed = table.ints("start") != NULL
    chosen = timed if wanted is None else timed & wanted
    for number, key in enumerate(keys):
        yield key, np.flatnonzero(chosen & (device == number))


def named_rows(table: Table, *words: str) -> Bools:
    """The rows whose names contain one of these words; the longer name of a copy also tells the kinds of memory."""

    def has(name: str) -> bool:
        return any(word in name for word in words)

    found: Bools = table.coded("kShortName").where(has) | table.coded("kLongName").where(has)
    return found


def ends(table: Table) -> Ints:
    """Each row's end, ns; a negative duration counts as 0."""
    return table.ints("start") + np.maximum(table.ints("kDuration"), 0)


def launched_at(table: Table) -> Ints:
    """When the host launched each row: when it began to call, or when a long launch had returned; or NULL.

    It is not after the row's start: some calls return only then. The call of a copy to the host may wait for the copy.
    """
    began, took, start = (table.ints(key) for key in ("apiStart", "apiDuration", "start"))
    long = ~named_rows(table, *TO_HOST) & (took != NULL) & (took >= LONG_LAUNCH_NS)
    found: Ints = np.where((began != NULL) & long, np.maximum(np.minimum(began + took, start), began), began)
    return found
