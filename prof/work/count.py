"""The work of one op call, computed from what the capture records about it."""

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyprof.compiled_record import CPP_KERNEL
from pyprof.errors import ModelError
from pyprof.marker import Marker, parse_marker
from pyprof.prof.kernels.type_names import NOTHING, Dtypes
from pyprof.prof.ops.compiled import fused_bytes, is_compiled, loops_of
from pyprof.prof.ops.evaluation import SPARSE_PRODUCTS, evaluate, evaluate_call, find, function_of, parameters
from pyprof.prof.ops.experts import FINDS_WEIGHTS
from pyprof.prof.ops.from_forward import bias_gradient, from_forward
from pyprof.prof.ops.fused_names import op_flop
from pyprof.prof.ops.fused_operations import completes_none, product_flop, recorded_flop
from pyprof.prof.ops.known_work import known_parts, never_computes, own_work
from pyprof.prof.ops.marker_arguments import (
    call_arguments,
    tensors_within,
    with_bounds,
    with_flags,
    with_options,
    with_packed,
    with_strings,
)
from pyprof.prof.ops.model import FAMILY, MATRIX, Parts, Possible, Tensor, Work
from pyprof.prof.ops.paged_attention import Batch
from pyprof.prof.work.arguments import Known, known_dtypes, recorded
from pyprof.prof.work.collective_records import messages, work_of
from pyprof.prof.work.expanded import with_expanded

Amounts = tuple[int | None, int | None]  # FLOPs and bytes; None: unknown
NO_WORK: Amounts = (0, None)  # 0 FLOPs for any shape
MOST = 1 << 60  # largest plausible number of FLOPs or bytes: a minute at 20 PFLOP/s


@dataclass(frozen=True)
class OpCall:
    """An op's call as the columns of its rows record it: JSON texts, empty where nothing is recorded."""

    aten: str = ""
    sizes: str = ""
    dtypes: str = ""
    strides: str = ""
    args: str = ""
    outs: str = ""
    marker: str = ""
    dir: str = ""
    nodes: str = ""
    comm: str = ""
    forward: str = ""
    views: str = ""
    fused: str = ""
    lists: str = ""  # the shapes of its lists of tensors, if the capture truncated them and they could be proven
    kernel: Dtypes = NOTHING  # the dtypes that the names of its kernels reveal
    batch: Batch | None = None  # the server's batch that it is part of, for ops that are counted by it

    @property
    def op(self) -> str:
        return self.aten.removeprefix("aten::")

    @property
    def is_forward(self) -> bool:
        return self.dir == "fprop"

    @cached_property
    def markers(self) -> list[Marker]:
        """The markers of the user's calls around the op, outermost first."""
        markers = [parse_marker(text) for text in json.loads(self.marker)] if self.marker else []
        return [marker for marker in markers if marker is not None]

    @cached_property
    def around(self) -> list[str]:
        """The ops and autograd nodes around the call, outermost first."""
        nodes: list[str] = json.loads(self.nodes) if self.nodes else []
        return nodes


@dataclass(frozen=True, slots=True)
class Counted:
    """An op's registered name and family, and FLOPs and bytes of each part of its work; None if unknown."""

    name: str = ""
    family: str = ""
    parts: dict[str, Amounts] = field(default_factory=dict)
    why: str = ""  # the reason if it is not counted
    dtype: str = ""  # of the first tensor among its arguments
    arguments: tuple[Any, ...] = ()  # as the capture records them
    outputs: tuple[Tensor, ...] = ()  # if they are known
    all_ran: bool = True  # False: some parts may not have run (``Possible``)
    own: int = 0  # how many of the arguments are the op's own: those of its forward op may follow

    @property
    def flop(self) -> int | None:
        return _sum(flop for flop, _ in self.parts.values())

    @property
    def nbytes(self) -> int | None:
        return _sum(nbytes for _, nbytes in self.parts.values())


def _sum(amounts: Iterable[int | None]) -> int | None:
    given = list(amounts)
    known = [amount for amount in given if amount is not None]
    return sum(known) if known and len(known) == len(given) else None


