"""The work of a backward op, derived from its forward call if the capture has no shapes for the backward itself.

Markers record the forward call's tensors. Without record_shapes, autograd's ranges only record which op ran.
That is enough where the shapes of the gradients follow from the forward: the gradients of a matrix product are products
with the same three sizes, and the backward of an activation or softmax works on tensors with its input's shape.
"""

from collections.abc import Sequence
from typing import Any

from pyprof.marker import Marker
from pyprof.prof.ops.evaluation import evaluate, evaluate_call, find
from pyprof.prof.ops.marker_arguments import call_arguments
from pyprof.prof.ops.model import FAMILY, Parts, Tensor, Work, names

# products that autograd runs to compute the gradients of a product
PRODUCTS = names("mm bmm addmm baddbmm matmul")
# gradients with the input's shape: (gradient, input or result, ...)
ALIKE = names(
    "threshold_backward tanh_backward sigmoid_backward gelu_backward silu_backward elu_backward leaky_relu_backward "
    "hardtanh_backward"
)
# whole backwards, whose models take the forward call's arguments
WHOLE = {"native_layer_norm_backward": "layer_norm", "native_group_norm_backward": "group_norm"}
SOFTMAX = names("_softmax_backward_data _log_softmax_backward_data")


def from_forward(name: str, markers: list[Marker]) -> Work | None:
    """The work of the backward op ``name``; None where the forward call's markers do not determine it.

    Raises ModelError if the marker's arguments do not fit.
    """
    work: Work | Parts | None = None
    if name in PRODUCTS:
        work = _product(markers)
    elif name in ALIKE or name in SOFTMAX:
        work = _alike(name, markers)
    elif name in WHOLE:
        marker = next((marker for marker in reversed(markers) if marker.op == WHOLE[name]), None)
        work = evaluate_call(f"{WHOLE[name]}.backward", marker) if marker else None
    return work if isinstance(work, Work) else None


def _product(markers: list[Marker]) -> Work | Parts | None:
    """dA = dC @ B' and dB = A' @ dC multiply M, N and K once each and touch A, B and C once each, as C = A @ B does."""
    for marker in reversed(markers):
        found = find(marker.op)
        if found is not None and FAMILY[found] == "gemm":
            op, *operands = _without_bias(found, call_arguments(marker))
            return evaluate(op, tuple(operands)) if op else None
    return None


def _without_bias(op: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The op and the arguments of the same product without the bias, whose gradient is a separate sum."""
    if op == "linear":
        return ("linear", *arguments[:2], None)
    if op in ("addmm", "baddbmm"):
        return ("mm" if op == "addmm" else "bmm", *arguments[1:3])
    return (op if op in ("mm", "bmm", "matmul") else "", *arguments[:2])


def _alike(name: str, markers: list[Marker]) -> Work | Parts | None:
    for marker in reversed(markers):
        tensor = next((a for a in call_arguments(marker) if isinstance(a, Tensor)), None)
        if tensor is not None:
            return evaluate(name, (tensor, tensor, _dim(marker)) if name in SOFTMAX else (tensor, tensor))
    return None


def _dim(marker: Marker) -> Any:
    """The dim of softmax(input, dim, ...): the keyword argument, or else the first integer."""
    named = [a.get("value") for a in marker.args if a.get("name") == "dim"]
    numbers = [a.get("value") for a in marker.args if a.get("type") == "int"]
    return next((n for n in (*named, *numbers) if isinstance(n, int)), -1)


def bias_gradient(gradient: Sequence[int], nodes: Sequence[str], operands: Sequence[Tensor]) -> list[int] | None:
    """The output shape of ``sum`` where it computes a bias gradient, one number per channel; None for other sums.

    ``gradient``: the shape of the summed tensor; ``nodes``: the ops around the sum; ``operands``: the tensors of the
    user's call if that is linear or addmm.

    ATen/native/Convolution.cpp (2.4 to 2.13): grad_bias = grad_output.sum over all dimensions but the second.
    layer_norm_kernel.cu: partial sums [blocks, channels] over the first dimension. addmm's gradient [rows, columns] is
    summed to the shape of the bias, if the call's marker has one.
    """
    if "aten::convolution_backward" in nodes:
        return [gradient[1]] if len(gradient) > 2 else None
    if len(gradient) != 2:
        return None
    channels = list(gradient[1:])
    has_bias = "AddmmBackward0" in nodes and any(tensor.shape == tuple(channels) for tensor in operands)
    return channels if has_bias or "aten::native_layer_norm_backward" in nodes else None
