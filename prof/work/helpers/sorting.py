"""Helper kernels of scattered sums: they sort the indices and count equal ones before the rows are added up.

The library cub sorts, counts and computes prefix sums in the backward of embedding and index_put, and in FBGEMM's
updates of embedding tables. The names of its kernels give the dtypes, the op's arguments the number of indices.
"""

import math
import re

from pyprof.dtypes import ITEM_BYTES, cpp_bytes
from pyprof.prof.ops.embedding_call import Lookup
from pyprof.prof.ops.embedding_updates import gradient, touched
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work
from pyprof.prof.ops.operands import broadcast, tensors
from pyprof.prof.work.helpers.registry import HelperCall, rule

INDEXED = ("embedding_dense_backward", "_embedding_bag_dense_backward", "_embedding_bag_backward")  # by their second
PUTS = ("index_put", "index_put_", "_index_put_impl_")  # a list of indices is the second argument
ROWS = {"embedding_dense_backward": 2, "_embedding_bag_dense_backward": 5}  # position of the number of a table's rows
TABLES = ("SplitLookupFunction_", "fbgemm::split_embedding_backward_codegen_")
BINS = 256  # bins per pass of cub's radix sort, which handles 8 bits


def _lookup(call: HelperCall) -> Lookup | None:
    return gradient(call.arguments)[1] if call.op.startswith(TABLES) else None


def _indices(call: HelperCall) -> Tensor | None:
    found = _lookup(call)
    if found:
        return found.indices
    if call.op in PUTS:
        return _put(call)
    return call.tensor(1) if call.op in INDEXED else None


def _put(call: HelperCall) -> Tensor | None:
    """The indices of an index_put as one tensor with their broadcast shape. If they are unknown: the smallest number of
    indices for the given values."""
    positions = call.arguments[1] if len(call.arguments) > 1 else UNKNOWN
    if isinstance(positions, tuple) and (listed := tensors(positions)):
        return Tensor(broadcast("index", *(index.shape for index in listed)), "int64")
    table, values = call.tensor(0), call.tensor(2)
    if table is None or values is None or not table.numel:
        return None
    return Tensor((values.numel * min(table.shape, default=1) // table.numel,), "int64")


@rule(r"DeviceRadixSort(?:Onesweep|Histogram|Upsweep|Downsweep|SingleTile)Kernel")
def radix_sort(call: HelperCall) -> Work | None:
    """cub sorts indices: a counting pass reads the keys; a moving pass reads and writes keys and positions or
    weights"""
    index = _indices(call)
    if index is None:
        return None
    named = re.search(r"DeviceRadixSortPolicy<([\w: ]+), ([\w: ]+),|policy_hub<([\w: ]+), ([\w: ]+),", call.kernel.name)
    words = [word for word in named.groups() if word] if named else []
    item = ITEM_BYTES.get(index.dtype, math.nan)
    key, value = (_bytes(word.strip()) for word in words) if len(words) == 2 else (item, item)
    moves = not re.search(r"HistogramKernel|UpsweepKernel", call.kernel.name)
    both = index.numel * (key + value)
    return Work(0, both if moves else index.numel * key, both if moves else 0)


def _bytes(word: str) -> float:
    """Bytes of a C++ type, NaN for an unknown one. When cub sorts only keys, the values have NullType."""
    nbytes = 0 if word.endswith("NullType") else cpp_bytes(word)
    return math.nan if nbytes is None else nbytes


@rule(r"DeviceRadixSort(?:ExclusiveSum|ScanBins)Kernel")
def bins(call: HelperCall) -> Work | None:
    """cub computes prefix sums of a sort's counts: at least 4 bytes per bin (256 per block), read and written"""
    blocks = math.prod(call.kernel.grid)
    return Work(0, BINS * 4 * blocks, BINS * 4 * blocks) if blocks else None


@rule(r"DeviceUniqueByKeySweepKernel|DeviceReduceByKeyKernel|DeviceRleSweepKernel")
def unique(call: HelperCall) -> Work | None:
    """cub finds the start and count of each index in the sorted list: at least reads the list"""
    index = _indices(call)
    return Work(0, index.nbytes, 0) if index else None


@rule(r"Device(?:Compact|Scan|ReduceByKey)InitKernel")
def scan_init(call: HelperCall) -> Work | None:
    """cub marks the tiles of a scan or count as not started: writes at least 8 bytes per tile"""
    blocks, threads = math.prod(call.kernel.grid), math.prod(call.kernel.block)
    return Work(0, 0, 8 * ((blocks - 1) * threads + 1)) if blocks else None


@rule(r"DeviceScanKernel")
def scan(call: HelperCall) -> Work | None:
    """cub computes prefix sums of the indices' counts: reads and writes one int32 per index; in PyTorch's embeddings
    one int64 per possible row"""
    found = _lookup(call)
    if found:
        return Work(0, 4 * found.count, 4 * found.count)
    index, rows = _indices(call), call.arguments[ROWS[call.op]] if call.op in ROWS else UNKNOWN
    size = 8 * min(index.numel, rows) if index and isinstance(rows, int) else 0
    return Work(0, size, size) if size else None


PARTIAL = 10  # rows that a thread sums: NROWS_PER_THREAD, ATen/native/cuda/EmbeddingBackwardKernel.cu


@rule(r"krn_partial_(?:segment_offset|to_segment_idx)<")
def partial_sums(call: HelperCall) -> Work | None:
    """Computes the start and the row of each partial sum: writes at least one int64 per 10 indices"""
    index = _indices(call)
    return Work(0, 0, 8 * -(-index.numel // PARTIAL)) if index else None


@rule(r"linearize_index\w*kernel")
def linearized(call: HelperCall) -> Work | None:
    """FBGEMM numbers the rows of all tables in one sequence: reads indices, writes rows (int64) and bags (int32)"""
    found, each = _lookup(call), 8 if "wo_infos" in call.kernel.name else 12
    return Work(0, found.indices.nbytes, found.count * each) if found else None


@rule(r"embedding\w*_find_long_segments")
def long_segments(call: HelperCall) -> Work | None:
    """FBGEMM looks for rows that occur often: reads a count (int32) for each row that the update touches"""
    found = _lookup(call)
    return Work(0, 4 * round(touched(found, found.width(call.tensor(0)))[1]), 0) if found else None


@rule(r"grad_mean\w*kernel")
def divided(call: HelperCall) -> Work | None:
    """FBGEMM divides the gradient by the bags' sizes before the update: reads and writes it"""
    grad = call.tensor(0) if _lookup(call) else None
    return Work(0, grad.nbytes, grad.nbytes) if grad else None
