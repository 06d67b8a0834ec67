"""Forward-mode tangents that are zero, since their argument has none: PyTorch multiplies by them all the same.

The tangent of ``x @ w`` is ``dx @ w + x @ dw``. If only x has a tangent, PyTorch makes a tensor of zeros for dw
(``_efficientzerotensor``, and for most ops a ``zeros`` of one number, expanded) and runs both products and the sum. The
derivative has one product, so ops on such zeros are not counted.
"""

from typing import Any

import torch

from pyprof.counting.arguments import tensors
from pyprof.counting.call_work import OpCount
from pyprof.prof.ops.model import FAMILY, MATRIX


class ZeroTangents:
    """The tensors of zeros that one call makes. They are kept until its end, so that no other takes their memory."""

    def __init__(self) -> None:
        self._made = False  # whether the call made a zero tangent
        self._zeros: dict[int, torch.Tensor] = {}  # storage -> a tensor in it

    def has(self, func: Any, args: Any, result: Any, count: OpCount) -> bool:
        """Whether the op works on a zero tangent. To be asked of each op that the call dispatches."""
        name = str(func)
        if name.startswith("aten._efficientzerotensor"):
            self._made = True
        elif self._made and name == "aten.zeros.default" and not result.shape:
            self._keep(result)
        elif any(tensor.untyped_storage()._cdata in self._zeros for tensor in _strided(args)):
            if FAMILY.get(count.model) in MATRIX:  # a product with zeros is zeros
                self._keep(result)
            return True
        return False

    def _keep(self, zeros: torch.Tensor) -> None:
        self._zeros[zeros.untyped_storage()._cdata] = zeros


def _strided(args: Any) -> list[torch.Tensor]:
    with torch._C.DisableTorchFunction():
        return [t for t in tensors(args) if t.layout == torch.strided and not t.is_nested and not t._is_zerotensor()]
