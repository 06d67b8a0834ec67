"""The kernel table, or the memory table, as Parquet: texts as dictionaries, unknown as null, rows in row groups.

Column names are net.dict's keys; each carries its meaning and unit as field metadata. Lists, dicts and grids are JSON
text, as in ``pyprof.table.columns``. The clocks of the GPUs and the steps
measured before the profiler started are in the file's metadata. pyarrow takes 0.1 s to import
and is loaded when a function here is called.
"""

import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pyprof._version import __version__
from pyprof.errors import InputError, SchemaError
from pyprof.files import FREE, MOST_TIMES, Name, is_standard, open_output
from pyprof.table import arrow, cpu_facts, measured_steps
from pyprof.table.columns import NULL, Coded, Columns, Data, Ragged, Table, offsets_of
from pyprof.table.gather import gatherer, literal
from pyprof.table.gpu_samples import GpuSamples, from_json, to_json
from pyprof.table.measured_steps import MeasuredStep
from pyprof.table.schema import HOST_CALLS, KERNELS, MEMORY, REQUIRED, Column

MAGIC = b"PAR1"
SCHEMA_VERSION = 1  # raised when a column changes its meaning, not when a column is added
VERSION_KEY = b"pyprof.schema_version"
SAMPLES_KEY = b"pyprof.gpu_samples"
MEASURED_KEY = b"pyprof.measured_steps"
CPU_KEY = b"pyprof.cpu"
ROW_GROUP = 1 << 17
DICTIONARY_PAGE = 16 << 20  # bytes; a row group with more distinct texts repeats them in every row
# Numbers that hardly repeat: as differences they take a third of the time and of the file that a dictionary takes.
RISING = ("start", "corr", "apiStart", "opId", "time", "address", "peer", "freed", "record", "seqId", "altSeqId")
# A capture of 121,400 rows has 2 values for each byte of its file.
FREE_VALUES, VALUES_PER_BYTE = 32 << 20, 16
# The columns that a file of each table must have, and the table's name.
NEEDED = {
    KERNELS: ("kernel table", REQUIRED),
    MEMORY: ("memory table", ("time", "bytes")),
    HOST_CALLS: ("table of host calls", ("name", "start", "duration", "pid", "tid")),
}
ADVICE = "make it with parse.py -o net.parquet, or -o net.pyprof"


def write_parquet(table: Table, output: Name, force: bool = False) -> None:
    """Write the table to the file ``output`` or to standard output."""
    with open_output(output, force) as out:
        write_columns(table, out)


def write_columns(table: Table, out: BinaryIO) -> None:
    """Write the table as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [
        pa.field(c.key, _arrow_type(pa, c.kind), metadata={"unit": c.unit, "meaning": c.meaning, "kind": c.kind})
        for c in table.schema
    ]
    facts = {VERSION_KEY: str(SCHEMA_VERSION).encode(), b"pyprof.version": __version__.encode()}
    if table.samples:
        facts[SAMPLES_KEY] = to_json(table.samples)
    if table.measured:
        facts[MEASURED_KEY] = measured_steps.to_json(table.measured)
    if table.cpu is not None:
        facts[CPU_KEY] = cpu_facts.to_json(table.cpu)
    schema = pa.schema(fields, facts)
    texts = {c.key: arrow.texts(table.coded(c.key).values) for c in table.schema if _is_text(c)}
    columns = {**table.columns, **{key: arrow.without_empty(table.coded(key)) for key in texts}}
    form: dict[str, Any] = {"compression": "zstd", "dictionary_pagesize_limit": DICTIONARY_PAGE, "version": "2.6"}
    rising = [f"{c.key}.list.element" if c.kind == "ints" else c.key for c in table.schema if c.key in RISING]
    form["column_encoding"] = dict.fromkeys(rising, "DELTA_BINARY_PACKED")
    form["use_dictionary"] = [c.key for c in table.schema if c.key not in RISING]
    form["write_statistics"] = [c.key for c in table.schema if c.kind in ("int", "float")]
    with pq.ParquetWriter(out, schema, **form) as writer:
        for begin in range(0, len(table), ROW_GROUP):
            rows = slice(begin, min(begin + ROW_GROUP, len(table)))
            arrays = [_array(pa, columns[c.key], texts.get(c.key), rows) for c in table.schema]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def read_parquet(path: Path) -> Table:
    """The kernel table in a Parquet file, written by pyprof or by another program with these columns."""
    return read_columns(path, Table)


def read_columns(path: Path, kind: type[Columns]) -> Columns:
    """The table of a kind (``Table``, ``MemoryTable``) in a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    known = {column.key: column for column in kind.schema}
    try:
        with pq.ParquetFile(path) as file:
            _check(file.schema_arrow, path, *NEEDED[kind.schema])
            check_size(file.metadata, path)
            arrow_table = file.read([name for name in file.schema_arrow.names if name in known])
            arrow_table.validate(full=True)  # reading does not check the codes of texts and the offsets of lists
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # also of names that are no UTF-8
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(path, f"expected a Parquet file, found a broken one ({why}); {ADVICE}") from None
    names = arrow_table.column_names
    columns = {name: _column(pa, path, known[name], arrow_table.column(name)) for name in names}
    facts = arrow_table.schema.metadata
    return kind(arrow_table.num_rows, columns, _samples(facts, path), _measured(facts, path), _cpu(facts, path))


