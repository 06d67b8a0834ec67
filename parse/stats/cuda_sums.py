"""cuda_* and osrt_sum: time of kernels, copies and calls, by name; sizes of copies; waits between launch and kernel."""

import numpy as np

from pyprof.parse.stats import group_statistics as grouped
from pyprof.parse.stats.group_statistics import Cells, Columns, Rows, by_text, rounded, statistics
from pyprof.parse.stats.recording import KERNEL, MEMCPY, MEMSET, Calls, Gpu, Recording
from pyprof.table.columns import NULL, Coded, distinct, numbered

MB = 1e6  # bytes: nsys's MB is decimal


def osrt_sum(recording: Recording, _: str = "") -> Rows:
    """Calls of the operating system's runtime."""
    return grouped.time_rows(recording.os.name, recording.os.durations())


def cuda_api_sum(recording: Recording, _: str = "") -> Rows:
    """Calls of the CUDA API."""
    return grouped.time_rows(_functions(recording.api), recording.api.durations())


def _functions(calls: Calls) -> Coded:
    """API names as nsys prints them."""
    return Coded(calls.name.codes, [without_version(name) for name in calls.name.values])


def without_version(name: str) -> str:
    """The name without its ABI version, which nsys strips if it has four digits.

    >>> without_version("cudaLaunchKernel_v7000"), without_version("cudaGraphLaunch_v10000")
    ('cudaLaunchKernel', 'cudaGraphLaunch_v10000')
    """
    return name[:-6] if name[-6:-4] == "_v" else name


def kernel_names(gpu: Gpu, variant: str) -> Coded:
    """The names by which a report's variant groups."""
    return by_text({"": gpu.name, "base": gpu.base, "mangled": gpu.mangled}[variant])


def cuda_gpu_kern_sum(recording: Recording, variant: str = "") -> Rows:
    gpu = recording.gpu.of(KERNEL)
    return grouped.time_rows(kernel_names(gpu, variant), gpu.durations())


def cuda_gpu_kern_gb_sum(recording: Recording, variant: str = "") -> Rows:
    gpu = recording.gpu.of(KERNEL)
    names, grids, blocks = kernel_names(gpu, variant), by_text(gpu.grid), by_text(gpu.block)
    groups, code = distinct(names.codes, grids.codes, blocks.codes)
    names_of = [names.values[n] for n, _, _ in groups]
    grids_of, blocks_of = [_xyz(grids.values[g]) for _, g, _ in groups], [_xyz(blocks.values[b]) for _, _, b in groups]
    texts = [f"{name} {grid} {block}" for name, grid, block in zip(names_of, grids_of, blocks_of, strict=True)]
    return grouped.group_rows(code, gpu.durations(), texts, [grids_of, blocks_of, names_of])


def _xyz(size: str) -> str:
    """`[4, 1, 1]` in columns of four characters, as nsys writes it.

    >>> _xyz("[4, 1, 1]")
    '   4    1    1'
    """
    return " ".join(f"{number:>4}" for number in size.strip("[]").split(", ")) if size else ""


def cuda_gpu_sum(recording: Recording, variant: str = "") -> Rows:
    gpu = recording.gpu
    names = kernel_names(gpu, variant)
    groups, code = distinct(names.codes, (gpu.kind != KERNEL).astype(np.int64))
    kinds = ["MEMORY_OPER" if is_memory else "CUDA_KERNEL" for _, is_memory in groups]
    texts = [names.values[name] for name, _ in groups]
    return grouped.group_rows(code, gpu.durations(), texts, [kinds, texts])


def cuda_gpu_mem_time_sum(recording: Recording, _: str = "") -> Rows:
    gpu = recording.gpu.of(MEMCPY, MEMSET)
    return grouped.time_rows(gpu.name, gpu.durations())


def cuda_gpu_mem_size_sum(recording: Recording, _: str = "") -> Rows:
    """Operations of unknown size are left out: an unknown size is not zero."""
    gpu = recording.gpu.of(MEMCPY, MEMSET)
    gpu = gpu.take(gpu.bytes != NULL)
    names = by_text(gpu.name)
    found = statistics(names.codes, gpu.bytes).largest_first(names.values)
    sizes = (found.total, found.mean, found.median, found.low, found.high, found.deviation)
    total, *spread = (Cells.of(column / MB, grouped.THOUSANDTH) for column in sizes)
    return Columns([total, Cells.of(found.rows), *spread, Cells(names.values, found.group)])


def cuda_kern_exec_sum(recording: Recording, variant: str = "") -> Rows:
    """Four times in ns: A (the API call), K (the kernel), Q (the wait in the queue), T (the total).

    Q is from the call's end to the kernel's start, and counts only where the kernel starts later. T is from the call's
    start to the later end of both. Rows are sorted by the mean of T, descending.
    """
    gpu = recording.gpu.of(KERNEL)
    gpu = gpu.take(gpu.launch.start != NULL)
    call = gpu.launch
    kernels, apis = kernel_names(gpu, variant), by_text(_functions(call))
    keys = (call.pid, call.tid, gpu.device, apis.codes, kernels.codes)
    first, code = numbered(*keys)
    queued = gpu.start - call.end
    late = queued > 0
    total = statistics(code, np.maximum(call.end, gpu.end) - call.start)  # of all groups, in their order
    api, kernel, queue = (
        statistics(group, values)
        for group, values in ((code, call.durations()), (code, gpu.durations()), (code[late], queued[late]))
    )
    texts = [
        f"{kernels.values[k]} {apis.values[a]}" for a, k in zip(*(key[first].tolist() for key in keys[3:]), strict=True)
    ]
    order = np.array(sorted(range(len(first)), key=lambda group: (-total.mean[group], texts[group])), np.int64)
    *owners, a, k = (key[first[order]] for key in keys)
    place = np.full(len(first), -1, np.int64)
    place[queue.group] = np.arange(len(queue.group))
    place = place[order]
    # If no kernel of a group waited, only the deviation is set, as in nsys.
    no_waits = (None, None, None, None, rounded(0.0))
    waits = [cells.at(place, missing) for cells, missing in zip(queue.times(), no_waits, strict=True)]
    return Columns(
        [
            *map(Cells.of_known, owners),
            Cells.of(total.rows[order]),
            Cells.of(queue.rows).at(place, 0),
            *total.take(order).times(),
            *api.take(order).times(),
            *waits,
            *kernel.take(order).times(),
            Cells(apis.values, a),
            Cells(kernels.values, k),
        ]
    )
