"""FLOPs, bytes and tensor cores of operations, from the raw file's shapes, types and names; for ``audit.py``.

Only work that follows from the recorded call without doubt: matrix products and convolutions (2 for each multiply-add),
simple element-wise ops (each operand is read once, the result is written once), copies and fills (no FLOPs; the bytes
of the copy's own record). Each is compared with the sum over the rows that pyprof prints for the call.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from tools.audit_kinds import FILL, MOVE, innermost, kinds_of
from tools.audit_raw import Operation, Range

Shape = list[int]
Check = tuple[str, Any, Any]
ITEM = {"float": 4, "float32": 4, "double": 8, "half": 2, "c10::half": 2, "c10::bfloat16": 2, "long int": 8, "int": 4}
ITEM |= {"long": 8, "bool": 1, "unsigned char": 1, "signed char": 1}
SAME_TYPE = (  # element-wise ops whose result has the type of their operands
    "add|sub|mul|div|neg|exp|log|sqrt|rsqrt|abs|tanh|sigmoid|relu|silu|gelu|clamp_min|threshold_backward"
    "|tanh_backward|sigmoid_backward|gelu_backward|silu_backward|maximum|minimum|addcmul|addcdiv"
)


class Call(NamedTuple):
    """An op's call: shapes of its inputs, its other arguments as texts, and the shape of its result if it is known."""

    sizes: Sequence[Shape]
    values: Sequence[str]
    result: Shape


def product_flop(op: str, call: Call) -> tuple[int, ...]:
    """The FLOPs of a matrix product or convolution; several where the file leaves open which gradients were computed.

    Empty if it is neither, or if its shapes are not recorded.
    """
    try:
        return PRODUCTS[op](call) if op in PRODUCTS else ()
    except (IndexError, TypeError, ValueError):  # a shape or option is missing
        return ()


def _matrices(first: int) -> Callable[[Call], tuple[int, ...]]:
    """Of A [.., M, K] and B [.., K, N], the arguments from ``first`` on."""

    def flop(call: Call) -> tuple[int, ...]:
        a, b = call.sizes[first], call.sizes[first + 1]
        if len(a) < 2 or len(a) != len(b) or a[-1] != b[-2]:
            raise ValueError("not two matrices")
        return (2 * math.prod(a) * b[-1],)

    return flop


