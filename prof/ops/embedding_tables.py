"""FBGEMM's table-batched embeddings: T tables in one buffer. One kernel looks up rows, another updates them.

N indices in bags, B bags per table, rows of D elements; D may differ between tables, and total_D is the sum of all D.
The forward sums each bag's rows, like embedding_bag. The number of lookups per table is not recorded. If all tables
have the same width, counts are exact; otherwise each lookup counts with the mean width, total_D / T (the output's
elements / bags).

read    the gathered rows, the indices (and weights)
write   the bags' sums
Source: FBGEMM 0.2 to 1.8, fbgemm_gpu/codegen, the host templates.
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.embedding_call import MEAN, NONE, Lookup, place_of_indices, understand
from pyprof.prof.ops.evaluation import alias, assumes
from pyprof.prof.ops.model import Family, Tensor, Work
from pyprof.prof.ops.operands import Out, bytes_of, first_output

op = Family("embedding")


def moved_elements(amount: Fraction | int, itemsize: float) -> float:
    return bytes_of(round(amount), itemsize)


def lookup_work(call: Lookup, out: Tensor | None) -> Work:
    """The work to gather rows and sum them per bag, or to copy them if there are no bags."""
    wide = call.width(out)
    bagged = call.in_bags(out.shape) if out is not None else call.pooling != NONE
    rows = call.bags if bagged else call.count
    flop: Fraction | int = 0
    if bagged:
        flop = max(call.count - call.bags, 0) + (call.count if call.weighted else 0)
        flop = (flop + (call.bags if call.pooling == MEAN else 0)) * wide
    dtype = (out.dtype if out is not None else "") or call.out or "float32"  # FBGEMM's default
    read = moved_elements(call.count * wide, call.weights.itemsize) + call.indices.nbytes
    read += call.weighted.nbytes if call.weighted else 0
    return Work(round(flop), read, moved_elements(rows * wide, Tensor((), dtype).itemsize))


@op("fbgemm::split_embedding_codegen_lookup")
def lookup(*arguments: Any, out: Out = None) -> Work:
    """The sum of each bag's rows: (N - bags) D additions; for mean plus bags D divisions; with weights plus N D
    products"""
    call = understand(arguments)
    described = first_output(out)
    if call.pooling is None and described is None and call.count != call.bags:
        raise UnknownArgument("the capture does not say whether the rows are summed: no output, no pooling mode")
    return lookup_work(call, described)


@op("fbgemm::split_embedding_nobag_codegen_forward")
def lookup_rows(*arguments: Any, out: Out = None) -> Work:
    """Copies N rows of D elements; D is the same for all tables"""
    call = understand(arguments)
    described = first_output(out)
    numbers = [a for a in arguments[: place_of_indices(arguments)] if type(a) is int]
    if described is None and numbers:
        described = call.weights.like((call.count, numbers[0]), call.out or "float32")
    return lookup_work(replace(call, tables=None, total=None, pooling=NONE, weighted=None), described)


BITS = (2, 4, 8, 16, 32)  # per element, for each kind of inference table, in the order of the arguments


@op("fbgemm::int_nbit_split_embedding_codegen_lookup")
def quantized_lookup(*arguments: Any, out: Out = None) -> Work:
    """The sum of each bag's rows, each element scaled and shifted (plus 2 N D); a scale and a bias (4 bytes) per row

    If the tables have several precisions, the call does not show which lookup uses which, so the work is unknown. An
    output of unknown dtype is assumed to be float16, FBGEMM's default.
    """
    numbers = [a for a in arguments[: place_of_indices(arguments)] if type(a) is int]
    kinds = [bits for bits, widest in zip(BITS, numbers[1:], strict=False) if widest > 0]
    if len(kinds) != 1 or len(numbers) < 1 + len(BITS):
        raise UnknownArgument("the capture does not have the tables' precision")
    call, bits = understand(arguments), kinds[0]
    wide = Fraction(numbers[0], call.tables) if call.tables else call.width(out[0] if out else None)
    bagged = call.pooling != NONE
    rows = call.bags if bagged else call.count
    adds = max(call.count - call.bags, 0) if bagged else 0
    scaled = 2 * call.count if bits < 16 else 0
    flop = (adds + scaled + (call.count if call.weighted else 0) + (call.bags if call.pooling == MEAN else 0)) * wide
    row = wide * bits / 8 + (4 if bits < 16 else 0)
    dtype = (out[0].dtype if out and out[0] else "") or call.out or "float16"
    read = round(call.count * row) + call.indices.nbytes + (call.weighted.nbytes if call.weighted else 0)
    return Work(round(flop), read, moved_elements(rows * wide, Tensor((), dtype).itemsize))


KIND = r"fbgemm::(?:split|dense|ssd)_embedding"
alias(rf"{KIND}_codegen_(?:lookup|forward)_\w+", "fbgemm::split_embedding_codegen_lookup")
alias(rf"{KIND}_nobag_codegen_forward_\w+", "fbgemm::split_embedding_nobag_codegen_forward")
alias(r"fbgemm::int_nbit_split_embedding\w*_codegen_\w+", "fbgemm::int_nbit_split_embedding_codegen_lookup")


@assumes("fbgemm::split_embedding_codegen_lookup", "fbgemm::int_nbit_split_embedding_codegen_lookup")
def mean_width(arguments: tuple[Any, ...]) -> str:
    """The assumption that each lookup has the tables' mean width; empty if all tables have the same width."""
    call = understand(arguments)
    tables = f"its {call.tables or 'several'} tables"
    return "" if call.is_even else f"each lookup has the mean width of {tables}: which one it is in, is not recorded"
