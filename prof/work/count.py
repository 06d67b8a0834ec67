"""The work of one op call, from what the capture tells of it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from pyprof.errors import ModelError
from pyprof.marker import Marker, parse_marker
from pyprof.prof.kernels.operand_dtypes import NOTHING, Dtypes
from pyprof.prof.ops.compiled import fused_bytes
from pyprof.prof.ops.model import FAMILY, MATRIX, UNKNOWN, Parts, Tensor, Work, evaluate, find, parameters
from pyprof.prof.ops.no_arithmetic import never_computes
from pyprof.prof.ops.zero_fills import FILLED
from pyprof.prof.work.arguments import Known, knowledge, marked, recorded
from pyprof.prof.work.collective_records import messages, work_of
from pyprof.prof.work.from_forward import from_forward
from pyprof.prof.work.marker_arguments import own_options, told_by_marker

Amounts = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Counted:
    """An op's name in the registry, family, and FLOPs and bytes of each of its pieces; None where unknown."""

    name: str = ""
    family: str = ""
    parts: dict[str, Amounts] = field(default_factory=dict)
    why: str = ""  # why it is not counted
    dtype: str = ""  # of the first tensor among its arguments
    arguments: tuple[Any, ...] = ()  # as the capture records them
    outputs: tuple[Tensor, ...] = ()  # where they are known

    @property
    def flop(self) -> int | None:
        return _sum(flop for flop, _ in self.parts.values()) if self.parts else None

    @property
    def nbytes(self) -> int | None:
        return _sum(nbytes for _, nbytes in self.parts.values()) if self.parts else None


def _sum(amounts: object) -> int | None:
    total = 0
    for amount in amounts:  # type: ignore[attr-defined]
        if amount is None:
            return None
        total += amount
    return total


def count_op(
    *, aten: str, sizes: str, dtypes: str, strides: str, args: str, outs: str, marker: str, dir: str, nodes: str = "",
    comm: str = "", forward: str = "", lists: str = "", kernel: Dtypes = NOTHING,
) -> Counted:  # fmt: skip
    """Count one op call. All arguments are a row's columns: JSON texts, empty where the capture tells nothing; but for
    ``lists``, the shapes of its lists of tensors where they were cut and are proven, and ``kernel``, what the names of
    its kernels tell."""
    name = find(aten) if aten else None
    if name is None and not aten and marker and dir == "fprop":
        return _from_marker(marker)
    if name is None:
        return Counted(
            why=f"no model of {aten}" if aten else "no op", arguments=_told(sizes, dtypes, strides, args, aten)
        )
    family = FAMILY[name]
    if family == "collective" and (told := messages(comm)):
        sent = work_of(told)
        if not math.isnan(sent.read + sent.write):
            return Counted(name, family, _amounts(sent))
        if not sizes:
            return Counted(name, family, {"": (0, None)}, "the capture does not tell how many ranks take part")
    if not sizes:
        if dir == "fprop" and marker:
            return _from_marker(marker, name)
        if dir == "bprop" and marker and (known_work := _from_forward(name, marker)) is not None:
            return Counted(name, family, _amounts(known_work))
        known_zero: dict[str, Amounts] = {"": (0, None)} if never_computes(name) else {}
        return Counted(name, family, known_zero, "the capture has no shapes: profile with record_shapes=True")
    op = aten.removeprefix("aten::")
    if family == "gemm" and SPARSE_NODES.intersection(json.loads(nodes or "[]")):
        return Counted(name, family, why="a sparse operand: no capture records how many elements it stores")
    known = knowledge(_markers(marker), kernel, op, sizes, family in MATRIX, dir == "fprop")
    arguments: tuple[Any, ...] = ()
    dtype = ""
    try:
        arguments = recorded(sizes, dtypes, strides, args, known, op, lists)
        arguments = told_by_marker(arguments, parameters(name), _markers(marker))
        if dir == "fprop":
            arguments = own_options(op, arguments, _markers(marker))
        arguments = (*_with_collective(op, arguments, nodes), *_called(forward))
        if name.startswith("triton_"):
            arguments = (op, *arguments)
        dtype = next((a.dtype for a in arguments if isinstance(a, Tensor)), "")
        made = known.outputs(outs or _bias_gradient(op, sizes, nodes, _markers(marker)), sizes, op)
        work = evaluate(name, arguments, made)
        if isinstance(work, Work) and name in FILLED:
            work = Work(work.flop, FILLED[name](arguments), 0)
        return Counted(name, family, _amounts(work), dtype=dtype, arguments=arguments, outputs=made or ())
    except ModelError as error:
        return Counted(name, family, _what_remains(name, op, arguments), str(error), dtype, arguments)


def _called(forward: str) -> tuple[Any, ...]:
    """The arguments of the forward op, for a backward node that is its kernels' op: it is given gradients only."""
    if not forward:
        return ()
    call = json.loads(forward)
    told = (json.dumps(call[key]) if call.get(key) else "" for key in ("sizes", "dtypes", "strides", "args"))
    sizes, dtypes, strides, args = told
    return recorded(sizes, dtypes, strides, args, Known(), call["aten"].removeprefix("aten::")) if sizes else ()


def _told(sizes: str, dtypes: str, strides: str, args: str, aten: str) -> tuple[Any, ...]:
    """The arguments of an op without a model, as far as they are recorded."""
    try:
        return recorded(sizes, dtypes, strides, args, Known(), aten) if sizes and dtypes else ()
    except ModelError:
        return ()


