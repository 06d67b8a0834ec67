"""Recurrent networks: RNN, GRU, LSTM, as whole networks or single cells, for the ops of all backends.

flop    only the matrix products: each step of each sequence multiplies once by every weight matrix (input,
        hidden, projection) of every layer and direction,
            2 * (elements of all weight matrices) * (steps of all sequences)
        The gates' element-wise work (27 flop per hidden element and step for LSTM, 21 for GRU) is not counted
        here; the fused cells below count it.
read    input, initial states, weights and biases, each once: cuDNN's persistent kernels keep the weights on
        chip, other kernels read them again at each step
write   output and final states, but not the tensors between layers or cuDNN's reserve space
Backward: the data and the weight gradient of each product, so twice the flop, including the initial states' gradients
(cuDNN's backward-data kernel computes all of them, needed or not). dgrad reads dy, y and the weights and writes dx and
the states' gradients; wgrad reads x, y and the initial states and writes the weights' gradients.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyprof.errors import ModelError
from pyprof.prof.ops.gemm import multiply_adds
from pyprof.prof.ops.marker_arguments import tensors_within
from pyprof.prof.ops.model import UNKNOWN, Family, Parts, Tensor, Work, distinct, model
from pyprof.prof.ops.operands import Out, first_output, given, moved, tensors

op = Family("rnn")


@dataclass(frozen=True, slots=True)
class Network:
    """A recurrent network: x[.., input size], initial states, parameters of all layers and directions."""

    x: Tensor
    states: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    bidirectional: Any

    @property
    def flop(self) -> int:
        """FLOPs of the forward's products."""
        matrices = sum(w.numel for w in self.weights if len(w.shape) > 1)
        return multiply_adds(matrices * math.prod(self.x.shape[:-1]), self.x)

    def output_bytes(self, out: Out = None) -> float:
        """y[.., directions * hidden size], as the capture describes it, or else by the initial state's size."""
        described = first_output(out)
        if described is not None:
            return moved(described.numel, described if described.dtype else self.x)
        directions = self.directions()
        if directions is None:
            return math.nan
        return moved(math.prod(self.x.shape[:-1]) * self.states[0].shape[-1] * directions, self.x)

    def directions(self) -> int | None:
        """1 or 2: from the call, or from the weights' sizes; None if both fit.

        Every layer after the first takes the output of all directions as its input. The initial state is [layers *
        directions, batch, hidden size]. Each layer and direction has the same number of weights: first W_ih, then W_hh
        [gates * hidden, hidden]. Networks with a projection are not covered.
        """
        if self.bidirectional is not UNKNOWN:
            return 2 if self.bidirectional else 1
        shape = self.states[0].shape
        count, hidden = (shape[0], shape[-1]) if len(shape) > 1 else (0, 0)
        each = len(self.weights) // count if count else 0
        if not each or not hidden or len(self.weights) != count * each or each not in (2, 4):
            return None
        gates = self.weights[1].numel // hidden  # times hidden size
        input_weights = [w.numel for w in self.weights[::each]]
        fits = []
        for directions in (1, 2):
            sizes = [gates * (self.x.shape[-1] if i < directions else directions * hidden) for i in range(count)]
            if count % directions == 0 and sizes == input_weights:
                fits.append(directions)
        return fits[0] if len(fits) == 1 else None

    @property
    def state_bytes(self) -> float:
        return sum(moved(state.numel, state) for state in self.states)

    def forward(self, out: Out = None) -> Work:
        """The forward's work, with every tensor read or written once."""
        written = self.output_bytes(out) + self.state_bytes
        return Work(self.flop, distinct(self.x, self.states, self.weights), written)

    def backward(self, wgrad: bool | None = None, y: float | None = None) -> Parts:
        """The data gradient and, if ``wgrad``, the weight gradient (``None``: by the weights' ``needs_grad``).

        ``y``: the bytes of the output, if known.
        """
        y = self.output_bytes() if y is None else y
        inputs = moved(self.x.numel, self.x) + self.state_bytes
        parts = {"dgrad": Work(self.flop, 2 * y + distinct(self.weights), inputs)}
        if any(w.needs_grad for w in self.weights) if wgrad is None else wgrad:
            weights = sum(moved(w.numel, w) for w in self.weights)
            parts["wgrad"] = Work(self.flop, y + distinct(self.x, self.states), weights)
        return parts


