"""Which of the operations that one kernel computes gives the kernel its layer, line and op."""

import re
from collections.abc import Sequence

from pyprof.compiled_record import Operation

_PRODUCT = re.compile(
    r"::(?:addmm|mm|bmm|baddbmm|addbmm|addmv|mv|linear|matmul|_scaled_mm|_int_mm|_grouped_mm)$|conv|attention"
)
_REDUCTION = re.compile(
    r"norm|softmax|loss|::(?:sum|mean|var|std|amax|amin|max|min|prod|argmax|argmin|cumsum|topk|sort)|embedding|pool|scatter"
)
_MOVES = re.compile(
    r"::(?:_to_copy|to|clone|copy|copy_|cat|stack|empty\w*|full\w*|zeros\w*|ones\w*|arange|iota|scalar_tensor|fill|lift_fresh_copy"
    r"|constant_pad_nd|expand|view|_unsafe_view|reshape|t|transpose|permute|select|slice|split|unsqueeze|squeeze|"
    r"convert_element_type|device_put|detach|alias|as_strided|\w*_copy)$|^prims::(?:convert_element_type|iota|device_put)"
)


def main_operation(operations: Sequence[Operation]) -> Operation:
    """The operation that a kernel is attributed to.

    The first of these rules that tells them apart decides: it has a layer; it is not one that the backward pass only
    computes again; a product comes before a reduction or norm, that before other arithmetic, and copies come last;
    among equals, the last one, whose result the kernel was made for.
    """
    best = max(range(len(operations)), key=lambda at: (*_weight(operations[at]), at))
    return operations[best]


def _weight(operation: Operation) -> tuple[bool, bool, int]:
    return bool(operation.layer), not operation.again, _rank(operation.aten)


def _rank(aten: str) -> int:
    if _MOVES.search(aten):
        return 0
    if _PRODUCT.search(aten):
        return 3
    return 2 if _REDUCTION.search(aten) else 1