def _convolution(order: tuple[int, int, int]) -> Callable[[Call], tuple[int, ...]]:
    """Of an input [N, C, ...] and a weight [O, C / groups, ...]; ``order``: where padding, stride and dilation are."""

    def flop(call: Call) -> tuple[int, ...]:
        x, weight = call.sizes[:2]
        result = call.result
        if call.values:
            padding, stride, dilation = (json.loads(call.values[place]) for place in order)
            reach = [dilation[i] * (weight[2 + i] - 1) + 1 for i in range(len(x) - 2)]
            spatial = [(x[2 + i] + 2 * padding[i] - reach[i]) // stride[i] + 1 for i in range(len(x) - 2)]
            result = [x[0], weight[0], *spatial]
        if len(result) != len(weight):
            raise ValueError("the result's shape is not known")
        return (2 * math.prod(result) * math.prod(weight[1:]),)

    return flop


def _convolution_backward(call: Call) -> tuple[int, ...]:
    """For each gradient, of the input and of the weight, as many as forward; for the bias' one a sum over the rest."""
    gradient, x, weight = call.sizes[:3]
    if gradient[1] != weight[0] or x[0] != gradient[0]:
        raise ValueError("transposed")
    one = 2 * math.prod(gradient) * math.prod(weight[1:])
    if not call.values:
        return (one, 2 * one)  # NVTX does not have the mask
    mask = [word.strip() == "true" for word in call.values[10].lower().strip("[]").split(",")]
    products = one * sum(mask[:2])
    bias = math.prod(gradient) - weight[0]
    return (products, products + bias) if mask[2] else (products,)  # another op within may do the bias' sum


def _old_backward(call: Call) -> tuple[int, ...]:
    """PyTorch before 1.11: an op for each gradient, [sizes as numbers], dy, and the weight or the input."""
    gradient, weight = call.sizes[1], call.sizes[2]
    if gradient[1] != weight[0]:
        raise ValueError("the input, not the weight")
    return (2 * math.prod(gradient) * math.prod(weight[1:]),)


PRODUCTS: dict[str, Callable[[Call], tuple[int, ...]]] = {
    "mm": _matrices(0),
    "bmm": _matrices(0),
    "_int_mm": _matrices(0),
    "_scaled_mm": _matrices(0),
    "addmm": _matrices(1),
    "baddbmm": _matrices(1),
    "cudnn_convolution": _convolution((2, 3, 4)),
    "miopen_convolution": _convolution((3, 4, 5)),
    "convolution_backward": _convolution_backward,
    "cudnn_convolution_backward_input": _old_backward,
}


def results(operations: Iterable[Operation]) -> dict[str, Shape]:
    """The shape of a forward op's result, by sequence number: its backward node takes a gradient of that shape."""
    found: dict[str, Shape] = {}
    for range_ in {id(range_): range_ for row in operations for range_ in row.around}.values():
        sizes = range_.arguments.get("sizes")
        if sizes and re.match(r"\w+Backward\d*(?:, |$)", range_.name):
            found.setdefault(range_.arguments.get("seq", ""), sizes[0])
    return found


def _call(row: Operation, shapes: Mapping[str, Shape]) -> Call:
    """The call of the innermost range; its result, if an op of the same kind around it has a sequence number."""
    arguments = row.around[-1].arguments
    numbers = [around.arguments.get("seq", "") for around in reversed(row.around) if "conv" in around.name]
    result = next((shapes[number] for number in numbers if number in shapes), [])
    return Call(arguments.get("sizes") or [], arguments.get("values") or [], result)


def element_bytes(op: str, arguments: Mapping[str, Any]) -> int | None:
    """Bytes that an element-wise op of one type reads and writes; None for others, or where shapes or types lack."""
    types, sizes = arguments.get("types") or [], arguments.get("sizes") or []
    tensors = [(size, str(kind).lower(), at) for at, (size, kind) in enumerate(zip(sizes, types, strict=False)) if size]
    kinds = {kind for _, kind, _ in tensors}
    scalars = [kind for size, kind in zip(sizes, types, strict=False) if not size and str(kind).lower() in ITEM]
    if not re.fullmatch(SAME_TYPE, op) or len(kinds) != 1 or not kinds <= ITEM.keys() or scalars:
        return None
    if any(not all(isinstance(number, int) for number in size) for size, _, _ in tensors):
        return None
    strides = arguments.get("strides") or []
    if not strides and len(tensors) > 1:
        return None  # a broadcast operand cannot be told from a stored one
    read = [_stored(size, strides[at] if at < len(strides) else []) for size, _, at in tensors]
    shape = _broadcast([size for size, _, _ in tensors])
    return ITEM[kinds.pop()] * (sum(read) + math.prod(shape))


def _stored(size: Shape, strides: Shape) -> int:
    """The elements that a tensor has in memory: those of an expanded dimension (stride 0) lie there once."""
    return math.prod(n for n, stride in zip(size, strides or [1] * len(size), strict=True) if stride != 0)


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    length = max(map(len, shapes))
    padded = [[1] * (length - len(shape)) + list(shape) for shape in shapes]
    return [max(column) if min(column) else 0 for column in zip(*padded, strict=True)]


# --- tensor cores ------------------------------------------------------------------------------------------------

# The instruction in a name: HMMA's and IMMA's shapes, Hopper's wgmma, cuBLASLt's nvjet in 16 and 8 bits, AMD's MFMA.
ON_TENSOR_CORES = re.compile(
    r"tensorop|wgmma|[hi]mma|_[shi](?:884|1688|16816|16832)(?:gemm|cudnn|fprop|dgrad|wgrad)"
    r"|nvjet_(?:sm\d+_)?[thqr][a-z]{2,3}_|Cijk_\w*_MI[1-9]\d*x\d+|flash_(?:fwd|bwd)_kernel"
)
NOT_ON_TENSOR_CORES = re.compile(r"(?:^|_)[sd]gemm_|_ffma_|_simt_|gemv|dot_kernel|implicit_convolve_[sd]gemm|scudnn")


@cache
def tensor_core(name: str) -> str:
    """ "1" or "0" where the kernel's name says whether it used tensor cores, else empty."""
    if NOT_ON_TENSOR_CORES.search(name):
        return "0"
    return "1" if ON_TENSOR_CORES.search(name) else ""


def work_sums(operations: Sequence[Operation]) -> dict[str, int | None]:
    """The summary's sums of the rows: FLOPs and bytes, and the time of the rows for which they are known."""
    known = {name: [row for row in operations if row.printed[name]] for name in ("FLOPs", "Bytes")}
    return {
        "flop": _known_sum(operations, "FLOPs"),
        "nbytes": _known_sum(operations, "Bytes"),
        "counted_ns": sum(row.duration for row in known["FLOPs"]),
        "bytes_counted_ns": sum(row.duration for row in known["Bytes"]),
        "tensor_ns": sum(row.duration for row in operations if row.printed["TC"] == "1"),
    }


def _known_sum(operations: Sequence[Operation], column: str) -> int | None:
    """The sum; None if it is 0 and some are unknown, because that is not zero work."""
    whole = _sum(operations, column) or 0
    return whole if whole or all(row.printed[column] for row in operations) else None


# --- comparison with the rows that pyprof prints ------------------------------------------------------------------


def work_checks(operations: Sequence[Operation]) -> tuple[int, list[Check], int]:
    """How many numbers of the rows were compared, those that differ: (name, expected, printed), and FLOPs compared."""
    calls: dict[int, list[Operation]] = defaultdict(list)
    ranges: dict[int, Range] = {}
    checks: list[Check] = []
    for row in operations:
        checks += [(f"{what} of {row.name[:60]}", *pair) for what, *pair in _of_row(row)]
        if row.around and innermost(row):
            ranges[id(row.around[-1])] = row.around[-1]
            calls[id(row.around[-1])].append(row)
    shapes, products = results(operations), 0
    for call, rows in calls.items():
        op = innermost(rows[0])
        arguments = ranges[call].arguments
        flop, nbytes = product_flop(op, _call(rows[0], shapes)), element_bytes(op, arguments)
        if flop:
            printed = _sum(rows, "FLOPs")
            products += printed if printed in flop else 0
            checks.append((f"FLOPs of {op} {arguments['sizes'][:3]}", printed if printed in flop else flop, printed))
        if nbytes is not None:
            checks.append((f"bytes of {op} {arguments['sizes'][:3]}", nbytes, _sum(rows, "Bytes")))
    return len(checks), [check for check in checks if check[1] != check[2]], products


def _of_row(row: Operation) -> Iterable[Check]:
    kinds = kinds_of(row)
    if row.kind == "kernel" and kinds and kinds <= {MOVE, FILL} and row.printed["FLOPs"]:
        yield "FLOPs", 0, int(row.printed["FLOPs"])
    if row.kind == "kernel" and (decided := tensor_core(row.full or row.name)):
        yield "tensor cores", decided, row.printed["TC"]
    if row.kind == "memcpy" and row.nbytes and row.printed["Bytes"]:
        times = 2 if re.search("DtoD|PtoP", row.name) else 1  # to and from the host, the GPU touches each byte once
        yield "bytes", times * row.nbytes, int(row.printed["Bytes"])
    if row.kind == "memset" and row.nbytes and row.printed["Bytes"]:
        yield "bytes", row.nbytes, int(row.printed["Bytes"])


def _sum(rows: Sequence[Operation], column: str) -> int | None:
    """The sum over a call's rows; None if pyprof knows it of none."""
    known = [int(row.printed[column]) for row in rows if row.printed[column]]
    return sum(known) if known else None
