"""The meaning of a range on a CPU thread.

Readers reduce the text of each range to a ``Scope``: the text without the parts that differ from call to call (sequence
number, op id). So a capture with millions of ranges has a few thousand scopes.
"""

import json
import re
from enum import IntEnum
from typing import NamedTuple

from pyprof.compiled_record import COMPILED_RANGE
from pyprof.marker import TRITON, Marker, parse_marker
from pyprof.serving_range import SERVING_TEXTS


class Kind(IntEnum):
    """The kinds of ranges that attribution distinguishes."""

    USER = 0  # any other name: an annotation of the user or a library
    OP = 1  # an op that the dispatcher (or a custom autograd Function) recorded: aten::addmm
    NODE = 2  # a backward node: AddmmBackward0
    ENGINE = 3  # autograd's own range around a node: autograd::engine::evaluate_function
    MARKER = 4  # pyprof's, PyProf's or DLProf's op marker
    LAYER = 5  # layer:encoder.3
    MODULE = 6  # a Kineto nn.Module call: nn.Module: Linear_3
    FRAME = 7  # a Python frame: train.py(88): step
    OPTIMIZER = 8  # Optimizer.step#AdamW.step
    DATA = 9  # enumerate(DataLoader)
    STEP = 10  # ProfilerStep#3
    COMM = 11  # a communication library's own range: ncclAllReduce
    COMPILED = 12  # pyprof's range around the code of a compiled graph: pyprof.compiled:7


NAMING = (Kind.OP, Kind.NODE, Kind.MARKER, Kind.COMM, Kind.OPTIMIZER)  # ranges that can give a row its op


class Origin(NamedTuple):
    """What a call in the code of a compiled graph computes, by the graph's record (``compiled_record.py``).

    Modules, names and lines are those of its main operation.
    """

    layer: tuple[str, ...]  # relative to the compiled module
    root: str  # the class of the outermost of these modules, if all operations of the graph are in it
    trace: tuple[str, ...]
    functions: tuple[str, ...]
    mod: str
    op: str
    fused: str  # all its operations, as in the column
    backward: bool = False  # whether the main operation is of a backward pass
    node: str = ""  # compiled autograd: the node of autograd that it is of
    behind: int = -1  # by how much the node's number is smaller than the first one's of the pass; -1: not known


class Scope(NamedTuple):
    """A distinct range text. ``sizes`` .. ``args`` are JSON lists in the op's schema order, empty where unknown."""

    kind: Kind
    name: str
    sizes: str = ""
    dtypes: str = ""
    strides: str = ""
    args: str = ""
    marker: Marker | None = None
    text: str = ""  # a marker's own text; a frame's function
    comm: str = ""  # a collective's messages as a JSON list, see collective_records.py
    origin: Origin | None = None  # for an op that a compiled graph's code calls


ENGINE = "autograd::engine::evaluate_function: "
CPP_NODE = "torch::autograd::CppNode<"  # a C++ autograd Function's node; the node itself is the op of its kernels
_NODE = re.compile(r"(?:Backward\d*|Backwards|AccumulateGrad|GraphRoot|UndefinedGrad)$")
# A range with its numbers, as torch/csrc/profiler/util.cpp (getNvtxStr) writes it.
_DIGITS = 18  # of a number of 64 bits
_NUMBERED = re.compile(
    r"([^,]+?)(?:, seq = (-?\d+))?(?:, op_id = (\d+))?(?:, sizes = (\[[\[\]\d, ]*\]))?(?:, input_op_ids = .*)?",
    re.DOTALL,
)
# beginnings of texts that mark or end a step
STEP_TEXTS = ("ProfilerStep#", "pyprof.step", "Optimizer.step", *SERVING_TEXTS)
_PREFIXES = ("{", "layer:", "Optimizer.", "enumerate(DataLoader)", "ProfilerStep#", "pyprof.step", COMPILED_RANGE)
_STEP = re.compile(r"(?:ProfilerStep#|pyprof\.step[ :#])\d+")


