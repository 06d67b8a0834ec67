"""Recurrent networks: RNN, GRU, LSTM, whole or one cell, by every backend's name.

flop    the matrix products alone: each step of each sequence multiplies by every weight matrix of every layer
        and direction (input, hidden, projection) once,
            2 * (elements of all weight matrices) * (steps of all sequences)
        The gates' element-wise work (27 flop a hidden number and step for LSTM, 21 for GRU) is not a product
        and not counted here; the fused cells below count it.
read    input, first states, weights and biases, each once: cuDNN's persistent kernels keep the weights on
        chip, others read them again at each step
write   output and last states; neither what goes between layers nor cuDNN's reserve space
Backward: each product's data and weight gradient, so twice the flop, first states' gradients included
(cuDNN's backward-data kernel computes all of them whether wanted or not). dgrad reads dy, y and the weights
and writes dx and the states' gradients; wgrad reads x, y and the first states and writes the weights'
gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pyprof.prof.ops.gemm import multiply_adds
from pyprof.prof.ops.model import UNKNOWN, ModelError, Parts, Tensor, Work, distinct, model
from pyprof.prof.ops.operands import Out, given, moved

FAMILY_NAME = "rnn"


@dataclass(frozen=True, slots=True)
class Network:
    """x[.., input size], first states, parameters of all layers and directions."""

    x: Tensor
    states: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    bidirectional: Any

    @property
    def flop(self) -> int:
        """Of the forward's products."""
        matrices = sum(w.numel for w in self.weights if len(w.shape) > 1)
        return multiply_adds(matrices * math.prod(self.x.shape[:-1]), self.x)

    def output_bytes(self, out: Out = None) -> float:
        """y[.., directions * hidden size], as told or by the first state's size."""
        if out and out[0] is not None:
            return moved(out[0].numel, out[0] if out[0].dtype else self.x)
        directions = self.directions() if self.bidirectional is UNKNOWN else 2 if self.bidirectional else 1
        if directions is None:
            return math.nan
        return moved(math.prod(self.x.shape[:-1]) * self.states[0].shape[-1] * directions, self.x)

    def directions(self) -> int | None:
        """By the weights' sizes: a layer after the first takes the output of all directions. None where both fit.

        The first state is [layers * directions, batch, hidden size]; each of these has as many weights, W_ih first,
        then W_hh [gates * hidden, hidden]. Networks with a projection are left out.
        """
        shape = self.states[0].shape
        count, hidden = (shape[0], shape[-1]) if len(shape) > 1 else (0, 0)
        each = len(self.weights) // count if count else 0
        if not each or not hidden or len(self.weights) != count * each or each not in (2, 4):
            return None
        gates = self.weights[1].numel // hidden  # times hidden size
        found = [w.numel for w in self.weights[::each]]
        fits = []
        for directions in (1, 2):
            layers = count // directions
            sizes = [gates * (self.x.shape[-1] if i < directions else directions * hidden) for i in range(count)]
            if layers * directions == count and sizes == found:
                fits.append(directions)
        return fits[0] if len(fits) == 1 else None


def forward(net: Network, out: Out = None) -> Work:
    """Everything once."""
    states = sum(moved(s.numel, s) for s in net.states)
    return Work(net.flop, distinct(net.x, net.states, net.weights), net.output_bytes(out) + states)


def backward(net: Network, dgrad: bool = True, wgrad: bool = True) -> Parts:
    """Data and weight gradients."""
    y, parts = net.output_bytes(), Parts()
    if dgrad:
        states = sum(moved(s.numel, s) for s in net.states)
        parts["dgrad"] = Work(net.flop, 2 * y + distinct(net.weights), moved(net.x.numel, net.x) + states)
    if wgrad:
        weights = sum(moved(w.numel, w) for w in net.weights)
        parts["wgrad"] = Work(net.flop, y + distinct(net.x, net.states), weights)
    return parts


def flat(arguments: Any) -> list[Tensor]:
    """The tensors, out of their lists: NVTX ranges write a list's items one after the other."""
    tensors: list[Tensor] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            tensors.append(argument)
        elif isinstance(argument, tuple):
            tensors += flat(argument)
    return tensors


def network(arguments: tuple[Any, ...], states: int) -> Network:
    """(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first), or packed
    sequences: (data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional).

    Packed data are [all steps, input size] with a 1-D tensor of batch sizes.
    """
    tensors = flat(arguments)
    if len(tensors) < 2 + states:
        raise ModelError("an RNN has an input, first states and weights")
    first = 2 if len(tensors[1].shape) == 1 else 1
    flags = [a for a in arguments if isinstance(a, bool)]
    bidirectional = flags[2] if len(flags) > 2 else UNKNOWN  # after has_biases and train
    return Network(tensors[0], tuple(tensors[first : first + states]), tuple(tensors[first + states :]), bidirectional)