def count_call(call: OpCall) -> Counted:
    """Count one op's call."""
    name = find(call.aten) if call.aten else None
    if name is None:
        return _of_cpp_kernel(call) if call.fused and CPP_KERNEL.fullmatch(call.aten) else _without_model(call)
    family = FAMILY[name]
    if family == "collective":
        counted = _by_record(call, name)
        if counted is not None:
            return counted
    if not call.sizes:
        return _without_shapes(call, name)
    if family == "gemm" and SPARSE_PRODUCTS.intersection(call.around):
        return Counted(name, family, why="a sparse operand: no capture records how many elements it stores")
    counted = _by_model(call, name)
    if name in FINDS_WEIGHTS and not counted.parts:  # its kernels may be routing or products: their names tell
        return _without_model(call)
    return _by_operations(call, counted) if call.fused else counted


def _by_operations(call: OpCall, counted: Counted) -> Counted:
    """The count of a call in a compiled graph's code, with FLOPs from the record of the operations that it computes:
    those of a Triton kernel, those of a product whose own call lacks an argument, and none for an op that computes
    only a part of what a later kernel completes."""
    if is_compiled(counted.name):
        arguments = counted.arguments[1:]
        loops = loops_of(call.op, arguments)
        flop = recorded_flop(call.fused, "_tem_" in counted.name, lambda op: op_flop(op, *loops))
    elif counted.family not in MATRIX and completes_none(call.fused):
        flop = 0
    else:
        flop = product_flop(call.fused, counted.family) if counted.flop is None else None
    if flop is None:
        return counted
    nbytes = counted.nbytes
    if nbytes is None and is_compiled(counted.name) and counted.arguments:
        nbytes = _possible(0, fused_bytes(call.op, arguments))[1]
    return replace(counted, parts={"": _possible(flop, nbytes)}, why="" if nbytes is not None else counted.why)


def _of_cpp_kernel(call: OpCall) -> Counted:
    """Count a kernel that inductor made for a CPU by the record of its operations: the profiler has no shapes of it."""
    flop = recorded_flop(call.fused, False, lambda op: None)
    parts = {} if flop is None else {"": _possible(flop, None)}
    return Counted("", "compiled", parts, why="the profiler has no shapes of kernels that inductor makes for a CPU")


def _without_model(call: OpCall) -> Counted:
    """Count an op that has no model, or a user's call that the dispatcher did not record."""
    if not call.aten:
        return _by_marker(call) if call.marker and call.is_forward else Counted(why="no op")
    arguments: tuple[Any, ...] = ()
    with suppress(ModelError):  # inconsistent shapes
        if call.sizes and call.dtypes:
            arguments = recorded(call.sizes, call.dtypes, call.strides, call.args, Known(), call.aten)
    return Counted(why=f"no model of {call.aten}", arguments=arguments)


def _by_record(call: OpCall, name: str) -> Counted | None:
    """Count a collective by its record; None if it has no record, or an incomplete one while shapes are recorded."""
    records = messages(call.comm)
    if not records:
        return None
    work = work_of(records)
    if not math.isnan(work.read + work.write):
        return Counted(name, FAMILY[name], _amounts(work))
    if call.sizes:
        return None
    return Counted(name, FAMILY[name], {"": NO_WORK}, "the capture does not record how many ranks take part")


def _without_shapes(call: OpCall, name: str) -> Counted:
    if call.marker and call.is_forward:
        return _by_marker(call, name)
    if call.marker and call.dir == "bprop":
        with suppress(ModelError):  # the forward call's arguments do not fit: as unknown as without them
            work = from_forward(name, call.markers)
            if work is not None:
                return Counted(name, FAMILY[name], _amounts(work))
    parts = {"": NO_WORK} if never_computes(name) else {}
    return Counted(name, FAMILY[name], parts, "the capture has no shapes: profile with record_shapes=True")


def _by_marker(call: OpCall, name: str | None = None) -> Counted:
    """Count by the innermost marker that has a model (if ``name`` is given, a model of the same family)."""
    for marker in reversed(call.markers):
        model = find(function_of(marker.op))
        if model is None or (name is not None and FAMILY[model] != FAMILY[name]):
            continue
        try:
            return Counted(model, FAMILY[model], _amounts(evaluate_call(model, marker)))
        except ModelError as error:
            return Counted(model, FAMILY[model], why=str(error))
    return Counted(name or "", FAMILY[name] if name else "", why="no model of the API call")