def _samples(metadata: Any, path: Path) -> tuple[GpuSamples, ...]:
    """The clocks of the GPUs, from a file's metadata."""
    text = (metadata or {}).get(SAMPLES_KEY)
    try:
        return () if text is None else from_json(text)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors, too
        wanted = f"metadata {SAMPLES_KEY.decode()}: expected the readings of GPUs"
        raise SchemaError(path, f"{wanted}, found another text ({error}); {ADVICE}") from None


def _measured(metadata: Any, path: Path) -> tuple[MeasuredStep, ...]:
    """The steps timed before the profiler started, from a file's metadata."""
    text = (metadata or {}).get(MEASURED_KEY)
    try:
        return () if text is None else measured_steps.from_json(text)
    except (ValueError, RecursionError) as error:
        wanted = f"metadata {MEASURED_KEY.decode()}: expected the times of steps"
        raise SchemaError(path, f"{wanted}, found another text ({error}); {ADVICE}") from None


def _cpu(metadata: Any, path: Path) -> cpu_facts.CpuFacts | None:
    """What was recorded of the CPU, from a file's metadata."""
    text = (metadata or {}).get(CPU_KEY)
    try:
        return None if text is None else cpu_facts.from_json(text)
    except (ValueError, RecursionError) as error:
        wanted = f"metadata {CPU_KEY.decode()}: expected cores and threads"
        raise SchemaError(path, f"{wanted}, found another text ({error}); {ADVICE}") from None


def _column(pa: Any, path: Path, column: Column, found: Any) -> Data:
    try:
        return _data(pa, column, found)
    except (pa.ArrowException, ValueError) as error:
        wanted, why = _arrow_type(pa, column.kind), str(error).splitlines()[0]
        raise SchemaError(path, f"column {column.key}: expected {wanted}, found {why}; {ADVICE}") from None


def is_parquet(name: Name) -> bool:
    """Whether a file of that name exists and begins with Parquet's first bytes."""
    if is_standard(name) or not Path(str(name)).is_file():
        return False
    with Path(str(name)).open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _is_text(column: Column) -> bool:
    return column.kind in ("text", "json", "triple")


def _arrow_type(pa: Any, kind: str) -> Any:
    if kind == "ints":
        return pa.list_(pa.int64())
    return {"int": pa.int64(), "float": pa.float64()}.get(kind, pa.dictionary(pa.int32(), pa.string()))


def _array(pa: Any, data: Data, texts: Any, rows: slice) -> Any:
    """One column of one row group."""
    if isinstance(data, Coded):
        return arrow.dictionary(data.take(rows), texts)
    if isinstance(data, Ragged):
        lists = data.between(rows.start, rows.stop)
        return pa.ListArray.from_arrays(arrow.numbers(lists.offsets.astype(np.int32)), arrow.numbers(lists.values))
    part = data[rows]
    return arrow.numbers(part, ~np.isnan(part) if part.dtype.kind == "f" else part != NULL)


