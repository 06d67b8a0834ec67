"""Experimental: rocprofv3's JSON (``rocprofv3 --output-format json``) -> Capture.

A file has one document per process: the agents, the symbols of kernels, tables of texts, and lists of records by kind
(rocprofiler-sdk's buffer records). `kind` and `operation` of a record are places in the tables of texts. A kernel or
copy and the call that launched it have the same internal correlation id, and so have a ROCTX range and its text.
Only the parts that are used are decoded.
"""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from pyprof.errors import InputError, SchemaError
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.formats.database import unpacked
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
from pyprof.parse.formats.text_ranges import TextRange
from pyprof.table.columns import NULL
from pyprof.text import as_utf8

KEY = "rocprofiler-sdk-tool"
Number = Annotated[int, Meta(ge=NULL + 1, le=(1 << 63) - 1)]  # of a wrong type: None (see ``salvage``)


class _Handle(Struct, gc=False):
    handle: Number = 0


class _Correlation(Struct, gc=False):
    internal: Number = 0


class _Extent(Struct, gc=False):
    x: Number = 1
    y: Number = 1
    z: Number = 1


class _Record(Struct, kw_only=True):
    start_timestamp: Number  # ns
    end_timestamp: Number
    kind: Number = 0
    operation: Number = 0
    thread_id: Number = 0
    correlation_id: _Correlation = field(default_factory=_Correlation)
    wrong: tuple[str, ...] = field(default=(), name="\0")  # fields with values of wrong types; no key of the file


class _DispatchInfo(Struct, kw_only=True, gc=False):
    agent_id: _Handle
    kernel_id: Number
    workgroup_size: _Extent = field(default_factory=_Extent)
    grid_size: _Extent = field(default_factory=_Extent)


class _Dispatch(_Record, kw_only=True, gc=False):
    dispatch_info: _DispatchInfo
    stream_id: _Handle = field(default_factory=_Handle)


class _Copy(_Record, kw_only=True, gc=False):
    dst_agent_id: _Handle = field(default_factory=_Handle)
    src_agent_id: _Handle = field(default_factory=_Handle)
    stream_id: _Handle = field(default_factory=_Handle)
    bytes: int | None = None


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
    key: int
    value: str


class _Strings(Struct):
    buffer_records: list[_Kind] = []
    marker_api: list[_Text] = []


class _Symbol(Struct):
    kernel_id: int
    kernel_name: str = ""
    formatted_kernel_name: str = ""


class _Metadata(Struct):
    pid: int = NULL


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
    with unpacked(file) as plain:
        text = as_utf8(plain.read_bytes())
    try:
        document = msgspec.json.decode(text, type=_Document)
    except msgspec.ValidationError as error:
        raise SchemaError(file, f"expected rocprofv3's JSON of ROCm 6.2 to 7, found another form: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = f"expected rocprofv3's whole JSON, found broken text: {error} (rocprofv3 writes it when the run ends)"
        raise InputError(file, found) from None
    events = Events(ROCPROFV3, [], [], [])
    for process in document.processes:
        _add(events, process)
    if not events.operations:
        found = "rocprofv3's JSON without any GPU activity (record with --kernel-trace, or --sys-trace)"
        raise InputError(file, f"expected kernels, found {found}")
    try:
        return capture_of(file, events)
    except (ValueError, OverflowError) as error:  # a number beyond 64 bits
        raise SchemaError(file, f"expected times, sizes and ids of 64 bits, found another number ({error})") from None


def _add(events: Events, process: _Process) -> None:
    """Append a process's events."""
    pid, records, kinds = process.metadata.pid, process.buffer_records, process.strings.buffer_records
    called = sorted([*records.hip_api, *records.hsa_api, *records.rccl_api], key=lambda call: call.start_timestamp)
    launches: dict[int, int] = {}
    for call in called:
        launches.setdefault(call.correlation_id.internal, len(events.calls))
        events.calls.append(_range(pid, call, _operation(kinds, call)))
    texts = {text.key: text.value for text in process.strings.marker_api}
    for marker in sorted(records.marker_api, key=lambda marker: marker.start_timestamp):
        if (name := _operation(kinds, marker)) not in NO_RANGES:
            events.markers.append(_range(pid, marker, texts.get(marker.correlation_id.internal, name)))
    gpus = {handle: gpu for handle, gpu in map(_agent, process.agents) if gpu is not None}
    events.operations.extend(_kernels(process, gpus, launches))
    for copy in records.memory_copy:  # a copy between the host and a GPU is the GPU's
        gpu = gpus.get(copy.dst_agent_id.handle) or gpus.get(copy.src_agent_id.handle) or Gpu(None)
        name, times = copy_name(_operation(kinds, copy)), (copy.start_timestamp, copy.end_timestamp)
        launch = launches.get(copy.correlation_id.internal, NULL)
        operation = Operation("memcpy", name, *times, pid, gpu.device, copy.stream_id.handle, bytes=copy.bytes)
        events.operations.append(operation._replace(call=launch, gpu=gpu.name, info=gpu.info))


def _kernels(process: _Process, gpus: dict[object, Gpu], launches: dict[int, int]) -> list[Operation]:
    symbols = process.kernel_symbols
    names = {symbol.kernel_id: kernel_name(symbol.kernel_name, symbol.formatted_kernel_name) for symbol in symbols}
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
        )
        operations.append(operation)
    return operations


def _agent(record: dict[str, Any]) -> tuple[object, Gpu | None]:
    """An agent's handle, and its GPU."""
    id_ = record.get("id")
    return id_.get("handle") if isinstance(id_, dict) else None, gpu_of(record)


def _operation(kinds: list[_Kind], record: _Record) -> str:
    """The name of a record's operation: hipLaunchKernel, MEMORY_COPY_HOST_TO_DEVICE, roctxThreadRangeA."""
    operations = kinds[record.kind].operations if 0 <= record.kind < len(kinds) else []
    return operations[record.operation] if 0 <= record.operation < len(operations) else ""


def _range(pid: int, record: _Record, text: str) -> TextRange:
    return TextRange(pid, record.thread_id, record.start_timestamp, record.end_timestamp, text)
