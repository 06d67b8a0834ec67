"""Experimental: rocprofv3's JSON (``rocprofv3 --output-format json``) -> Capture.

A file has one document per process: the agents, the symbols of kernels, tables of texts, and lists of records by kind
(rocprofiler-sdk's buffer records). `kind` and `operation` of a record are places in the tables of texts. A kernel or
copy and the call that launched it have the same internal correlation id, and so have a ROCTX range and its text.
Only the parts that are used are decoded.
"""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from pyprof.errors import InputError, SchemaError
from pyprof.files import open_input
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.formats.rocm_events import (
    NO_RANGES,
    ROCPROFV3,
    Events,
    Gpu,
    Operation,
    capture_of,
    copy_name,
    gpu_of,
    in_blocks,
    kernel_name,
)
from pyprof.parse.formats.salvage import Salvage
from pyprof.parse.formats.text_ranges import TextRange
from pyprof.table.columns import NULL
from pyprof.text import as_utf8

KEY = "rocprofiler-sdk-tool"
MOST_DIGITS = 40  # more are no number of 64 bits, and take Python long to read
Number = Annotated[int, Meta(ge=NULL + 1, le=(1 << 63) - 1)] | None  # None: unknown


class _Handle(Struct, gc=False):
    handle: Number = 0


class _Correlation(Struct, gc=False):
    internal: Number = 0


class _Extent(Struct, gc=False):
    x: Number = 1
    y: Number = 1
    z: Number = 1


class _Record(Struct, kw_only=True, gc=False):
    start_timestamp: Number  # ns
    end_timestamp: Number
    kind: Number = 0
    operation: Number = 0
    thread_id: Number = 0
    correlation_id: _Correlation = field(default_factory=_Correlation)


class _DispatchInfo(Struct, kw_only=True, gc=False):
    agent_id: _Handle
    kernel_id: Number
    workgroup_size: _Extent = field(default_factory=_Extent)
    grid_size: _Extent = field(default_factory=_Extent)


class _Operation(_Record, kw_only=True):
    wrong: tuple[str, ...] = field(default=(), name="(wrong)")  # keys of values of wrong types; no key of the file


class _Dispatch(_Operation, kw_only=True):
    dispatch_info: _DispatchInfo
    stream_id: _Handle = field(default_factory=_Handle)


class _Copy(_Operation, kw_only=True):
    dst_agent_id: _Handle = field(default_factory=_Handle)
    src_agent_id: _Handle = field(default_factory=_Handle)
    stream_id: _Handle = field(default_factory=_Handle)
    bytes: Number = None


class _Records(Struct):
    kernel_dispatch: list[_Dispatch] = []
    memory_copy: list[_Copy] = []
    hip_api: list[_Record] = []
    hsa_api: list[_Record] = []
    rccl_api: list[_Record] = []
    marker_api: list[_Record] = []


class _Kind(Struct):
    kind: str = ""
    operations: list[str] = []


class _Text(Struct):
    key: Number
    value: str


class _Strings(Struct):
    buffer_records: list[_Kind] = []
    marker_api: list[_Text] = []


class _Symbol(Struct):
    kernel_id: Number
    kernel_name: str = ""
    formatted_kernel_name: str = ""


class _Metadata(Struct):
    pid: Number = None


class _Process(Struct):
    buffer_records: _Records
    metadata: _Metadata = field(default_factory=_Metadata)
    agents: list[dict[str, Any]] = []
    strings: _Strings = field(default_factory=_Strings)
    kernel_symbols: list[_Symbol] = []


class _Document(Struct):
    processes: list[_Process] = field(name=KEY)


def read(file: Path) -> Capture:
    """Read rocprofv3's JSON.

    Raises InputError if it is cut or has no GPU activity, and SchemaError if a part is missing or of another type.
    """
    with open_input(file) as source:
        text = as_utf8(source.read())
    salvage = Salvage()
    try:
        document = _decoded(text, salvage)
    except msgspec.ValidationError as error:
        raise SchemaError(file, f"expected rocprofv3's JSON of ROCm 6.2 to 7, found another form: {error}") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        found = f"expected rocprofv3's whole JSON, found broken text: {error} (rocprofv3 writes it when the run ends)"
        raise InputError(file, found) from None
    events = Events(ROCPROFV3, [], [], [], salvage.warnings)
    for process in document.processes:
        _add(events, process)
    if not events.operations:
        found = "rocprofv3's JSON without any GPU activity (record with --kernel-trace, or --sys-trace)"
        raise InputError(file, f"expected kernels, found {found}")
    return capture_of(file, events)


