"""What AMD's formats have in common: the events of a run, the names of kernels and copies, the facts of an agent.

rocprofv3 writes the same records as a database (``rocpd``) and as JSON (``rocprof_json``). The grid is in work-items. A
kernel and the HIP call that launched it have the same number. PyTorch's own ranges are ROCTX ranges.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.databases.whole_numbers import LEFT_OUT
from pyprof.parse.formats.cupti import Calls, triples, wrong_operations
from pyprof.parse.formats.gpu_info import info_text
from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.formats.lost_records import untimed
from pyprof.parse.formats.possible_times import LATEST_NS, is_possible, settle, times_warning
from pyprof.parse.formats.text_ranges import TextRange, capture_fields
from pyprof.table.columns import NULL, Coded, Ints

EXPERIMENTAL = "AMD's own formats are read experimentally: compare with a torch.profiler trace, which is read fully"
ROCPROFV3 = "rocprofv3"
# ROCTX calls that are no range of a thread: marks, the beginnings and ends of a process's ranges, settings
NO_RANGES = frozenset(
    "roctxMarkA roctxRangePop roctxProcessRangeA roctxRangeStartA roctxRangeStop roctxGetThreadId".split()
)
_GPU_MEMORY = (1, 2)  # HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC and _PRIVATE of hsakmttypes.h
# The facts of an agent that are read of rocprofiler's record (``gpu_of``).
AGENT_KEYS = frozenset(
    "type mem_banks heap_type size_in_bytes gfx_target_version max_engine_clk_fcompute cu_count wave_front_size "
    "product_name name logical_node_type_id".split()
)
_DIRECTION = re.compile(r"(host|device)_?to_?(host|device)", re.IGNORECASE)


class Gpu(NamedTuple):
    """A GPU: its number among the machine's GPUs, and the kernel table's columns `gpu` and `gpuInfo`."""

    device: int | None
    name: str = ""
    info: str = ""


class Operation(NamedTuple):
    """A GPU operation. None and ``NULL`` are unknown."""

    kind: str
    name: str
    start: int | None  # ns
    end: int | None
    pid: int | None
    device: int | None
    stream: int | None
    grid: Sequence[int | None] = (NULL, NULL, NULL)  # in blocks
    block: Sequence[int | None] = (NULL, NULL, NULL)
    bytes: int | None = NULL
    call: int = NULL  # index of the call that launched it
    gpu: str = ""
    info: str = ""
    wrong: tuple[str, ...] = ()  # the file's names of the fields that have values of a wrong type

    def numbers(self) -> list[int]:
        """All numbers."""
        return [_number(value) for value in (*self[2:7], *self.grid, *self.block, self.bytes, self.call)]


class Events(NamedTuple):
    """The events of a run, in order of start."""

    profiler: str
    operations: list[Operation]
    calls: list[TextRange]
    markers: list[TextRange]
    warnings: list[str]  # about values of wrong types, except those of operations


def in_blocks(grid: Sequence[int | None], block: Sequence[int | None]) -> list[int | None]:
    """The grid in blocks, from a grid in work-items.

    >>> in_blocks((1000, 2, 1), (256, 1, 1))
    [4, 2, 1]
    """
    sizes = zip(grid, block, strict=True)
    return [None if items is None or size is None else -(-items // max(size, 1)) for items, size in sizes]


def kernel_name(symbol: str, display: str) -> str:
    """The kernel's full name, of the code object's symbol and the name that rocprofv3 displays.

    rocprofv3 displays the whole name, unless it runs with -M (mangled) or -T (no parameters). Its demangler knows AMD's
    types: GNU's takes std::bfloat16_t (DF16b) for `bool _Accum` and the rest of the name for something else.

    >>> kernel_name("_Z4reluPDF16b.kd", "relu(std::bfloat16_t*)"), kernel_name("_ZN2at4reluEPf.kd", "relu")
    ('relu(std::bfloat16_t*)', 'at::relu(float*)')
    """
    symbol = symbol.removesuffix(".kd")
    mangled = symbol.startswith("_Z")
    return display if mangled and "(" in display else demangle(symbol) or display


def copy_name(text: str) -> str:
    """A copy's name with the direction as nsys writes it.

    >>> copy_name("MEMORY_COPY_HOST_TO_DEVICE"), copy_name("CopyDeviceToHost")
    ('[HIP memcpy Host-to-Device]', '[HIP memcpy Device-to-Host]')
    """
    found = _DIRECTION.search(text)
    return f"[HIP memcpy {found[1].title()}-to-{found[2].title()}]" if found else text


def gpu_of(agent: Mapping[str, Any]) -> Gpu | None:
    """The GPU that rocprofiler's record of an agent describes (rocprofiler_agent_v0_t); None for a CPU."""
    if agent.get("type") != 2:  # ROCPROFILER_AGENT_TYPE_GPU
        return None
    banks = agent.get("mem_banks")
    memory = [bank for bank in banks if isinstance(bank, dict)] if isinstance(banks, list) else []
    sizes = [bank.get("size_in_bytes") for bank in memory if bank.get("heap_type") in _GPU_MEMORY]
    target, clock = agent.get("gfx_target_version"), agent.get("max_engine_clk_fcompute")
    capability = (target // 10_000, target // 100 % 100) if type(target) is int else (None, None)  # 90402 is gfx942
    facts = {
        "smCount": agent.get("cu_count"),
        "clockRate": clock * 1_000_000 if type(clock) is int else None,  # from MHz
        "computeMajor": capability[0],
        "computeMinor": capability[1],
        "totalMemory": sum(size for size in sizes if type(size) is int),
        "threadsPerWarp": agent.get("wave_front_size"),
    }
    names = (agent.get(key) for key in ("product_name", "name"))
    name = next((name for name in names if isinstance(name, str) and name), "")
    number = agent.get("logical_node_type_id")
    return Gpu(number if type(number) is int else None, name, info_text(facts.items()))


def capture_of(file: Path, events: Events) -> Capture:
    """The capture of a run's events, all of whose numbers are of 64 bits. A marker without a time is left out."""
    numbers = np.array([operation.numbers() for operation in events.operations], np.int64)
    starts, ends, wrong = settle(numbers[:, 0], numbers[:, 1], earliest=1)
    order = np.argsort(starts, kind="stable")
    start, end = starts[order], ends[order]
    pid, device, stream, gx, gy, gz, bx, by, bz, size, launched = numbers[order, 2:].T
    operations = [events.operations[i] for i in order.tolist()]
    long = Coded.of(operation.name for operation in operations)
    calls = np.array([[_number(value) for value in call[:4]] for call in events.calls], np.int64).reshape(-1, 4)
    markers = [marker for marker in events.markers if _is_whole(marker)]
    begun = [int(start[0]), *calls[:, 2].tolist(), *(marker.start for marker in markers)]
    origin = min((time for time in begun if 0 < time < LATEST_NS), default=0)
    names = Coded.of(call.text for call in events.calls)
    api = Calls(calls[:, 2], calls[:, 3], calls[:, 0], calls[:, 1], names, np.arange(len(calls)))
    columns = {
        "kind": Coded.of(operation.kind for operation in operations),
        "kShortName": Coded(long.codes, [short_name(name) for name in long.values]),
        "kLongName": Coded(long.codes, [demangle(name) for name in long.values]),
        "start": start - origin,
        "kDuration": end - start,
        "pid": pid,
        "device": device,
        "stream": stream,
        "grid": triples(gx, gy, gz),
        "block": triples(bx, by, bz),
        "bytes": size,
        "gpu": Coded.of(operation.gpu for operation in operations),
        "gpuInfo": Coded.of(operation.info for operation in operations),
    }
    fields = capture_fields(columns, np.where(launched == NULL, -1, launched), api, markers, origin)
    fields["losses"] += untimed(wrong)
    warnings = [EXPERIMENTAL, *times_warning(wrong), *_wrong_types(events, ends - starts), *events.warnings]
    if len(markers) < len(events.markers):
        warnings.append(LEFT_OUT.format(len(events.markers) - len(markers)))
    return Capture(file=str(file), profiler=events.profiler, warnings=warnings, **fields)


def _is_whole(marker: TextRange) -> bool:
    owner = {marker.pid, marker.tid}
    return not owner & {None, NULL} and is_possible(marker.start) and is_possible(marker.end)


def _wrong_types(events: Events, took: Ints) -> list[str]:
    """A warning about the operations with values of wrong types. ``took``: ns of each operation."""
    rows = [row for row, operation in enumerate(events.operations) if operation.wrong]
    columns = [column for row in rows for column in events.operations[row].wrong]
    return [wrong_operations(len(rows), int(took[rows].sum()), columns)] if rows else []


def _number(value: int | None) -> int:
    """The value; ``NULL`` for one that the file does not have."""
    return NULL if value is None else value