@model("lstm", "_lstm_mps", family=FAMILY_NAME)
def lstm(*arguments: Any, out: Out = None) -> Work:
    """Four gates, two states; with a projection, the hidden state is smaller"""
    return forward(network(arguments, 2), out)


@model("gru rnn_tanh rnn_relu", family=FAMILY_NAME)
def gru(*arguments: Any, out: Out = None) -> Work:
    """Three gates (a plain RNN: one), one state"""
    return forward(network(arguments, 1), out)


@model("lstm.backward", family=FAMILY_NAME)
def lstm_backward(*arguments: Any) -> Parts:
    """Twice the forward's products"""
    return wanted(network(arguments, 2))


@model("gru.backward rnn_tanh.backward rnn_relu.backward", family=FAMILY_NAME)
def gru_backward(*arguments: Any) -> Parts:
    """Twice the forward's products"""
    return wanted(network(arguments, 1))


def wanted(net: Network) -> Parts:
    return backward(net, wgrad=any(w.needs_grad for w in net.weights))


@model("lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell", family=FAMILY_NAME)
def cell(x: Tensor, hx: Any, *parameters: Any, out: Out = None) -> Work:
    """(input, state or states, w_ih, w_hh, b_ih, b_hh): one step; writes as many states as it reads"""
    net = cell_network(x, hx, parameters)
    return Work(net.flop, distinct(x, net.states, net.weights), sum(moved(s.numel, s) for s in net.states))


def cell_network(x: Tensor, hx: Any, parameters: tuple[Any, ...]) -> Network:
    states = flat((hx,))
    rest = flat(parameters)
    if len(rest) > 4 or (rest and rest[0].shape == states[0].shape and len(rest) in (3, 5)):
        states, rest = [*states, rest[0]], rest[1:]  # an LSTM's second state, its list written out
    return Network(x, tuple(states), tuple(rest), False)


@model("lstm_cell.backward gru_cell.backward rnn_tanh_cell.backward rnn_relu_cell.backward", family=FAMILY_NAME)
def cell_backward(x: Tensor, hx: Any, *parameters: Any) -> Parts:
    """Twice the step's products"""
    return wanted(cell_network(x, hx, parameters))


@model("_cudnn_rnn", "miopen_rnn", family=FAMILY_NAME)
def cudnn_rnn(x: Tensor, *rest: Any, out: Out = None) -> Work:
    """(input, weights, stride, weight_buf, hx, cx, mode, ...): weight_buf is the weights' own memory"""
    return forward(cudnn_network(x, rest), out)


def cudnn_network(x: Tensor, rest: tuple[Any, ...]) -> Network:
    """The weights come first, as a list or written out; hx is the first tensor of three dimensions after them."""
    weights = flat(rest[:1]) if isinstance(rest[0], tuple) else leading(rest)
    after = flat(rest[1:] if isinstance(rest[0], tuple) else rest[len(weights) :])
    states = [t for t in after if len(t.shape) > 1][:2]
    if not weights or not states:
        raise ModelError("_cudnn_rnn: its weights and states are not told")
    hx = states[0]
    both = tuple(s for s in states if len(s.shape) == len(hx.shape) and s.shape[0] == hx.shape[0])
    flags = [a for a in rest if isinstance(a, bool)]  # batch_first, train, bidirectional
    return Network(x, both, tuple(weights), flags[2] if len(flags) > 2 else UNKNOWN)


def leading(arguments: tuple[Any, ...]) -> list[Tensor]:
    """The tensors up to the first argument that is none."""
    end = next((i for i, a in enumerate(arguments) if not isinstance(a, Tensor)), len(arguments))
    return list(arguments[:end])


@model("_cudnn_rnn_backward", "miopen_rnn_backward", family=FAMILY_NAME)
def cudnn_rnn_backward(
    x: Tensor,
    weights: Any,
    _stride: Any,
    _buffer: Any,
    hx: Any,
    cx: Any = None,
    y: Any = None,
    dy: Any = None,
    *rest: Any,
) -> Parts:
    """Backward data always; the weights' gradient by output_mask, where it is told"""
    states = tuple(t for t in (given(hx), given(cx)) if t is not None)
    parameters = tuple(flat((weights,)))
    if not parameters or not states:
        raise ModelError("_cudnn_rnn_backward: its weights and states are not told")
    known = given(y) or given(dy)
    net = Network(x, states, parameters, UNKNOWN)
    mask = next((a for a in reversed(rest) if isinstance(a, tuple) and len(a) == 4 and isinstance(a[-1], bool)), None)
    parts = backward(net, wgrad=mask is None or mask[3])
    return parts if known is None else with_output(parts, net, moved(known.numel, known))


