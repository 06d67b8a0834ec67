"""Damage to kernel tables (net.dict, Parquet, containers), to tables of text, and to pickles."""

import io
import json
import pickle
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz import damage_bytes, damage_json, values


def parquet(content: bytes, random: Random) -> bytes:
    """A Parquet file with other columns, types or bytes."""
    if random.random() < 0.4:
        return damage_bytes.damaged(content, random)
    out = io.BytesIO()
    codec = random.choice(("zstd", "snappy", "gzip", "none"))
    try:
        table = pq.read_table(pa.BufferReader(content))
        for _ in range(random.choice((1, 1, 2, 5))):
            if table.num_columns:
                table = _other_column(table, random)
        pq.write_table(table, out, compression=codec, row_group_size=random.choice((None, 1, 7)))
    except (pa.ArrowException, ValueError, OSError):  # it is damaged already, or not every type can be written
        return damage_bytes.damaged(content, random)
    return out.getvalue()


def _other_column(table: pa.Table, random: Random) -> pa.Table:
    at = random.randrange(table.num_columns)
    name = table.column_names[at]
    how = random.randrange(7)
    if how == 0:
        return table.remove_column(at)
    if how == 1:
        names = [values.text(random, old) if i == at else old for i, old in enumerate(table.column_names)]
        return table.rename_columns(names)
    if how == 2:
        return table.append_column(name, table.column(at))
    if how == 3:
        return table.slice(0, random.choice((0, 1, 3)))
    if how == 4:
        return table.replace_schema_metadata({values.text(random).encode("utf-8", "replace"): b"\xff"})
    rows = table.num_rows
    if how == 5:
        return table.set_column(at, name, _array(random, rows))
    cells = table.column(at).to_pylist()
    if rows:
        row = random.randrange(rows)
        cells[row] = values.value(random, cells[row], large=False)
    try:
        return table.set_column(at, name, pa.array(cells, table.schema.field(at).type))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return table.set_column(at, name, _array(random, rows))


def _array(random: Random, rows: int) -> pa.Array:
    """A column of one value, of any type."""
    made: Any = random.choice((
        pa.array([3] * rows, pa.int64()),
        pa.array([2**63 - 1] * rows, pa.int64()), pa.array([-1] * rows, pa.int8()),
            pa.array([2**64 - 1] * rows, pa.uint64()),
        pa.array([float("nan")] * rows, pa.float64()), pa.array([1.5] * rows, pa.float32()), pa.nulls(rows),
        pa.array([values.text(random).encode("utf-8", "replace").decode()] * rows, pa.string()),
        pa.array([b"\xff\xfe"] * rows, pa.binary()), pa.array([[1, None]] * rows, pa.list_(pa.int64())),
        pa.array([{"a": 1}] * rows), pa.array([True] * rows), pa.array([10**17] * rows, pa.timestamp("ns")),
        pa.array(["a"] * rows).dictionary_encode(), pa.array([10**20] * rows, pa.decimal128(30)),
        pa.array([None] * rows, pa.string()), pa.array(["x"] * rows, pa.large_string()),
    ))  # fmt: skip
    return made


def netdict(content: bytes, random: Random) -> bytes:
    """Lines with other values, in Python's form or JSON's, or other bytes."""
    lines = content.splitlines(keepends=True)
    how = random.randrange(6)
    if how == 0 or not lines:
        return damage_bytes.damaged(content, random)
    at = random.randrange(len(lines))
    if how == 1:
        random.shuffle(lines)
    elif how == 2:
        lines[at] = _as_json(lines[at], random)
    elif how == 3:
        lines[at] = values.text(random, lines[at].decode("utf-8", "replace")).encode("utf-8", "replace")
    else:
        for _ in range(random.choice((1, 1, 3))):
            lines[at] = damage_json._text(lines[at], random)
    return b"".join(lines)


def _as_json(line: bytes, random: Random) -> bytes:
    text = line.decode("utf-8", "replace").replace("(", "[").replace(")", "]").replace("None", "null")
    try:
        tree = damage_json.change(json.loads(text), random)
    except ValueError:
        return damage_json._text(line, random)
    return (
        (json.dumps(tree) + "\n").encode() if random.random() < 0.5 else (repr(tree) + "\n").encode("utf-8", "replace")
    )


def container(content: dict[str, bytes], random: Random) -> dict[str, bytes]:
    """A container with another meta.json or other tables; also a folder of nsys's tables."""
    files = dict(content)
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(list(files))
        how = random.randrange(8)
        if how == 0 and len(files) > 1:
            del files[name]
        elif how == 1:
            files[random.choice(list(content))] = files[name]
        elif name.endswith(".json"):
            files[name] = damage_json.damaged(files[name], random) if _is_json(files[name]) else b"{"
        else:
            files[name] = parquet(files[name], random) if files[name][:4] == b"PAR1" else b"PAR1"
    return files


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def csv(content: bytes, random: Random) -> bytes:
    """Cells, lines and words of a table of text."""
    lines = content.splitlines(keepends=True)
    how = random.randrange(6)
    if how == 0 or not lines:
        return damage_bytes.damaged(content, random)
    at = random.randrange(len(lines))
    if how == 1:
        del lines[at]
    elif how == 2:
        lines[at:at] = [lines[random.randrange(len(lines))]] * random.choice((1, 100))
    elif how == 3:
        random.shuffle(lines)
    else:
        cells = lines[at].split(b'","')
        cell = random.randrange(len(cells))
        cells[cell] = values.text(random, cells[cell].decode("utf-8", "replace")).encode("utf-8", "replace")
        lines[at] = b'","'.join(cells)
    return b"".join(lines)


def snapshot(content: bytes, random: Random) -> bytes:
    """A pickle of other values, or with other bytes."""
    if random.random() < 0.4:
        return damage_bytes.damaged(content, random)
    tree = pickle.loads(content)  # noqa: S301 -- the seed is our own
    for _ in range(random.choice((1, 1, 2, 6))):
        tree = damage_json.change(tree, random)
    return pickle.dumps(tree, protocol=random.choice((2, 4, 5)))
