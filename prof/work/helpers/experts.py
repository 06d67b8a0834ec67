"""TensorRT-LLM's mixture of experts, as vLLM calls it (``vllm::moe_forward``).

The op records the tokens and the router's scores, but neither the experts' sizes nor the number of experts per token.
The launches of its matrix products determine both:

* ``bmm_<out>_<A><B>_Fp32_t<M>x<N>x<K>...``: a block computes M features for N tokens of one expert (``transOut``), so
  the grid is (features / M, blocks of tokens). Types: E4m3 fp8, E2m1 fp4, Mx with one scale per 32 elements.
* Tokens are grouped by expert, and the grid has the largest number of blocks that could be needed: one per expert, and
  one per N further tokens: ``experts + floor((tokens * k - experts) / N)``. k is the only unknown.
* ``swiGlu``: half of the features are gates, so K of the next product is half the number of features.

FLOPs are those of the products as launched, including padding of tokens and features. Bytes count the weights of all
experts that the tokens could reach, once: an upper bound, because the router may not choose all of them.
Source: TensorRT-LLM, cpp/tensorrt_llm/kernels/trtllmGenKernels (batchedGemm, blockScaleMoe), 1.0; seen on B200.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from pyprof.prof.kernels.precision import PRECISION_OF_WORD, PRECISIONS
from pyprof.prof.ops.model import Tensor, Work
from pyprof.prof.work.helpers.registry import HelperCall, Launch, rule

SCALED = 32  # elements that share one 8-bit scale in the Mx types
TYPE = r"(?:Mx)?(?:E4m3|E2m1)|Bfloat16|Fp16"
PRODUCT = re.compile(rf"^bmm_(?P<out>{TYPE})_(?P<a>{TYPE})(?P<b>{TYPE})?_Fp32_t(?P<m>\d+)x(?P<n>\d+)x\d+")
INDEX_BYTES = 2
LARGEST = 64  # experts per token; DeepSeek's 8 is the most in use


@dataclass(frozen=True, slots=True)
class Router:
    """The sizes that the op records: tokens of ``width`` elements, with one score for each of ``experts``."""

    tokens: int
    width: int
    experts: int
    dtype_bytes: float
    score_bytes: float

    def chosen(self, blocks: int, each: int) -> int | None:
        """Experts per token, from the number of token blocks that a product launched; None if several numbers fit."""
        fits = [k for k in range(1, min(LARGEST, self.experts) + 1) if self._blocks(k, each) == blocks]
        return fits[0] if len(fits) == 1 else None

    def _blocks(self, k: int, each: int) -> int:
        filled = min(self.experts, self.tokens * k)
        return filled + (self.tokens * k - filled) // each


@rule(r"moe::dev::|quantize_with_block_size|^bmm_\w+_t\d+x\d+x\d+")
def experts(call: HelperCall) -> Work | None:
    """A mixture of experts whose op records only tokens and router scores (prof/work/helpers/experts.py)"""
    kernel, before, router = call.kernel, call.before or Launch(""), _router(call.arguments)
    if router is None:
        return None
    name = kernel.name
    product = PRODUCT.search(name)
    if product:
        return _product(product, kernel, router, before)
    if "quantize_with_block_size" in name:
        numbers = router.tokens * router.width
        return Work(numbers, numbers * router.dtype_bytes, _stored("MxE4m3", numbers)) if "Type)2" in name else None
    previous = PRODUCT.search(before.name)
    if "finalize" in name and previous:
        return _gathered(previous, before.grid, router)
    if "HistogramScores" in name:  # reads all scores for the best k of each token; the softmax of those is not counted
        return Work(0, router.tokens * router.experts * router.score_bytes, 0)
    return Work(0, INDEX_BYTES * router.tokens, 0) if "::routing" in name else None  # at least an index a token


def _router(arguments: tuple[Any, ...]) -> Router | None:
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    if len(tensors) != 2 or any(len(t.shape) != 2 for t in tensors) or tensors[0].shape[0] != tensors[1].shape[0]:
        return None
    tokens, scores = tensors
    return Router(tokens.shape[0], tokens.shape[1], scores.shape[1], tokens.itemsize, scores.itemsize)


def _product(match: re.Match[str], kernel: Launch, router: Router, before: Launch) -> Work | None:
    k = router.chosen(kernel.grid[1], int(match["n"])) if "transOut" in kernel.name else None
    if k is None:
        return None
    rows, features = router.tokens * k, kernel.grid[0] * int(match["m"])
    previous = PRODUCT.search(before.name)
    columns = _written_features(previous, before) if previous else router.width
    reached = min(router.experts, rows)
    read = _stored(match["a"], reached * features * columns)
    read += _stored(match["b"] or match["a"], (rows if previous else router.tokens) * columns)
    return Work(2 * rows * features * columns, read, _stored(match["out"], rows * _written_features(match, kernel)))


def _written_features(match: re.Match[str], kernel: Launch) -> int:
    features = kernel.grid[0] * int(match["m"])
    return features // 2 if "swiGlu" in kernel.name else features


def _gathered(product: re.Match[str], grid: tuple[int, int, int], router: Router) -> Work | None:
    """The work of adding each token's k weighted results."""
    k = router.chosen(grid[1], int(product["n"]))
    if k is None:
        return None
    numbers = router.tokens * router.width
    return Work((2 * k - 1) * numbers, _stored(product["out"], k * numbers), numbers * router.dtype_bytes)


def _stored(dtype: str, count: int) -> float:
    bits = PRECISIONS[PRECISION_OF_WORD[dtype.removeprefix("Mx").lower()]].bits
    scales = math.ceil(count / SCALED) if dtype.startswith("Mx") else 0
    return math.ceil(count * bits / 8) + scales