def with_output(parts: Parts, net: Network, y: float) -> Parts:
    """The same parts, with y's bytes known from y itself."""
    states = sum(moved(s.numel, s) for s in net.states)
    reads = {"dgrad": 2 * y + distinct(net.weights), "wgrad": y + distinct(net.x, net.states)}
    writes = {"dgrad": moved(net.x.numel, net.x) + states, "wgrad": sum(moved(w.numel, w) for w in net.weights)}
    return {name: Work(work.flop, reads[name], writes[name]) for name, work in parts.items()}


@model("mkldnn_rnn_layer", family=FAMILY_NAME)
def mkldnn_rnn_layer(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any, hx: Tensor, cx: Any = None, *_: Any
) -> Work:
    """One layer and direction"""
    return forward(layer(x, (w_ih, w_hh, b_ih, b_hh), hx, cx))


def layer(x: Tensor, parameters: tuple[Any, ...], hx: Tensor, cx: Any) -> Network:
    return Network(x, tuple(t for t in (hx, given(cx)) if t is not None), tuple(flat(parameters)), False)


@model("mkldnn_rnn_layer_backward", family=FAMILY_NAME)
def mkldnn_rnn_layer_backward(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any, hx: Tensor, cx: Any = None, *_: Any
) -> Parts:
    """Both gradients of one layer and direction"""
    return backward(layer(x, (w_ih, w_hh, b_ih, b_hh), hx, cx))


@model("_cudnn_rnn_flatten_weight", family="layout")
def flatten_weight(weights: Any, *rest: Any) -> Work:
    """All weights copied into the one buffer that cuDNN takes; they become views of it"""
    parameters = flat((weights,)) if isinstance(weights, tuple) else leading((weights, *rest))
    return Work(0, distinct(parameters), sum(moved(w.numel, w) for w in parameters))


# The element-wise part of a cell, fused


@model("_thnn_fused_lstm_cell", family="pointwise")
def fused_lstm_cell(gates_x: Tensor, gates_h: Tensor, cx: Tensor, b_x: Any = None, b_h: Any = None) -> Work:
    """A hidden number: 4 gate sums (12 with two biases), 3 sigmoids of 3, tanh, c = f c + i g (3), o tanh(c)
    (2)

    flop    19, with biases 27;  reads gates, state, biases;  writes h, c and the four activated gates
    """
    flop = 27 if given(b_x) is not None else 19
    return Work(flop * cx.numel, distinct(gates_x, gates_h, cx, b_x, b_h), moved(6 * cx.numel, cx))


@model("_thnn_fused_lstm_cell_backward", "_thnn_fused_lstm_cell_backward_impl", family="pointwise")
def fused_lstm_cell_backward(dh: Any, dc: Any, cx: Tensor, cy: Tensor, gates: Tensor) -> Work:
    """A hidden number: tanh(c), do, dc = dh o (1 - tanh^2) + dc (5), di, df, dg, dcx, sigmoids' 3 * 3, tanh's 3 = 23"""
    return Work(23 * cx.numel, distinct(dh, dc, cx, cy, gates), moved(5 * cx.numel, cx))


@model("_thnn_fused_gru_cell", family="pointwise")
def fused_gru_cell(gates_x: Tensor, gates_h: Tensor, hx: Tensor, b_x: Any = None, b_h: Any = None) -> Work:
    """A hidden number: r and z (2 sums, 2 sigmoids of 3), n = tanh(x + r h) (3), h = (1 - z) n + z h (4), 6
    biases

    flop    15, with biases 21;  writes h and five intermediates
    """
    flop = 21 if given(b_x) is not None else 15
    return Work(flop * hx.numel, distinct(gates_x, gates_h, hx, b_x, b_h), moved(6 * hx.numel, hx))


@model("_thnn_fused_gru_cell_backward", family="pointwise")
def fused_gru_cell_backward(dh: Tensor, saved: Tensor) -> Work:
    """A hidden number: dn = dh (1 - z)(1 - n^2) (5), dh_n = dn r, dr = dn h r (1 - r) (4), dz (4), dhx = dh z: 15"""
    return Work(15 * dh.numel, distinct(dh, saved), moved(7 * dh.numel, dh))