def _what_remains(name: str, op: str, arguments: tuple[Any, ...]) -> dict[str, Amounts]:
    """What is known of an op whose model lacks something: a Triton kernel's bytes, attention's without its mask."""
    if name.startswith("triton_") and arguments:
        return {"": (None, _whole(fused_bytes(op, arguments[1:])))}
    found = _whatever_the_mask(name, arguments)
    return {"": (0, None)} if not found and never_computes(name) else found


SPARSE_NODES = frozenset({"aten::_sparse_mm", "aten::_sparse_addmm", "aten::_sparse_sparse_matmul"})
MOST = 1 << 60  # FLOP or bytes: a minute of 20 PFLOP/s
COLLECTIVES = {"c10d::allreduce_": "allreduce", "c10d::broadcast_": "broadcast", "c10d::reduce_": "reduce",
               "c10d::allreduce_coalesced_": "allreduce_coalesced"}  # fmt: skip


def _with_collective(op: str, arguments: tuple[Any, ...], nodes: str) -> tuple[Any, ...]:
    """The profiler's record of a collective names it in its fifth argument; NVTX leaves that out, but not the op that
    the record stands in."""
    if op != "record_param_comms" or len(arguments) < 5 or isinstance(arguments[4], str):
        return arguments
    name = next((COLLECTIVES[node] for node in reversed(json.loads(nodes or "[]")) if node in COLLECTIVES), None)
    return (*arguments[:4], name, *arguments[5:])


def _bias_gradient(op: str, sizes: str, nodes: str, markers: list[Marker]) -> str:
    """The output of the sum that the backward of a layer runs for its bias: one number a channel.

    ATen/native/Convolution.cpp (2.4 to 2.13): grad_bias = grad_output.sum over all dimensions but the second.
    layer_norm_kernel.cu: partial sums [blocks, channels] over the first. addmm's gradient [rows, columns] is summed to
    its bias, where the call's marker has one.
    """
    if op != "sum" or not nodes:
        return ""
    around, shapes = json.loads(nodes), json.loads(sizes)
    gradient = shapes[0] if shapes else []
    if "aten::convolution_backward" in around:
        return json.dumps([[gradient[1]]]) if len(gradient) > 2 else ""
    if len(gradient) != 2:
        return ""
    called = markers[-1] if markers and markers[-1].op in ("linear", "addmm") else None
    operands = [a for a in marked(called) if isinstance(a, Tensor)] if called and "AddmmBackward0" in around else []
    has_bias = any(tensor.shape == tuple(gradient[1:]) for tensor in operands)
    return json.dumps([gradient[1:]]) if has_bias or "aten::native_layer_norm_backward" in around else ""


# What fused attention's models call its causal flag, or its mask type. NVTX does not tell it; the bytes do not depend
# on it.
MASK = frozenset({"causal", "mask_type"})


def _whatever_the_mask(name: str, arguments: tuple[Any, ...]) -> dict[str, Amounts]:
    """What is the same with and without a causal mask, where the capture does not tell which."""
    told = enumerate(zip(parameters(name), arguments, strict=False))
    position = next((i for i, (word, argument) in told if word in MASK and argument is UNKNOWN), None)
    if position is None:
        return {}
    before, after = arguments[:position], arguments[position + 1 :]
    try:
        plain, causal = (_amounts(evaluate(name, (*before, flag, *after))) for flag in (False, True))
    except ModelError:
        return {}
    return {part: _common(amounts, causal[part]) for part, amounts in plain.items()}


def _common(one: Amounts, other: Amounts) -> Amounts:
    return (one[0] if one[0] == other[0] else None, one[1] if one[1] == other[1] else None)


def _amounts(work: Work | Parts) -> dict[str, Amounts]:
    parts = {"": work} if isinstance(work, Work) else work
    return {part: (_possible(w.flop), _whole(w.nbytes)) for part, w in parts.items()}


def _whole(nbytes: float) -> int | None:
    return None if math.isnan(nbytes) else _possible(int(nbytes))


def _possible(amount: int | None) -> int | None:
    """Unknown where no computer does it in one call: shapes that a capture has wrong."""
    return None if amount is None or amount > MOST else amount


def _markers(texts: str) -> list[Marker]:
    parsed = [parse_marker(text) for text in json.loads(texts)] if texts else []
    return [marker for marker in parsed if marker is not None]


def _from_forward(name: str, texts: str) -> Work | None:
    try:
        return from_forward(name, _markers(texts))
    except ModelError:  # the forward call's arguments do not fit: as unknown as without them
        return None


OPERATORS = {
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
}  # Python's names that torch has others for


def operator(name: str) -> str:
    """The function behind an operator's method.

    >>> operator("__iadd__"), operator("__rtruediv__"), operator("__matmul__"), operator("linear")
    ('add_', 'div', 'matmul', 'linear')
    """
    if not (name.startswith("__") and name.endswith("__")) or find(name):
        return name
    plain = name.strip("_")
    if find(plain) is None and plain[:1] in ("i", "r"):
        plain = plain[1:] + ("_" if plain[0] == "i" else "")
    return OPERATORS.get(plain.rstrip("_"), plain.rstrip("_")) + ("_" if plain.endswith("_") else "")


def _from_marker(texts: str, name: str | None = None) -> Counted:
    """Count by the innermost marker that has a model: the API call itself, without the dispatcher's record."""
    for marker in reversed(_markers(texts)):
        found = find(operator(marker.op))
        if found is not None and (name is None or FAMILY[found] == FAMILY[name]):
            try:
                return Counted(found, FAMILY[found], _amounts(evaluate(found, marked(marker))))
            except ModelError as error:
                return Counted(found, FAMILY[found], why=str(error))
    return Counted(name or "", FAMILY[name] if name else "", why="no model of the API call")