def network(arguments: tuple[Any, ...], states: int) -> Network:
    """The network from the arguments (input, hx, params, has_biases, layers, dropout, train, bidirectional,
    batch_first).

    With packed sequences: (data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional). The data
    are [all steps, input size], the batch sizes a 1-D tensor. NVTX ranges write a list's items as separate arguments.
    """
    tensors = tensors_within(arguments)
    if len(tensors) < 2 + states:
        raise ModelError("an RNN has an input, first states and weights")
    first = 2 if len(tensors[1].shape) == 1 else 1
    flags = [a for a in arguments if isinstance(a, bool)]
    bidirectional = flags[2] if len(flags) > 2 else UNKNOWN  # the third flag, after has_biases and train
    return Network(tensors[0], tuple(tensors[first : first + states]), tuple(tensors[first + states :]), bidirectional)


def _register(names: str, states: int, gates: str) -> None:
    def forward(*arguments: Any, out: Out = None) -> Work:
        return network(arguments, states).forward(out)

    def backward(*arguments: Any) -> Parts:
        """Twice the forward's products"""
        return network(arguments, states).backward()

    forward.__doc__ = gates
    op(names)(forward)
    op(" ".join(f"{name}.backward" for name in names.split() if not name.startswith("_")))(backward)


_register("lstm _lstm_mps", 2, "Four gates, two states; with a projection, the hidden state is smaller")
_register("gru rnn_tanh rnn_relu", 1, "Three gates (a plain RNN: one), one state")


@op("lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell")
def cell(x: Tensor, hx: Any, *parameters: Any, out: Out = None) -> Work:
    """One step: (input, state or states, w_ih, w_hh, b_ih, b_hh); writes as many states as it reads"""
    net = cell_network(x, hx, parameters)
    return Work(net.flop, distinct(x, net.states, net.weights), net.state_bytes)


def cell_network(x: Tensor, hx: Any, parameters: tuple[Any, ...]) -> Network:
    states = tensors_within((hx,))
    rest = tensors_within(parameters)
    if len(rest) > 4 or (rest and rest[0].shape == states[0].shape and len(rest) in (3, 5)):
        states, rest = [*states, rest[0]], rest[1:]  # an LSTM's second state, not in a list
    return Network(x, tuple(states), tuple(rest), False)


@op("lstm_cell.backward gru_cell.backward rnn_tanh_cell.backward rnn_relu_cell.backward")
def cell_backward(x: Tensor, hx: Any, *parameters: Any) -> Parts:
    """Twice the step's products"""
    return cell_network(x, hx, parameters).backward()


@op("_cudnn_rnn miopen_rnn")
def cudnn_rnn(x: Tensor, *rest: Any, out: Out = None) -> Work:
    """(input, weights, stride, weight_buf, hx, cx, mode, ...): weight_buf is the memory of the weights"""
    # first the weights (a list, or separate arguments); hx is the next 3-D tensor
    weights = tensors_within(rest[:1]) if isinstance(rest[0], tuple) else leading(rest)
    after = tensors_within(rest[1:] if isinstance(rest[0], tuple) else rest[len(weights) :])
    states = [t for t in after if len(t.shape) > 1][:2]
    if not weights or not states:
        raise ModelError("_cudnn_rnn: the capture has neither its weights nor its states")
    hx = states[0]
    both = tuple(s for s in states if len(s.shape) == len(hx.shape) and s.shape[0] == hx.shape[0])
    flags = [a for a in rest if isinstance(a, bool)]  # batch_first, train, bidirectional
    return Network(x, both, _typed(weights, x), flags[2] if len(flags) > 2 else UNKNOWN).forward(out)


def _typed(parameters: Iterable[Tensor], x: Tensor) -> tuple[Tensor, ...]:
    """The parameters; those of an unknown dtype get x's, which cuDNN and MIOpen require (Kineto has none for lists)."""
    return tuple(w if w.dtype else replace(w, dtype=x.dtype) for w in parameters)


def leading(arguments: tuple[Any, ...]) -> list[Tensor]:
    """The tensors up to the first argument that is not a tensor."""
    end = next((i for i, a in enumerate(arguments) if not isinstance(a, Tensor)), len(arguments))
    return list(arguments[:end])