def _check(schema: Any, path: Path, table: str, required: tuple[str, ...]) -> None:
    names = schema.names
    for key in required:
        if key not in names:
            shown = ", ".join(names[:5]) or "none"
            message = f"expected the {table}, found no column {key!r} (columns: {shown}, ...); {ADVICE}"
            raise SchemaError(path, message)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SchemaError(path, f"expected each column once, found {twice!r} twice; {ADVICE}")
    version = (schema.metadata or {}).get(VERSION_KEY, b"1").decode("ascii", "replace")
    if version != str(SCHEMA_VERSION):
        message = f"expected schema version {SCHEMA_VERSION}, found {version!r}; read it with the pyprof that wrote it"
        raise SchemaError(path, message)


class _Footer(io.FileIO):
    """A file that gives nothing more once it is closed to readers."""

    is_open, was_asked = True, False

    def readinto(self, buffer: Any) -> int | None:
        self.was_asked |= not self.is_open
        return super().readinto(buffer) if self.is_open else 0

    def read(self, size: int | None = -1) -> bytes:
        self.was_asked |= not self.is_open
        return (super().read(size) or b"") if self.is_open else b""


def _check_chunks(path: Path) -> None:
    """Raise pyarrow's error if a column contradicts what the file says of its parts, such as the size of its texts.

    Where pyarrow's metadata is asked for such a part, that error ends the process (pyarrow 26). Reading raises it, and
    looks at the parts first: so the file is read until pyarrow asks for the first value.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _Footer(path) as file, pq.ParquetFile(file, pre_buffer=True) as parquet:
        groups, file.is_open = parquet.metadata.num_row_groups, False
        for number in range(groups):
            file.was_asked = False
            try:
                parquet.read_row_group(number, use_threads=False)
            except (pa.ArrowException, OSError):
                if not file.was_asked:
                    raise


def check_size(metadata: Any, path: Path) -> None:
    """Raise InputError if a Parquet file would fill the memory: a few bytes may repeat one value a billion times.

    ``metadata``: pyarrow's, of the file ``path``. Also raises pyarrow's errors of a damaged file.
    """
    _check_chunks(path)
    size = path.stat().st_size
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(metadata.num_columns)]
    values, unpacked = (sum(getattr(chunk, of) for chunk in chunks) for of in ("num_values", "total_uncompressed_size"))
    if values > FREE_VALUES + VALUES_PER_BYTE * size or unpacked > FREE + MOST_TIMES * size:
        found = f"{values:,} values in {unpacked:,} bytes, packed into {size:,}"
        raise InputError(path, f"expected a table that fits the memory, found {found} ({ADVICE})")


def _data(pa: Any, column: Column, found: Any) -> Data:
    """An Arrow column as a column of ``Table``."""
    if _is_text(column):
        return _coded(pa, column, found)
    array = _whole(pa, found.cast(_arrow_type(pa, column.kind)))
    if column.kind == "int":
        return arrow.array_of(array, np.int64, NULL)
    if column.kind == "float":
        return arrow.array_of(array, np.float64, np.nan)
    counts = arrow.array_of(array.value_lengths(), np.int32, 0)
    values = array.flatten()  # without the values hidden under null lists
    if values.null_count:
        raise ValueError("a null within a list")
    offsets = offsets_of(counts)
    return Ragged(offsets, arrow.array_of(values, np.int64, NULL))


def _whole(pa: Any, chunked: Any) -> Any:
    array = chunked.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # it has no rows
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], chunked.type)
    return array


def _coded(pa: Any, column: Column, found: Any) -> Coded:
    """A text column. Each distinct text is checked against the column's kind."""
    if not pa.types.is_dictionary(found.type):
        found = found.cast(pa.string()).dictionary_encode()
    array = _whole(pa, found.unify_dictionaries())
    texts = array.dictionary.cast(pa.string()).to_pylist()
    gathered = gatherer(column)
    filled = [i for i, text in enumerate(texts) if text]  # an empty text means no value and gets code -1
    values = [texts[i] if column.kind == "text" else literal(texts[i].encode()) for i in filled]
    number = np.full(len(texts) + 1, -1, np.int32)  # code -1 selects the last item
    number[filled] = gathered.check(values)
    codes = arrow.array_of(array.indices.cast(pa.int32()), np.int32, -1)
    gathered.parts.append(number[codes])
    data = gathered.data()
    assert isinstance(data, Coded)
    return data
