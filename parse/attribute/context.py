"""What the ranges around a launch say of it, worked out once for each distinct nest of ranges.

A million launches have a few thousand distinct contexts: the same scopes, outermost first. So every text is made once
a context (or once a pair of a backward launch's own and its forward op's context), never once a row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyprof.parse.attribute import reasons
from pyprof.parse.attribute.cpp_functions import kinship
from pyprof.parse.attribute.phase import phase_of
from pyprof.parse.attribute.scope import Kind, Scope

Path = tuple[Scope, ...]  # outermost first

# Dispatcher names that differ from the function that the user called (torch/nn/functional.py of 2.13).
PUBLIC = {
    "cross_entropy_loss": "cross_entropy", "nll_loss_nd": "nll_loss", "batch_norm": "batch_norm",
    "_embedding_bag": "embedding_bag", "native_layer_norm": "layer_norm", "native_group_norm": "group_norm",
    "native_batch_norm": "batch_norm", "native_dropout": "dropout", "_log_softmax": "log_softmax",
    "_softmax": "softmax", "convolution": "conv", "_convolution": "conv", "_to_copy": "to",
}  # fmt: skip
COMMUNICATION = (
    "c10d::",
    "torch.distributed.",
    "torch::distributed::",
)  # collectives and DDP's reducer: their own ops, wherever they run
TELLING = ("FSDP::", *COMMUNICATION)  # of users' and libraries' ranges, those whose names say what is inside
_OPTIMIZER = re.compile(r"Optimizer\.(\w+)#([\w.]+?)(?:\.\1)?$")
_CALL = re.compile(
    r"(?:^|/)torch/nn/modules/\w+\.py:\d+$"
)  # nn.Module calls between the user's frames, as PyProf left out
_NODE_OP = re.compile(r"^(?:torch::autograd::)?(.*?)(?:Backward\d*)?$")


@dataclass(frozen=True, slots=True)
class Hops:
    """How many ranges around a context's innermost one (0) something stands; -1 for nowhere."""

    op: int  # the innermost op of the launch's own: not one around the backward node that it runs in
    node: int  # the backward node or autograd's range around it
    call: int  # what numbers the op's call: a collective that says what it sent, else innermost op, marker or node
    message: int = -1  # that collective


NOWHERE = Hops(-1, -1, -1)


def hops(around: Hops, scope: Scope) -> Hops:
    """Where the op, node and call of a context stand, by those of the context around it and its own scope."""
    if scope.kind in (Kind.NODE, Kind.ENGINE):
        return Hops(-1, 0, 0)
    is_op = scope.kind == Kind.OP
    op = 0 if is_op else _further(around.op)
    # of an op inside a collective, like a copy, the call is its own
    message = 0 if scope.comm else -1 if is_op else _further(around.message)
    call = 0 if scope.kind in (Kind.MARKER, Kind.COMM) else _further(around.call)
    return Hops(op, _further(around.node), message if message >= 0 else op if op >= 0 else call, message)


def _further(hop: int) -> int:
    return hop + 1 if hop >= 0 else -1


def inside_of(around: Path, scope: Scope) -> Path:
    """The path of a context: that around it without an innermost range that means nothing, and its own scope.

    Ranges that mean nothing tell no more than the innermost one's name, and those that a program never closes, as after
    an exception, stand around all that follows: with each in the path of the next, a few thousand took minutes.
    """
    last = around[-1:]
    if last and last[0].kind == Kind.USER and not last[0].name.startswith(TELLING):
        around = around[:-1]
    return (*around, scope)


def own_part(path: Path) -> Path:
    """A context's scopes inside the innermost backward node: all of it where there is none."""
    for at in range(len(path) - 1, -1, -1):
        if path[at].kind in (Kind.NODE, Kind.ENGINE):
            return path[at + 1 :]
    return path


@dataclass(frozen=True, slots=True)
class Facts:
    """The columns that a launch's context (and its forward op's) decide; lists are JSON."""

    layer: str
    trace: str
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
    reason: str