def classify(name: str, recorded: bool, sizes: str = "") -> Scope:
    """The scope of a range text without its numbers.

    ``recorded`` says that PyTorch's dispatcher recorded it (it carries a sequence number or op id, or is a cpu_op).
    """
    if not recorded and "::" not in name and not name.startswith(_PREFIXES):
        return Scope(Kind.USER, name)
    if name.startswith("{"):
        marker = parse_marker(name)
        if marker is not None and marker.op == "__getattr__":
            # PyProf patched torch.__getattr__ and did not pop its range after an exception: 702 open ranges in one file
            return Scope(Kind.USER, "PyProf's marker of torch.__getattr__")
        if marker is not None:
            scope = Scope(Kind.MARKER, f"{marker.mod}.{marker.op}" if marker.op else "", marker=marker, text=name)
            return launched(scope, marker) if marker.mod == TRITON else scope
    if name.startswith(COMPILED_RANGE):
        return Scope(Kind.COMPILED, name)
    if name.startswith("layer:"):
        return Scope(Kind.LAYER, name[len("layer:") :].strip())
    if name.startswith(ENGINE):
        return Scope(Kind.ENGINE, name[len(ENGINE) :])
    if name.startswith("Optimizer."):
        return Scope(Kind.OPTIMIZER, name)
    if name.startswith("enumerate(DataLoader)"):
        return Scope(Kind.DATA, name)
    if _STEP.match(name):
        return Scope(Kind.STEP, name)
    if _NODE.search(name) and (recorded or "::" in name):
        return Scope(Kind.NODE, name, sizes)
    if _is_op(name, recorded):
        return Scope(Kind.OP, name, sizes)
    return Scope(Kind.USER, name)


def launched(scope: Scope, marker: Marker) -> Scope:
    """The scope of a Triton kernel's launch, with its arguments as an op has them."""
    tensors = [argument.get("type") == "tensor" and "shape" in argument for argument in marker.args]
    each = list(zip(marker.args, tensors, strict=True))
    strides = [argument.get("stride", []) if tensor else [] for argument, tensor in each]
    values = ["" if tensor else _value(argument.get("value")) for argument, tensor in each]
    return scope._replace(
        sizes=json.dumps([argument["shape"] if tensor else [] for argument, tensor in each]),
        dtypes=json.dumps([argument["dtype"] if tensor else "" for argument, tensor in each]),
        strides=json.dumps(strides) if any(strides) else "",
        args=json.dumps(values),
    )


def _value(value: object) -> str:
    return str(value) if isinstance(value, int | float | str) else ""


def is_cpp_node(scope: Scope) -> bool:
    """Whether a range is a C++ autograd Function's node, or autograd's own range around one."""
    return scope.name.startswith(CPP_NODE)


def _is_op(name: str, recorded: bool) -> bool:
    """Whether a recorded range is an op. Dynamo's look-ups (blanks in the name) and DDP.forward (a dot) are not."""
    if name.startswith(("aten::", CPP_NODE)):  # a node's template arguments may contain blanks and dots
        return True
    return recorded and " " not in name and ("::" in name or "." not in name)


def split(text: str) -> tuple[str, int | None, int | None, str]:
    """A range text -> (name, sequence number, op id, sizes). Sizes are JSON, empty where there are none or cut.

    >>> split("aten::mm, seq = 7, op_id = 9, sizes = [[2, 3], [3, 4]], input_op_ids = [(0,-1), (8,0)]")
    ('aten::mm', 7, 9, '[[2, 3], [3, 4]]')
    """
    if text[:1] == "{":  # a marker, whose commas do not separate parts
        return text, None, None, ""
    match = _NUMBERED.fullmatch(text)
    if match is None:  # the text is cut, or the name contains a comma
        match = re.match(r"(.*?)(?:, seq = (-?\d+))?(?:, op_id = (\d+))?(?:, sizes = .*)?$", text, re.DOTALL)
        assert match is not None
        name, seq, op_id = match.groups()
        sizes = None
    else:
        name, seq, op_id, sizes = match.groups()
    return name, _number(seq), _number(op_id), sizes or ""


def _number(digits: str | None) -> int | None:
    """A number of at most 64 bits; None for none, and for a longer one, which autograd cannot have counted to."""
    return int(digits) if digits and len(digits) <= _DIGITS else None
