"""The facts that follow from the ranges around a launch: op, layer, line, direction, phase, arguments.

A launch of the forward pass gets all of them from the ranges around it. A launch inside a backward node gets layer,
line and op from the ranges around the node's forward op, and the operands from the op that the node runs.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyprof.marker import Marker
from pyprof.parse.attribute import reasons
from pyprof.parse.attribute.compiled_code import within_compiled
from pyprof.parse.attribute.contexts import COMMUNICATION, Path, inside_node
from pyprof.parse.attribute.cpp_functions import kinship
from pyprof.parse.attribute.phase import phase_of
from pyprof.parse.attribute.scope import Kind, Scope

# Dispatcher names that differ from the function that the user called (torch/nn/functional.py of 2.13).
PUBLIC = {
    "cross_entropy_loss": "cross_entropy",
    "nll_loss_nd": "nll_loss",
    "batch_norm": "batch_norm",
    "_embedding_bag": "embedding_bag",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "native_batch_norm": "batch_norm",
    "native_dropout": "dropout",
    "_log_softmax": "log_softmax",
    "_softmax": "softmax",
    "convolution": "conv",
    "_convolution": "conv",
    "_to_copy": "to",
}
_OPTIMIZER = re.compile(r"Optimizer\.(\w+)#([\w.]+?)(?:\.\1)?$")
# nn.Module's own calls between the user's frames; PyProf left them out too
_MODULE_CALL = re.compile(r"(?:^|/)torch/nn/modules/\w+\.py:\d+$")
RECORD = "record_param_comms"  # the profiler's record of any collective
COLLECTIVES = ("c10d::", "_c10d_functional::", RECORD)  # torch.distributed's ops
# The module that compiled autograd makes of a backward pass (torch/_dynamo/compiled_autograd.py of 2.13). Where no
# inductor compiles it, its ops run one by one.
_TRACED_BACKWARD = re.compile(r"CompiledAutograd\d+$")
_NODE_OP = re.compile(r"^(?:torch::autograd::)?(.*?)(?:Backward\d*)?$")


@dataclass(frozen=True, slots=True)
class Facts:
    """The columns that follow from a launch's context and its forward op's context; lists are JSON."""

    layer: str
    trace: str
    functions: str
    marker: str
    mod: str
    op: str
    dir: str
    phase: str
    aten: str
    sizes: str
    dtypes: str
    strides: str
    args: str
    comm: str
    nodes: str
    forward: str
    fused: str
    reason: str


def facts(
    path: Path,
    forward: Path,
    recomputed: bool,
    transfer: str,
    updating: bool,
    replayed: bool,
    around: Sequence[str] = (),
) -> Facts:
    """The facts of a launch.

    ``path``: the ranges around it. ``forward``: the ranges around the forward op of the node that it is in; empty if
    none is known. ``recomputed``: whether it re-runs a forward op inside a backward node. ``transfer`` and
    ``updating``: see ``phase_of``. ``replayed``: whether a CUDA graph launched it. ``around``: the layers of a launch
    whose ranges name none.
    """
    inside = inside_node(path)
    origin = next((s.origin for s in reversed(inside) if s.origin is not None), None)
    derived = origin is not None and bool(forward) and len(inside) == len(path)  # compiled autograd, of an eager op
    backward = (len(inside) < len(path) and not recomputed) or derived
    communication = any(s.kind == Kind.COMM or s.name.startswith(COMMUNICATION) for s in inside)
    outside = forward if backward else path
    source = inside if communication or recomputed else outside  # the ranges that name the layer, line and op
    modules, ops = _ops(path, source, backward)
    phase = phase_of(path, [] if communication else ops, transfer, updating)
    collective = _collective(inside)
    lines, functions = _trace(source)
    layers = _names(source, Kind.LAYER) or _names(source, Kind.MODULE) or list(around)
    if derived:
        phase = "backward"
    elif origin is not None:
        layers = within_compiled(layers, origin)
        modules, ops = ([origin.mod], [origin.op]) if origin.op else (modules, ops)
        lines, functions = (list(origin.trace), list(origin.functions)) if origin.trace else (lines, functions)
        if origin.backward and len(inside) == len(path):  # compiled autograd runs a backward pass without nodes
            backward, phase = True, "backward"
    elif any(s.kind == Kind.LAYER and _TRACED_BACKWARD.match(s.name) for s in path):
        backward, phase = True, "backward"
    # NCCL's own record is used if PyTorch has none.
    call = _call(inside, collective) or collective or _launch(inside) or Scope(Kind.USER, "")
    return Facts(
        layer=_json(layers),
        trace=_json(lines),
        functions=_json(functions) if any(functions) else "",
        marker=_json([s.text for s in source if s.kind == Kind.MARKER and s.marker and s.marker.op]),
        mod=_json(modules),
        op=_json(ops),
        dir="" if communication or not ops else _direction(backward, phase == "forward" or recomputed),
        phase=phase,
        aten=call.name,
        sizes=call.sizes,
        dtypes=call.dtypes,
        strides=call.strides,
        args=call.args,
        comm=collective.comm if collective else "",
        nodes=_json([s.name for s in path if s.kind in (Kind.OP, Kind.NODE)]),
        forward=_forward_call(forward, call) if backward else "",
        fused=origin.fused if origin is not None else "",
        reason="" if ops else reasons.without_op(path, replayed),
    )


def within_replay(captured: Callable[[Sequence[str]], Facts], path: Path, launch: Facts) -> Facts:
    """The facts of a kernel that a CUDA graph replays: those of its capture, inside those of the graph's launch.

    ``captured``: its facts, given the layers around the capture. ``path``: the ranges around it. torch.compile captures
    inside a model and inside a backward node that have begun before the capture; the replay is inside them, too.
    """
    found = captured(json.loads(launch.layer) if launch.layer else ())
    if found.layer == launch.layer:
        found = replace(found, trace=found.trace or launch.trace)
    if launch.dir == "bprop" and found.dir == "fprop" and len(inside_node(path)) == len(path):
        found = replace(found, dir=launch.dir, phase=launch.phase)
    return found


def _direction(backward: bool, forward: bool) -> str:
    if backward:
        return "bprop"
    return "fprop" if forward else ""


def _ops(path: Path, source: Path, backward: bool) -> tuple[list[str], list[str]]:
    """Modules and names of the functions that the user called, outermost first; an optimizer precedes its ops."""
    modules, ops = _called(source)
    if not ops and backward:
        modules, ops = _node_called(path)
    optimizers = [s for s in path if s.kind == Kind.OPTIMIZER]
    if optimizers:
        return ["torch.optim", *modules], [_optimizer_name(optimizers[-1].name), *ops]
    return modules, ops


def _call(inside: Path, collective: Scope | None) -> Scope | None:
    """The innermost op, whose operands the row gets; for a collective without a record of its message, the range that
    tells most about its operands.

    PyTorch describes a collective by its op (``c10d::alltoall_base_``, with outputs and inputs), in it by a record,
    and in that by an annotation (``nccl:all_to_all``), both with inputs alone. Which of them list the tensors, and
    their types, depends on the release: before 2024, Kineto has no sizes of lists of tensors.
    """
    op = next((s for s in reversed(inside) if s.kind == Kind.OP), None)
    if (collective is not None and collective.kind == Kind.OP) or (op is not None and not _about_collective(op)):
        return op  # also an op inside a collective, such as a copy
    ranges = [s for s in inside if _about_collective(s) and _filled(s.sizes)]
    ranges.sort(key=lambda s: s.name == RECORD)  # the record does not name its collective: last of equals
    return max(ranges, key=lambda s: (_filled(s.dtypes), _filled(s.sizes)), default=op)


def _launch(inside: Path) -> Scope | None:
    """The launch of a Triton kernel that runs in no op, under the kernel's name."""
    scope = next((s for s in reversed(inside) if s.kind == Kind.MARKER and s.sizes), None)
    return scope and scope._replace(name=scope.marker.op if scope.marker else "")


