"""What identifies a kernel in an ncu report and in a capture alike, however each spells it.

A key has the function's bare name, its template arguments, grid and block, the ops and autograd nodes around its
launch, and its layer. Profilers spell names differently: ``(int)4``, ``4`` and ``4ul``, with and without namespaces,
mangled or short. And a report may lack ranges, or have no more than the bare name. So there are several LEVELS of
keys, and each launch is compared at the finest that the capture has too.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.ncu.report import Launch, Size
from pyprof.table.columns import Bools, Coded, Ints, Table, numbered

LEVELS = (  # which parts a key has, beside its name, grid and block
    ("arguments", "nodes", "layer"), ("arguments", "nodes"), ("arguments", "layer"), ("arguments",),
    ("nodes", "layer"), ("nodes",), (),
)  # fmt: skip


class Key(NamedTuple):
    """A kernel's identity. None: not known, and no level that needs it applies."""

    name: str
    arguments: str | None
    nodes: tuple[str, ...] | None
    layer: tuple[str, ...] | None
    grid: Size | None
    block: Size | None

    def at(self, level: tuple[str, ...], sizes: bool) -> tuple[object, ...] | None:
        """The key at a level; None if it lacks one of the level's parts. ``sizes``: with grid and block."""
        found = [getattr(self, part) for part in level]
        if None in found:
            return None
        return (self.name, *found, *((self.grid, self.block) if sizes else ()))


# ----- names -----

CAST = re.compile(r"\((?:[A-Za-z_][\w: <>,]*)\)(?=-?\d)")  # (int)4, (at::native::Mode)2
SUFFIX = re.compile(r"\b(\d+)(?:ull|ul|ll|u|l)\b", re.IGNORECASE)  # 4ul
NAMESPACE = re.compile(r"(?:\b[A-Za-z_]\w*|<unnamed>|\(anonymous namespace\))::")
LAMBDA = re.compile(r"[\[{]lambda\(.*?\)(?: \(instance \d+\)|#\d+)?[\]}]")
BLANKS = re.compile(r"\s+|\bconst\b")
WORDS = {"true": "1", "false": "0"}


@lru_cache(maxsize=1 << 14)
def spelled(name: str) -> tuple[str, str | None]:
    """The function's bare name, and its template arguments in one spelling; None if the name has none.

    >>> spelled("void at::native::scale<(int)4, float, (bool)1>(int, T1)"), spelled("scale")
    (('scale', '4,float,1'), ('scale', None))
    >>> spelled("void native::scale<4ul, float, true>(int, float*)"), spelled("_Z5scaleILi4EfLb1EEvi")
    (('scale', '4,float,1'), ('scale', '4,float,1'))
    """
    name = demangle(name)
    inner = _arguments(name)
    if inner is None:
        return short_name(name), None
    inner = NAMESPACE.sub("", LAMBDA.sub("lambda", SUFFIX.sub(r"\1", CAST.sub("", inner))))
    inner = BLANKS.sub("", inner)
    return short_name(name), re.sub(r"\b(?:true|false)\b", lambda word: WORDS[word[0]], inner)


def _arguments(name: str) -> str | None:
    """What stands between the function's own angle brackets: the last ones before its parameters."""
    text = name.rstrip()
    if text.endswith(")"):
        text = text[: _opening(text, "(", ")")].rstrip()
    return text[_opening(text, "<", ">") + 1 : -1] if text.endswith(">") else None


def _opening(text: str, opens: str, closes: str) -> int:
    """Where the bracket opens that closes at the text's end; 0 if nowhere."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        if text[at] == closes and text[at - 1 : at + 1] != "->":
            depth += 1
        elif text[at] == opens:
            depth -= 1
            if not depth:
                return at
    return 0


# ----- the launches of a report -----

NODE = re.compile(r"(?:\w+::)+[\w.]+|\w*Backward\w*")  # aten::add, CompiledFunctionBackward
LAYER = "layer:"
ENGINE = "autograd::engine::"
DETAILS = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)  # of torch.autograd.profiler.emit_nvtx


def key_of_launch(launch: Launch) -> Key:
    """The key of a launch, from its best spelled name and its ranges in NVTX's default domain."""
    name, arguments = max(map(spelled, launch.names or (launch.name,)), key=lambda found: found[1] is not None)
    texts = [each.text for each in launch.ranges if each.nested and not each.domain]
    words = [DETAILS.sub("", text) for text in texts]
    nodes = tuple(word for word in words if NODE.fullmatch(word) and not word.startswith(ENGINE))
    layer = tuple(text.removeprefix(LAYER) for text in texts if text.startswith(LAYER))
    has_nodes = bool(nodes) or any(word.startswith(ENGINE) for word in words)
    return Key(name, arguments, nodes if has_nodes else None, layer if texts else None, launch.grid, launch.block)


