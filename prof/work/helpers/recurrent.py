"""Helper kernels of cuDNN's recurrent layers: a cell's gates, between its products, and the biases' gradients.

Each launch works on one time step of a layer, except those for the biases. The numbers of values read and written per
hidden unit of the batch were measured on an H200 (cuDNN 9, 8,192 x 1,024 units). Reads agree to within 0.1%; writes
partly stay in the cache.
"""

import re

from pyprof.dtypes import cpp_bytes
from pyprof.prof.ops.model import Work
from pyprof.prof.work.helpers.registry import HelperCall, rule

INPUT, HIDDEN, TRAIN = 0, 4, 12  # positions in _cudnn_rnn and, but for the last, _cudnn_rnn_backward
# cudnnRNNMode_t -> (values read, values written in inference, values written in training, for the backward). A gate
# reads both of its products and the state: c of an LSTM, h of a GRU.
CELLS = {0: (2, 1, 2), 1: (2, 1, 2), 2: (9, 2, 7), 3: (7, 1, 5)}
GRADIENTS = {"RNN": (3, 1), "LSTM": (9, 5), "GRU": (7, 6)}  # values read, written


def _units(call: HelperCall) -> int | None:
    """The hidden units that the launch works on, one per thread; fewer than the batch's if sequences have ended."""
    hidden = call.tensor(HIDDEN)
    if hidden is None or len(hidden.shape) < 2 or not call.kernel.threads:
        return None
    return min(hidden.shape[-2] * hidden.shape[-1], call.kernel.threads)


def _item(kernel: str) -> int:
    """Bytes per value, from the template's first type; 0 if the type is unknown."""
    match = re.search(r"<\s*(\w+)", kernel)
    return cpp_bytes(match[1]) or 0 if match else 0


@rule(r"elemWiseRNNcell<")
def cell(call: HelperCall) -> Work | None:
    """cuDNN: a cell's gates. Per unit reads 2 (RNN), 9 (LSTM), 7 (GRU) values, writes 1, 2, 1; in training writes 2, 7,
    5"""
    mode = re.search(r"elemWiseRNNcell<(?:[^,<>]+,){3}\s*\(?(?:cudnnRNNMode_t)?\)?\s*(\d)", call.kernel.name)
    units, item = _units(call), _item(call.kernel.name)
    if not mode or int(mode[1]) not in CELLS or units is None or not item:
        return None
    read, alone, training = CELLS[int(mode[1])]
    trains = len(call.arguments) > TRAIN and call.arguments[TRAIN] is True
    return Work(0, read * units * item, (training if trains else alone) * units * item)


@rule(r"(?:RNN|LSTM|GRU)_elementWise_bp1<")
def cell_gradient(call: HelperCall) -> Work | None:
    """cuDNN: the gradients of a cell's gates. Per unit reads 3 (RNN), 9 (LSTM), 7 (GRU) values, writes 1, 5, 6"""
    kind = re.search(r"(RNN|LSTM|GRU)_elementWise", call.kernel.name)
    units, item = _units(call), _item(call.kernel.name)
    if not kind or units is None or not item:
        return None
    read, written = GRADIENTS[kind[1]]
    return Work(0, read * units * item, written * units * item)


@rule(r"(?:GENERIC|GRU)_elementWise_bp2<")
def bias_gradient(call: HelperCall) -> Work | None:
    """cuDNN: the biases' gradients, sums over all steps and sequences of the gates' gradients; for a GRU, of both
    biases"""
    gates = re.search(r"_elementWise_bp2<(?:[^,<>]+,){3}\s*(?:\(int\))?(\d)", call.kernel.name)
    data, hidden, item = call.tensor(INPUT), call.tensor(HIDDEN), _item(call.kernel.name)
    if not gates or data is None or hidden is None or not item or not (data.shape and hidden.shape):
        return None
    sums = int(gates[1]) * hidden.shape[-1] * (2 if "GRU_" in call.kernel.name else 1)
    steps = data.numel // data.shape[-1] if data.shape[-1] else 0  # of all sequences
    return Work(0, steps * sums * item, sums * item)
