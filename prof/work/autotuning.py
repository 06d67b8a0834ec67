"""The trials of cuDNN's autotuning (``torch.backends.cudnn.benchmark``): kernels that measure algorithms.

With autotuning, the first convolution of each shape runs every algorithm once and then the fastest again. All of these
kernels lie in one op call, and only the last one's result is used, so the op's work is attributed to it.
"""

import re
from itertools import groupby

import numpy as np

from pyprof.prof.kernels.roles import AUX, MAIN, assign_parts, role
from pyprof.prof.ops.evaluation import find
from pyprof.prof.work.calls import Calls, kernel_names
from pyprof.table.columns import Bools, Coded, Ints, Table, distinct

# The first computes one convolution, and so runs one algorithm; the second one for each gradient, one after the other.
ONE_CONVOLUTION = re.compile(r"(?:aten::)?cudnn_convolution\w{0,40}(?:\.\w{1,40})?")
GRADIENTS = re.compile(r"(?:aten::)?convolution_backward")
BOTH = ["dgrad", "wgrad"]  # where the shapes are unknown
# Words that only the kernels of one algorithm have (names of cuDNN 7 to 9, V100 to H200; cudnnConvolutionFwdAlgo_t).
ALGORITHMS = (
    re.compile(r"fft[12]d_|gcgemm|_cgemm"),
    re.compile(r"winograd", re.IGNORECASE),
    re.compile(r"plicit_convolve|[dw]grad\w{0,40}engine|[dw]grad2d"),
    re.compile(r"[sh]\d{0,6}cudnn_(?!winograd)|implicit_gemm|tensorop\w{0,40}(?:prop|grad)"),
)


def trials(table: Table, calls: Calls, roles: Coded) -> Bools:
    """The main kernels of cuDNN's calls that only measured an algorithm."""
    one, gradients = (table.coded("aten").where(op.fullmatch) for op in (ONE_CONVOLUTION, GRADIENTS))
    rows = np.flatnonzero((one | gradients) & roles.among(MAIN) & table.coded("kind").among("kernel"))
    rows = rows[np.bincount(calls.number[rows])[calls.number[rows]] > 2]  # two trials and the run
    found = np.zeros(len(table), bool)
    order = rows[np.argsort(calls.number[rows], kind="stable")]
    for of_call in np.split(order, np.flatnonzero(np.diff(calls.number[order])) + 1):
        if len(of_call):
            products = calls.names.take(of_call).texts()
            parts = (list(calls.of(of_call[0]).parts) or BOTH) if gradients[of_call[0]] else []
            for of_part in _by_gradient(products, parts):
                found[of_call[of_part[: tried([products[i] for i in of_part])]]] = True
    return found


def trial_rows(table: Table, role_of_row: Coded) -> Ints:
    """The rows that are trials: aux rows of a convolution (``role_of_row``) whose kernels are no helpers by name."""
    aten, names = table.coded("aten"), kernel_names(table)
    tuned = aten.where(lambda text: bool(ONE_CONVOLUTION.fullmatch(text) or GRADIENTS.fullmatch(text)))
    rows = np.flatnonzero(tuned & role_of_row.among(AUX) & table.coded("kind").among("kernel"))
    keys, number = distinct(names.codes[rows], aten.codes[rows])
    of_key = [role(names.values[name], find(aten.values[op]) or "", "conv") == MAIN for name, op in keys]
    found: Ints = rows[np.array(of_key, bool)[number]]
    return found


def _by_gradient(products: list[str], parts: list[str]) -> list[list[int]]:
    """The indices of one call's products that compute the same convolution.

    ``parts``: the gradients that the call computes; empty for a single convolution.
    """
    piece = assign_parts(products, parts)
    return [[i for i, of in enumerate(piece) if of == part] for part in dict.fromkeys(piece)]


def tried(products: list[str]) -> int:
    """How many of one call's product kernels, in launch order, are trials; the others are the run that counts.

    There are trials if the last kernel has run before, and if the kernels are of several algorithms or of three names.
    A run may launch its kernel several times in a row (groups, tiles): as often as in the shortest series of the call,
    or half as often if there is one series, because then the trial stands right before the run.

    >>> tried(["implicit_convolve_sgemm", "volta_gcgemm_32x32_nt", "implicit_convolve_sgemm"])
    2
    >>> tried(["sm80_a", "sm80_b", "sm80_a"]), tried(["volta_sgemm", "volta_sgemm", "volta_sgemm"])
    (0, 0)
    """
    chosen, distinct = products[-1], set(products)
    algorithms = sum(any(map(algorithm.search, distinct)) for algorithm in ALGORITHMS)
    if chosen not in products[:-1] or (algorithms < 2 and len(distinct) < 3):
        return 0
    series = [len(list(group)) for name, group in groupby(products) if name == chosen]
    return len(products) - (min(series) if len(series) > 1 else series[0] // 2)