def facts(own: Path, forward: Path | None, recomputed: bool, transfer: str = "", updating: bool = False) -> Facts:
    """Facts of a launch.

    ``own``: the ranges around the launch. ``forward``: around the forward op, for a launch inside a backward node whose
    forward op is in the capture. ``recomputed``: the launch re-runs a forward op inside a backward node. ``transfer``
    and ``updating``: see ``phase``.
    """
    inside = own_part(own)
    backward = len(inside) < len(own) and not recomputed
    communication = any(s.kind == Kind.COMM or s.name.startswith(COMMUNICATION) for s in inside)
    if backward and not communication:
        source = forward if forward is not None else ()
    else:
        source = inside if recomputed or communication else own
    mods, ops = _called(source)
    if not ops and backward:
        mods, ops = _node_called(own)
    optimizer = [s for s in own if s.kind == Kind.OPTIMIZER]
    if optimizer:
        mods, ops = ["torch.optim", *mods], [_optimizer_name(optimizer[-1].name), *ops]
    phase = phase_of(own, [] if communication else ops, transfer, updating)
    innermost = next((s for s in reversed(inside) if s.kind == Kind.OP), None)
    if communication and (innermost is None or not innermost.sizes):  # traces of 2022: the annotation has the sizes
        innermost = next((s for s in reversed(inside) if s.kind == Kind.COMM and s.sizes), innermost)
    message = _message(inside)
    innermost = innermost or message  # what NCCL says of itself, where PyTorch says nothing
    return Facts(
        layer=_json(_layers(source)),
        trace=_json(_trace(source)),
        marker=_json([s.text for s in source if s.kind == Kind.MARKER and s.marker and s.marker.op]),
        mod=_json(mods),
        op=_json(ops),
        dir="" if communication or not ops else "bprop" if backward else "fprop" if phase == "forward" or recomputed
        else "",
        phase=phase,
        aten=innermost.name if innermost else "",
        sizes=innermost.sizes if innermost else "",
        dtypes=innermost.dtypes if innermost else "",
        strides=innermost.strides if innermost else "",
        args=innermost.args if innermost else "",
        comm=message.comm if message else "",
        nodes=_json([s.name for s in own if s.kind in (Kind.OP, Kind.NODE)]),
        forward=_call(forward[-1])
        if backward and forward and innermost and kinship(innermost.name, forward[-1].name)
        else "",
        reason="" if ops else _why(own),
    )  # fmt: skip


def _message(path: Path) -> Scope | None:
    """The collective that a launch does: none where it is an op's inside it, like a copy."""
    for scope in reversed(path):
        if scope.comm or scope.kind == Kind.OP:
            return scope if scope.comm else None
    return None


def _json(items: Sequence[str]) -> str:
    return json.dumps(list(items), ensure_ascii=False) if items else ""


def _call(scope: Scope) -> str:
    """An op's name and arguments, for the kernels of a node that is their op and is given nothing but gradients."""
    texts = {"aten": json.dumps(scope.name, ensure_ascii=False), "sizes": scope.sizes, "dtypes": scope.dtypes,
             "strides": scope.strides, "args": scope.args}  # fmt: skip
    return "{" + ", ".join(f'"{key}": {text}' for key, text in texts.items() if text) + "}"


def _layers(path: Path) -> list[str]:
    named = [s.name for s in path if s.kind == Kind.LAYER]
    return named or [s.name for s in path if s.kind == Kind.MODULE]


def _trace(path: Path) -> list[str]:
    for scope in path:
        if scope.marker is not None and scope.marker.trace:
            return [line for line in scope.marker.trace if not _CALL.search(line)]
    return [s.name for s in path if s.kind == Kind.FRAME]


def _called(path: Path) -> tuple[list[str], list[str]]:
    """Module and name of what the user called: of the markers, else of the outermost op, else of NCCL's range."""
    marked = [s.marker for s in path if s.marker is not None and s.marker.op]
    if marked:
        return [m.mod for m in marked], [m.op for m in marked]
    for scope in path:
        if scope.kind == Kind.OP:
            mod, _, name = scope.name.rpartition("::")
            return [mod or "autograd"], [PUBLIC.get(name, name) if mod == "aten" else name]
    named = [s.name for s in path if s.kind == Kind.COMM]
    return (["nccl"], [named[-1]]) if named else ([], [])


def _node_called(own: Path) -> tuple[list[str], list[str]]:
    """A backward node without a forward op in the capture is named after the node: AccumulateGrad, Mm."""
    node = next(s for s in reversed(own) if s.kind in (Kind.NODE, Kind.ENGINE))
    match = _NODE_OP.match(node.name)
    return ["autograd"], [match.group(1) if match and match.group(1) else node.name]


def _optimizer_name(text: str) -> str:
    """`Optimizer.step#AdamW.step` -> `AdamW.step`."""
    match = _OPTIMIZER.match(text)
    return f"{match.group(2)}.{match.group(1)}" if match else text


def _why(own: Path) -> str:
    if not own:
        return reasons.NO_RANGE
    return reasons.only_user_ranges(own[-1].name)
