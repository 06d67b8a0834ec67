"""Layer, group and RMS normalisation: rows of D elements that are normalised together, each with its own statistics.

E elements in R rows. The counts are derived in ``norm``, plus one product per element in dx: g * weight.
"""

from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, distinct
from pyprof.prof.ops.norm import Wants, channels, needs, normalise, op, present, statistics, wanted
from pyprof.prof.ops.operands import Out, given, moved, number, numel


def normalised(self: Tensor, normalized_shape: Any, weight: Any, bias: Any, out: Out) -> int:
    """D, the elements per row: from the normalised shape, or else from the parameters, or else from the statistics."""
    if isinstance(normalized_shape, (int, list, tuple)):
        return numel((normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape)
    for parameter in (given(weight), given(bias)):
        if parameter is not None:
            return parameter.numel
    saved = out[-1] if out and len(out) > 1 else None
    if saved is None:
        raise UnknownArgument("the capture does not have the normalised shape")
    return self.numel // max(saved.numel, 1)


@op("native_layer_norm layer_norm")
def layer_norm(self: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, *, out: Out = None) -> Work:
    """5E + 2R, weight E, bias E; saves mean and rstd per row"""
    rows = self.numel // (normalised(self, normalized_shape, weight, bias, out) or 1)
    return normalise(self, rows, weight, bias)


def row_backward(
    grad: Tensor, self: Tensor, weight: Any, bias: Any, size: int, rows: int, wants: Wants, *saved: Any
) -> Work:
    """dx 9E, and g * weight E;  dweight = sum(g * xhat) 2E - D;  dbias = sum(g) E - D. The weight is read for dx."""
    count = self.numel
    flop = (9 + present(weight)) * count if wants[0] else 0
    flop += (max(2 * count - size, 0) if wants[1] else 0) + (max(count - size, 0) if wants[2] else 0)
    parameter = given(weight) or given(bias) or self.like((size,))
    written = (moved(count, self) if wants[0] else 0) + (wants[1] + wants[2]) * moved(size, parameter)
    stored = sum(t.nbytes if given(t) and t.dtype else statistics(t.numel if given(t) else rows, self) for t in saved)
    return Work(flop, distinct(grad, self, weight if wants[0] else None) + stored, written)


@op("native_layer_norm_backward")
def layer_norm_backward(
    grad: Tensor, self: Tensor, shape: Any, mean: Any, rstd: Any, weight: Any = None, bias: Any = None, mask: Any = None
) -> Work:
    """dx 10E with a weight, 9E without; parameters' gradients 3E - 2D"""
    by_rows = given(mean) and shape is UNKNOWN
    size = self.numel // max(mean.numel, 1) if by_rows else normalised(self, shape, weight, bias, None)
    mask = number(mask, (True, True, True))
    wants = (bool(mask[0]), bool(mask[1]) and present(weight) > 0, bool(mask[2]) and present(bias) > 0)
    return row_backward(grad, self, weight, bias, size, self.numel // (size or 1), wants, mean, rstd)


def group_statistics(self: Tensor, weight: Any, shape: tuple[int, ...] = ()) -> Tensor:
    """What a group norm saves of each group: in the data's dtype, float32 if the parameters have another one

    Source: aten/src/ATen/native/group_norm.cpp, param_scalar_type, torch 2.13.
    """
    parameter = given(weight)
    is_mixed = parameter is not None and parameter.dtype != self.dtype
    return self.like(shape, "float32" if is_mixed else self.dtype)


@op("native_group_norm group_norm")
def group_norm(self: Tensor, *arguments: Any) -> Work:
    """5E + 2R, weight E, bias E; R = N * groups

    native_group_norm(self, weight, bias, N, C, HxW, group, eps); group_norm(self, num_groups, weight, bias, eps)
    """
    if isinstance(arguments[0], int):
        groups, weight, bias, *_ = *arguments[:3], None, None
    else:
        weight, bias = arguments[:2]
        groups = int(arguments[5])
    return normalise(self, self.shape[0] * groups, weight, bias, saved=group_statistics(self, weight))


@op("native_group_norm_backward (grad, self, mean, rstd, weight, _n, _c, _hw, _group, mask)")
def group_norm_backward(
    grad: Tensor, self: Tensor, mean: Tensor, rstd: Tensor, weight: Any = None, mask: Any = None
) -> Work:
    """Same as layer norm: dx 10E with a weight, parameters' gradients 3E - 2C"""
    wants = wanted(mask, weight)
    return row_backward(grad, self, weight, weight, channels(self), mean.numel, wants, mean, rstd)


@op("rms_norm _fused_rms_norm")
def rms_norm(self: Tensor, normalized_shape: Any, weight: Any = None, *, out: Out = None) -> Work:
    """x * rsqrt(mean(x x) + eps): square, sum, product 3E, eps and root 2R; weight E. Saves rstd."""
    rows = self.numel // (normalised(self, normalized_shape, weight, None, out) or 1)
    flop = (3 + present(weight)) * self.numel + 2 * rows
    return Work(flop, distinct(self, weight), moved(self.numel, self) + statistics(rows, self))


@op("_fused_rms_norm_backward")
def rms_norm_backward(grad: Tensor, self: Tensor, shape: Any, rstd: Any, weight: Any = None, mask: Any = None) -> Work:
    """dx: xhat, g xhat, its sum, xhat c, sub, rstd: 6E, and g weight E;  dweight 2E - D"""
    size, count = normalised(self, shape, weight, None, None), self.numel
    wants = number(mask, (True, True))
    gain = wants[1] and present(weight) > 0
    flop = ((6 + present(weight)) * count if wants[0] else 0) + (max(2 * count - size, 0) if gain else 0)
    written = (moved(count, self) if wants[0] else 0) + (distinct(weight) if gain else 0)
    read = distinct(grad, self, weight if wants[0] else None)
    return Work(flop, read + statistics(count // (size or 1), self), written)


@op("rms_norm.backward")
def rms_norm_whole_backward(self: Tensor, normalized_shape: Any, weight: Any = None) -> Work:
    """Same as ``_fused_rms_norm_backward``, even if the forward ran as separate ops"""
    return rms_norm_backward(self.like(self.shape), self, normalized_shape, None, weight, needs(self, weight))


@op("layer_norm.backward")
def layer_norm_whole_backward(self: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None) -> Work:
    """Same as ``native_layer_norm_backward`` with float32 statistics, whatever dtype the device saved"""
    wants = needs(self, weight, bias)
    return layer_norm_backward(self.like(self.shape), self, normalized_shape, None, None, weight, bias, wants)


@op("group_norm.backward")
def group_norm_whole_backward(self: Tensor, groups: Any, weight: Any = None, bias: Any = None) -> Work:
    """Same as ``native_group_norm_backward``"""
    wants = needs(self, weight, bias)
    rows = self.shape[0] * int(groups)
    saved = [group_statistics(self, weight, (rows,))] * 2
    return row_backward(self.like(self.shape), self, weight, bias, channels(self), rows, wants, *saved)


@op("_weight_norm _weight_norm_interface")
def weight_norm(v: Tensor, g: Tensor) -> Work:
    """w = v * (g / ||v||): squares E, their sum E - R, R roots, R divisions, E products. Saves the R norms."""
    return Work(3 * v.numel + g.numel, distinct(v, g), moved(v.numel, v) + statistics(g.numel, v))


@op("_weight_norm_interface_backward")
def weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor) -> Work:
    """dg = sum(dw v) / n: 2E - R + R;  dv = dw (g / n) - v (g dg / n^2): 3E, and 3R for the factors, sharing g / n"""
    saved = statistics(g.numel, v)
    return Work(5 * v.numel + 3 * g.numel, distinct(grad, v, g) + saved, moved(v.numel, v) + moved(g.numel, g))


@op("_weight_norm.backward")
def weight_norm_whole_backward(v: Tensor, g: Tensor) -> Work:
    """Same as ``_weight_norm_interface_backward``"""
    return weight_norm_backward(Tensor(v.shape, v.dtype), v, g)