def _about_collective(scope: Scope) -> bool:
    return scope.kind == Kind.COMM or (scope.kind == Kind.OP and scope.name.startswith(COLLECTIVES))


def _filled(text: str) -> int:
    """The number of tensors that have sizes in ``Scope.sizes``, or types in ``Scope.dtypes``."""
    return sum(map(_leaves, json.loads(text))) if text else 0


def _leaves(item: object) -> int:
    if isinstance(item, list) and any(isinstance(part, list | str) for part in item):
        return sum(map(_leaves, item))
    return bool(item)


def _collective(path: Path) -> Scope | None:
    """The collective that a launch performs; None if the launch belongs to an op inside it, such as a copy."""
    for scope in reversed(path):
        if scope.comm or scope.kind == Kind.OP:
            return scope if scope.comm else None
    return None


def _json(items: Sequence[str]) -> str:
    return json.dumps(list(items), ensure_ascii=False) if items else ""


def _forward_call(forward: Path, call: Scope) -> str:
    """The forward op's name and arguments, for the kernels of a C++ node, whose own inputs are only gradients."""
    if not forward or not kinship(call.name, forward[-1].name):
        return ""
    op = forward[-1]
    name = json.dumps(op.name, ensure_ascii=False)
    texts = {"aten": name, "sizes": op.sizes, "dtypes": op.dtypes, "strides": op.strides, "args": op.args}
    return "{" + ", ".join(f'"{key}": {text}' for key, text in texts.items() if text) + "}"