@op("_cudnn_rnn_backward miopen_rnn_backward")
def cudnn_rnn_backward(x: Tensor, weights: Any, *rest: Any) -> Parts:
    """Always the data gradient; the weights' gradient as in output_mask, if the capture has it

    (input, weights, stride, weight_buf, hx, cx, output, grad_output, ..., output_mask)
    """
    hx, cx, y, dy = (*rest[2:6], None, None, None)[:4]
    states = tensors((hx, cx))
    parameters = _typed(tensors_within((weights,)), x)
    if not parameters or not states:
        raise ModelError("_cudnn_rnn_backward: the capture has neither its weights nor its states")
    masks = [a for a in rest[6:] if isinstance(a, (tuple, list)) and len(a) == 4 and isinstance(a[-1], bool)]
    mask = masks[-1] if masks else None
    described = given(y) or given(dy)
    nbytes = None if described is None else moved(described.numel, described)
    return Network(x, states, parameters, UNKNOWN).backward(mask is None or mask[3], nbytes)


@op("mkldnn_rnn_layer")
def mkldnn_rnn_layer(x: Tensor, *arguments: Any) -> Work:
    """One layer and direction"""
    return layer(x, arguments).forward()


@op("mkldnn_rnn_layer_backward")
def mkldnn_rnn_layer_backward(x: Tensor, *arguments: Any) -> Parts:
    """Both gradients of one layer and direction"""
    return layer(x, arguments).backward(True)


def layer(x: Tensor, arguments: tuple[Any, ...]) -> Network:
    """The network from the arguments after x: (w_ih, w_hh, b_ih, b_hh, hx, cx).

    Without biases, PyTorch passes tensors of the weights' shapes in their place.
    """
    states = (arguments[4], *tensors_within(arguments[5:6]))
    biases = [t for t in tensors_within(arguments[2:4]) if len(t.shape) == 1]
    return Network(x, states, (*tensors_within(arguments[:2]), *biases), False)


@model("_cudnn_rnn_flatten_weight", family="layout")
def flatten_weight(weights: Any, *rest: Any) -> Work:
    """Copies all weights into the single buffer that cuDNN uses; the weights become views of it"""
    parameters = tensors_within((weights,)) if isinstance(weights, tuple) else leading((weights, *rest))
    return Work(0, distinct(parameters), sum(moved(w.numel, w) for w in parameters))


@model("_thnn_fused_lstm_cell", family="pointwise")
def fused_lstm_cell(gates_x: Tensor, gates_h: Tensor, cx: Tensor, b_x: Any = None, b_h: Any = None) -> Work:
    """Per hidden element: 4 gate sums (12 with two biases), 3 sigmoids of 3, tanh, c = f c + i g (3), o tanh(c) (2)

    flop    19, with biases 27;  reads gates, state, biases;  writes h, c and the four activated gates
    """
    flop = 27 if given(b_x) is not None else 19
    return Work(flop * cx.numel, distinct(gates_x, gates_h, cx, b_x, b_h), moved(6 * cx.numel, cx))


@model("_thnn_fused_lstm_cell_backward", "_thnn_fused_lstm_cell_backward_impl", family="pointwise")
def fused_lstm_cell_backward(dh: Any, dc: Any, cx: Tensor, cy: Tensor, gates: Tensor) -> Work:
    """Per hidden element: tanh(c), do, dc = dh o (1 - tanh^2) + dc (5), di, df, dg, dcx, sigmoids' 3 * 3, tanh's 3 =
    23"""
    return Work(23 * cx.numel, distinct(dh, dc, cx, cy, gates), moved(5 * cx.numel, cx))


@model("_thnn_fused_gru_cell", family="pointwise")
def fused_gru_cell(gates_x: Tensor, gates_h: Tensor, hx: Tensor, b_x: Any = None, b_h: Any = None) -> Work:
    """Per hidden element: r and z (2 sums, 2 sigmoids of 3), n = tanh(x + r h) (3), h = (1 - z) n + z h (4), 6 biases

    flop    15, with biases 21;  writes h and five intermediates
    """
    flop = 21 if given(b_x) is not None else 15
    return Work(flop * hx.numel, distinct(gates_x, gates_h, hx, b_x, b_h), moved(6 * hx.numel, hx))


@model("_thnn_fused_gru_cell_backward", family="pointwise")
def fused_gru_cell_backward(dh: Tensor, saved: Tensor) -> Work:
    """Per hidden element: dn = dh (1 - z)(1 - n^2) (5), dh_n = dn r, dr = dn h r (1 - r) (4), dz (4), dhx = dh z: 15"""
    return Work(15 * dh.numel, distinct(dh, saved), moved(7 * dh.numel, dh))
