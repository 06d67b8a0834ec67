"""The CPU that a program ran on, as PyTorch used it, for advice about captures without a GPU.

A kernel table carries it beside its columns, and a Parquet file in its metadata; net.dict has no place for it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

_Count = Annotated[int, Meta(ge=1, lt=1 << 20)]


class CpuFacts(msgspec.Struct, frozen=True):
    """Counts are of the program's process."""

    cores: _Count  # that it may run on
    threads: _Count  # that share the work of one op
    bf16: str  # the instructions for products in bf16, "amx" or "avx512_bf16"; empty: none


def to_json(facts: CpuFacts) -> bytes:
    return msgspec.json.encode(facts)


def from_json(text: bytes) -> CpuFacts:
    """The facts that ``to_json`` wrote. Raises ValueError for another text."""
    return msgspec.json.decode(text, type=CpuFacts)