def _names(path: Path, kind: Kind) -> list[str]:
    return [s.name for s in path if s.kind == kind]


def _trace(path: Path) -> tuple[list[str], list[str]]:
    """The lines of the user's stack, outermost first, and the functions that they are in; none if not recorded."""
    for scope in path:
        if scope.marker is not None and scope.marker.trace:
            lines, functions = scope.marker.trace, _functions(scope.marker)
            kept = [i for i, line in enumerate(lines) if not _MODULE_CALL.search(line)]
            return [lines[i] for i in kept], [functions[i] for i in kept] if functions else []
    frames = [s for s in path if s.kind == Kind.FRAME]
    return [s.name for s in frames], [s.text for s in frames]


def _functions(marker: Marker) -> list[str]:
    """The functions of a marker's lines: `/main/Net::forward` has one for each, if pyprof wrote it."""
    names = marker.func_stack.replace("::", ".").split("/")[1:]
    return names if len(names) == len(marker.trace) else []


def _called(path: Path) -> tuple[list[str], list[str]]:
    """Module and name of the user's call: from the markers, or else the outermost op, or else NCCL's range."""
    markers = [s.marker for s in path if s.marker is not None and s.marker.op]
    if markers:
        return [marker.mod for marker in markers], [marker.op for marker in markers]
    for scope in path:
        if scope.kind == Kind.OP:
            module, _, name = scope.name.rpartition("::")
            return [module or "autograd"], [PUBLIC.get(name, name) if module == "aten" else name]
    named = _names(path, Kind.COMM)
    return (["nccl"], [named[-1]]) if named else ([], [])


def _node_called(path: Path) -> tuple[list[str], list[str]]:
    """A backward node without a forward op in the capture gives its own name: AccumulateGrad, Mm."""
    node = next(s for s in reversed(path) if s.kind in (Kind.NODE, Kind.ENGINE))
    match = _NODE_OP.match(node.name)
    return ["autograd"], [match.group(1) if match and match.group(1) else node.name]


def _optimizer_name(text: str) -> str:
    """`Optimizer.step#AdamW.step` -> `AdamW.step`."""
    match = _OPTIMIZER.match(text)
    return f"{match.group(2)}.{match.group(1)}" if match else text
