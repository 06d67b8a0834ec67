"""The bytes of copies: those of the copy's own record, whether or not the capture has an op around it."""

import pytest

from pyprof.prof.explain import explain
from pyprof.prof.work.annotate import annotate
from tests.prof.changes.rules.advice_rows import table

COPY = {"sizes": [[1024], [1024], []], "dtypes": ["float32", "float32", "bool"]}


@pytest.mark.parametrize("op", [{}, {"aten": "aten::copy_", **COPY}, {"aten": "aten::copy_"}])
@pytest.mark.parametrize(
    ("direction", "touched"),
    [
        ("Memcpy HtoD (Pinned -> Device)", 4096),  # the GPU's memory is written, the host's is read
        ("Memcpy DtoH (Device -> Pageable)", 4096),
        ("Memcpy DtoD (Device -> Device)", 8192),
    ],
)
def test_each_byte_counts_once_at_each_end_on_the_gpu(op: dict[str, object], direction: str, touched: int) -> None:
    made = table({"kLongName": direction, "kShortName": direction, "kind": "memcpy", "bytes": 4096, "ns": 900, **op})
    assert annotate(made).bytes.tolist() == [touched]


def test_explain_names_the_record() -> None:
    name = {"kLongName": "Memcpy HtoD", "kShortName": "Memcpy HtoD", "kind": "memcpy", "bytes": 4096, "ns": 900}
    made = table(name | {"aten": "aten::copy_", **COPY})
    lines = dict(explain(made, annotate(made), 0))
    assert lines["this row"].startswith("0 FLOP, 4,096 bytes: by the profiler's record")


def test_a_result_that_is_copied_to_the_host_has_bytes() -> None:
    """``item()`` reads one element; its op's own work has no size."""
    made = table(
        {"aten": "aten::_local_scalar_dense", "sizes": [[]], "dtypes": ["int64"], "kind": "memcpy", "bytes": 8,
         "kLongName": "Memcpy DtoH (Device -> Pageable)", "kShortName": "Memcpy DtoH (Device -> Pageable)", "ns": 900}
    )  # fmt: skip
    assert annotate(made).bytes.tolist() == [8]
