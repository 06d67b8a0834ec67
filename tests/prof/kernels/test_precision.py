"""The two tables of number formats: torch's dtypes, and the precisions that GPUs multiply in."""

import pytest
import torch

from pyprof.dtypes import BYTES_OF_SCALAR_TYPE, DTYPES, ITEM_BYTES, OF_CPP, OF_NUMBER, cpp_bytes
from pyprof.prof.kernels.precision import (
    HOST_PRECISION,
    PRECISION_OF_DTYPE,
    PRECISION_OF_WORD,
    PRECISIONS,
    ROUNDED_PRECISION,
    UNITS,
    unit_name,
)


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_has_torchs_size(name: str) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"torch {torch.__version__} has no {name}")
    assert DTYPES[name].nbytes == dtype.itemsize


def test_no_number_name_or_spelling_stands_for_two_dtypes() -> None:
    assert len(OF_NUMBER) == len(BYTES_OF_SCALAR_TYPE) == len(DTYPES) == 25
    assert len(OF_CPP) == sum(len(dtype.cpp) for dtype in DTYPES.values())
    words = [word for row in PRECISIONS.values() for word in row.words]
    assert len(words) == len(PRECISION_OF_WORD)


def test_spellings() -> None:
    assert (OF_NUMBER[15], OF_NUMBER[6], OF_NUMBER[45]) == ("bfloat16", "float32", "float4_e2m1fn_x2")
    assert (OF_CPP["c10::BFloat16"], OF_CPP["__nv_bfloat16"], OF_CPP["long int"]) == ("bfloat16", "bfloat16", "int64")
    assert (BYTES_OF_SCALAR_TYPE["Half"], BYTES_OF_SCALAR_TYPE["ComplexDouble"]) == (2, 16)
    assert (cpp_bytes("double"), cpp_bytes("cuComplex"), cpp_bytes("Functor")) == (8, 8, None)
    assert (ITEM_BYTES["opaque16"], ITEM_BYTES["float8_e5m2"]) == (16, 1)


def test_units_are_the_keys_of_peaks_files() -> None:
    assert (
        *("fp64", "fp32", "fp16", "bf16", "tc_fp64", "tc_fp32", "tc_tf32", "tc_fp16", "tc_bf16"),
        *("tc_fp8", "tc_fp6", "tc_fp4", "tc_int8"),
    ) == UNITS
    assert (unit_name("tc_fp8"), unit_name("fp64")) == ("fp8 tensor cores", "fp64")


def test_what_is_multiplied() -> None:
    assert "float32" not in PRECISION_OF_DTYPE  # its products may be rounded to tf32 or not
    assert (ROUNDED_PRECISION["float32"], PRECISION_OF_DTYPE["float8_e4m3fnuz"]) == ("tf32", "fp8")
    assert HOST_PRECISION == {"float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "complex128": "fp64"}
    assert [PRECISION_OF_WORD[word] for word in ("e4m3", "mxe2m1", "half_t", "u8", "f32")] == [
        *("fp8", "fp4", "fp16", "int8", "fp32"),
    ]