# ----- the rows of a capture -----


def keys_of_rows(table: Table, rows: Ints) -> tuple[list[Key], Ints]:
    """The distinct keys of some rows, and each row's number among them."""
    part = table.take(rows)
    columns = [part.coded(key) for key in ("kLongName", "kShortName", "grid", "block", "nodes", "layer", "dir")]
    first, number = numbered(*(column.codes for column in columns))
    texts = zip(*(column.take(first).texts() for column in columns), strict=True)
    return [_key_of_row(*each) for each in texts], number


def _key_of_row(long: str, short: str, grid: str, block: str, nodes: str, layer: str, direction: str) -> Key:
    name, arguments = spelled(long or short)
    # In a backward pass a row has its forward op's layer, and the launching thread has none.
    layers = () if direction == "bprop" else tuple(_texts(layer))
    return Key(name, arguments, tuple(_texts(nodes)) if nodes else None, layers, _size(grid), _size(block))


def _texts(text: str) -> list[str]:
    return [str(item) for item in json.loads(text)] if text else []


def _size(text: str) -> Size | None:
    if not text:
        return None
    x, y, z = json.loads(text)
    return int(x), int(y), int(z)


# ----- both -----


Class = tuple[int, int]  # a level, and the number of a key at it


class Compared(NamedTuple):
    """A report's launches and a capture's rows in one numbering of keys.

    ``launch``: for each launch the number of its key. ``level``: the level at which that is, -1 if the capture has no
    such kernel. ``doubtful``: the ops around it are known on both sides and differ. ``rows``: for each level the
    numbers of the rows' keys.
    """

    launch: Ints
    level: Ints
    doubtful: Bools
    rows: tuple[Ints, ...]

    def classes(self, launches: Ints) -> list[Class]:
        """The key of each of some launches."""
        return list(zip(self.level[launches].tolist(), self.launch[launches].tolist(), strict=True))

    def places(self, wanted: Iterable[Class], among: Ints) -> dict[Class, Ints]:
        """Where among some rows those of each key stand; nowhere if no row has it."""
        nowhere = np.zeros(0, np.int64)
        found = dict.fromkeys(wanted, nowhere)
        for level in sorted({level for level, _ in found if level >= 0}):
            numbers = self.rows[level][among]
            order = np.argsort(numbers, kind="stable")
            keys, begins = np.unique(numbers[order], return_index=True)
            parts = dict(zip(keys.tolist(), np.split(order, begins[1:]), strict=True)) if len(order) else {}
            found.update({each: parts.get(each[1], nowhere) for each in found if each[0] == level})
        return found


def compare(launches: Sequence[Launch], table: Table, rows: Ints) -> Compared:
    """Number the keys of both sides, each launch at the finest level that some row shares."""
    keys = [key_of_launch(launch) for launch in launches]
    row_keys, number = keys_of_rows(table, rows)
    sizes = all(key.grid is not None for key in keys) and all(key.grid is not None for key in row_keys)
    levels = [parts for parts in LEVELS if "layer" not in parts or any(key.layer for key in keys)]
    numbers: dict[object, int] = {}
    launch, level = np.full(len(keys), -1, np.int64), np.full(len(keys), -1, np.int64)
    columns = []
    for place, parts in enumerate(levels):
        found = [key.at(parts, sizes) for key in row_keys]
        codes = [-1 if key is None else numbers.setdefault((place, key), len(numbers)) for key in found]
        columns.append(np.array(codes, np.int64)[number] if codes else np.zeros(0, np.int64))
        for index, key in enumerate(keys):
            mine = key.at(parts, sizes)
            if level[index] < 0 and mine is not None and (place, mine) in numbers:
                launch[index], level[index] = numbers[place, mine], place
    rows_have_nodes = any(key.nodes for key in row_keys)
    doubtful = [
        rows_have_nodes and bool(key.nodes) and "nodes" not in levels[place]
        for key, place in zip(keys, level, strict=True)
    ]
    return Compared(launch, level, np.array(doubtful, bool), tuple(columns))


def names_of_rows(table: Table, rows: Ints) -> Coded:
    """The bare name of each row's kernel."""
    keys, number = keys_of_rows(table, rows)
    return Coded.of(key.name for key in keys).take(number)


def bare_names(launches: Iterable[Launch]) -> list[str]:
    """The bare name of each launch's kernel."""
    return [key_of_launch(launch).name for launch in launches]