def _by_model(call: OpCall, name: str) -> Counted:
    """Count by the op's model and its recorded arguments."""
    family = FAMILY[name]
    known = known_dtypes(call.markers, call.kernel, call.op, call.sizes, family in MATRIX, call.is_forward)
    own: tuple[Any, ...] = ()
    arguments: tuple[Any, ...] = ()
    dtype = ""
    try:
        own = _arguments(call, name, known)
        arguments = (*own, *_forward_arguments(call.forward), *_viewed(call.views))
        dtype = next((a.dtype for a in arguments if isinstance(a, Tensor)), "")
        outputs = known.outputs(call.outs or _output_of_bias_gradient(call), call.sizes, call.op)
        work = own_work(name, arguments, evaluate(name, arguments, outputs, call.batch))
        all_ran = not isinstance(work, Possible)
        return Counted(name, family, _amounts(work), "", dtype, arguments, outputs or (), all_ran, len(own))
    except ModelError as error:
        parts = {part: _possible(flop, nbytes) for part, (flop, nbytes) in known_parts(name, arguments).items()}
        return Counted(name, family, parts, str(error), dtype, arguments, own=len(own))


def _arguments(call: OpCall, name: str, known: Known) -> tuple[Any, ...]:
    """The op's own arguments for its model, completed from markers."""
    arguments = recorded(call.sizes, call.dtypes, call.strides, call.args, known, call.op, call.lists)
    if not call.strides:
        arguments = with_expanded(call.op, call.around, call.markers, arguments)
    if call.markers:
        arguments = with_flags(arguments, parameters(name), call.markers[-1])
        arguments = with_strings(arguments, parameters(name), call.markers[-1])
        if call.markers[-1].op.partition(".")[0] == name.removeprefix("quantized::"):
            arguments = with_packed(arguments, call.markers[-1])
        if call.is_forward:
            arguments = with_options(call.op, arguments, call.markers[-1])
        if call.op == "arange" and call.dir != "bprop":
            arguments = with_bounds(arguments, call.markers[-1])
    return (call.op, *arguments) if is_compiled(name) else arguments


def _forward_arguments(forward: str) -> tuple[Any, ...]:
    """The arguments of the forward op, needed if the kernels' op is a backward node, which receives only gradients."""
    if not forward:
        return ()
    call = json.loads(forward)
    if not call.get("sizes"):
        return ()
    found = (call.get(key) for key in ("sizes", "dtypes", "strides", "args"))
    sizes, dtypes, strides, args = (json.dumps(value) if value else "" for value in found)
    return recorded(sizes, dtypes, strides, args, Known(), call["aten"].removeprefix("aten::"))


def _viewed(views: str) -> tuple[Tensor, ...]:
    """The tensors that the op's code views, for an op that does not take its weights as arguments."""
    return tuple(Tensor(tuple(shape), dtype) for shape, dtype in json.loads(views)) if views else ()


def _output_of_bias_gradient(call: OpCall) -> str:
    """The output's shape, in a JSON list with one item, if the op is the sum for a bias gradient; otherwise empty."""
    if call.op != "sum" or not call.around:
        return ""
    shapes = json.loads(call.sizes)
    marker = call.markers[-1] if call.markers else None
    operands = tensors_within(call_arguments(marker)) if marker and marker.op in ("linear", "addmm") else []
    shape = bias_gradient(shapes[0] if shapes else [], call.around, operands)
    return json.dumps([shape]) if shape is not None else ""


def _amounts(work: Work | Parts) -> dict[str, Amounts]:
    parts = {"": work} if isinstance(work, Work) else work
    return {part: _possible(piece.flop, piece.nbytes) for part, piece in parts.items()}


def _possible(flop: float | None, nbytes: float | None) -> Amounts:
    return _plausible(flop), _plausible(nbytes)


def _plausible(amount: float | None) -> int | None:
    """An amount; unknown (NaN, too) if it is negative or impossibly large for one call: some captures have wrong
    shapes."""
    return int(amount) if amount is not None and 0 <= amount <= MOST else None
