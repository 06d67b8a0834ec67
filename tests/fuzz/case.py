"""One case of the fuzzer, decided by a seed and a number: a damaged file and a command."""

import gzip
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzz import damage_bytes, damage_json, damage_sqlite, damage_tables
from tests.fuzz.commands import command
from tests.fuzz.seeds import seeds

SHARES = {  # how often each kind is chosen
    "nsys": 20, "kineto": 20, "nvprof": 6, "rocpd": 5, "rpd": 4, "rocprof_json": 5, "snapshot": 5, "netdict": 9,
    "parquet": 6, "parquet_folder": 5, "container": 7, "ncu": 5, "peaks": 1, "timings": 2,
}  # fmt: skip
KEPT = b"an output of an earlier run\n"


class Case(NamedTuple):
    """What is tried."""

    kind: str
    name: str  # of the file
    content: bytes | dict[str, bytes]
    words: list[str]  # of the command, with FILE, GOOD and OUT
    output: str  # what lies under the output's name before: "", "kept" or "force"


def make(seed: int, number: int, folder: Path) -> Case:
    """The case of that number. ``folder``: for what has to be a file meanwhile."""
    random = Random(f"{seed}:{number}")
    kind = random.choices(list(SHARES), list(SHARES.values()))[0]
    start = random.choice(seeds()[kind])
    name = "net" + start.suffix
    content = start.content
    if isinstance(content, dict):
        content = damage_tables.container(content, random)
    else:
        content = _damaged(kind, content, random, folder / "scratch")
        if kind == "netdict" and content[:2] == gzip.compress(b"")[:2]:
            name += ".gz"
        elif random.random() < 0.06 and kind != "parquet":
            content, name = damage_bytes.packed(content, random), f"{name}.gz"
    words = command(kind, random)
    return Case(kind, name, content, words, random.choice(("", "", "", "kept", "force")))


def _damaged(kind: str, content: bytes, random: Random, scratch: Path) -> bytes:
    if random.random() < 0.01:
        return random.choice((b"", content[:1], b"\0" * 100, b"SQLite format 3\0", b"{}", b"[]", b"PAR1", b"\x80\x04."))
    if kind in ("nsys", "nvprof", "rocpd", "rpd"):
        return damage_sqlite.damaged(content, random, scratch)
    if kind in ("kineto", "rocprof_json", "peaks", "timings"):
        return damage_json.damaged(content, random) if random.random() < 0.85 else damage_bytes.damaged(content, random)
    tables = {"snapshot": damage_tables.snapshot, "netdict": damage_tables.netdict, "parquet": damage_tables.parquet,
              "ncu": damage_tables.csv}  # fmt: skip
    return tables[kind](content, random)