def _decoded(text: bytes, salvage: Salvage) -> _Document:
    """The document; values of wrong types are unknown. Raises msgspec.ValidationError if it has another form."""
    try:
        return msgspec.json.decode(text, type=_Document)
    except msgspec.ValidationError:
        values = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < MOST_DIGITS else math.inf)
        document: _Document = salvage.record(values, _Document, (KEY,))
        return document


def _add(events: Events, process: _Process) -> None:
    """Append a process's events."""
    pid, records, kinds = process.metadata.pid, process.buffer_records, process.strings.buffer_records
    launches: dict[int | None, int] = {}
    for call in sorted([*records.hip_api, *records.hsa_api, *records.rccl_api], key=_start):
        launches.setdefault(call.correlation_id.internal, len(events.calls))
        events.calls.append(_range(pid, call, _operation(kinds, call)))
    texts = {text.key: text.value for text in process.strings.marker_api}
    launches.pop(None, None), texts.pop(None, None)
    for marker in sorted(records.marker_api, key=_start):
        if (name := _operation(kinds, marker)) not in NO_RANGES:
            events.markers.append(_range(pid, marker, texts.get(marker.correlation_id.internal, name)))
    gpus = {handle: gpu for handle, gpu in map(_agent, process.agents) if gpu is not None}
    events.operations.extend(_kernels(process, gpus, launches))
    for copy in records.memory_copy:  # a copy between the host and a GPU is the GPU's
        gpu = gpus.get(copy.dst_agent_id.handle) or gpus.get(copy.src_agent_id.handle) or Gpu(None)
        name, times = copy_name(_operation(kinds, copy)), (copy.start_timestamp, copy.end_timestamp)
        launch = launches.get(copy.correlation_id.internal, NULL)
        operation = Operation("memcpy", name, *times, pid, gpu.device, copy.stream_id.handle, bytes=copy.bytes)
        events.operations.append(operation._replace(call=launch, gpu=gpu.name, info=gpu.info, wrong=copy.wrong))


def _kernels(process: _Process, gpus: dict[object, Gpu], launches: dict[int | None, int]) -> list[Operation]:
    symbols = process.kernel_symbols
    names = {symbol.kernel_id: kernel_name(symbol.kernel_name, symbol.formatted_kernel_name) for symbol in symbols}
    names.pop(None, None)
    operations = []
    for kernel in process.buffer_records.kernel_dispatch:
        info = kernel.dispatch_info
        gpu, size, items = gpus.get(info.agent_id.handle) or Gpu(None), info.workgroup_size, info.grid_size
        block = (size.x, size.y, size.z)
        operation = Operation(
            "kernel",
            names.get(info.kernel_id, ""),
            kernel.start_timestamp,
            kernel.end_timestamp,
            process.metadata.pid,
            gpu.device,
            kernel.stream_id.handle,
            in_blocks((items.x, items.y, items.z), block),
            block,
            call=launches.get(kernel.correlation_id.internal, NULL),
            gpu=gpu.name,
            info=gpu.info,
            wrong=kernel.wrong,
        )
        operations.append(operation)
    return operations


def _agent(record: dict[str, Any]) -> tuple[object, Gpu | None]:
    """An agent's handle, and its GPU; no GPU for an agent without a handle."""
    id_ = record.get("id")
    handle = id_.get("handle") if isinstance(id_, dict) else None
    return (handle, gpu_of(record)) if type(handle) is int else (None, None)


def _operation(kinds: list[_Kind], record: _Record) -> str:
    """The name of a record's operation: hipLaunchKernel, MEMORY_COPY_HOST_TO_DEVICE, roctxThreadRangeA."""
    kind, operation = record.kind, record.operation
    operations = kinds[kind].operations if kind is not None and 0 <= kind < len(kinds) else []
    return operations[operation] if operation is not None and 0 <= operation < len(operations) else ""


def _start(record: _Record) -> int:
    """The time by which records are sorted; an unknown one comes first."""
    return NULL if record.start_timestamp is None else record.start_timestamp


def _range(pid: int | None, record: _Record, text: str) -> TextRange:
    return TextRange(pid, record.thread_id, record.start_timestamp, record.end_timestamp, text)
