"""The names under which kernels are shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyprof.table.columns import Coded, distinct_texts

if TYPE_CHECKING:
    from pyprof.table.columns import Table

# Functions whose template argument says what runs: cutlass::Kernel2<cutlass_80_...>, cutlass::device_kernel (CUTLASS,
# include/cutlass/device_kernel.h), ck_tile::kentry (Composable Kernel, include/ck_tile/host/kernel_launch.hpp),
# cuBLAS's gemvx::kernel, rocPRIM's trampoline_kernel, Thrust's _kernel_agent.
WRAPPER = re.compile(r"[Kk]ernel\d?|device_kernel|kentry|trampoline_kernel|_kernel_agent")

WRAPPED = re.compile(r"(?:void )?\w+::Kernel\d?<([\w:]+)>(?:\(|$)")  # cutlass::Kernel2<cutlass_80_...>


def shown_name(short: str, long: str) -> str:
    """The kernel's bare name or, where that only names a wrapper, the whole name, as ``pyprof stats`` shows it.

    >>> shown_name("Kernel2", "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nt_align1>(T1::Params)")
    'void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nt_align1>(T1::Params)'
    >>> shown_name("gather", "void at::native::gather<float>(float*)"), shown_name("Kernel2", "")
    ('gather', 'Kernel2')
    """
    return long if long and WRAPPER.fullmatch(short) else short


def narrow_name(shown: str) -> str:
    """A shown name for narrow columns: of a wrapper's name only the argument that says what runs.

    >>> narrow_name("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nt_align1>(T1::Params)")
    'cutlass_80_simt_sgemm_64x64_8x5_nt_align1'
    """
    inner = WRAPPED.match(shown)
    return inner[1].rpartition("::")[2] if inner else shown


def name_wrappers(table: Table) -> Table:
    """The table with ``shown_name`` as the short name of each kernel."""
    short = table.coded("kShortName")
    if not any(map(WRAPPER.fullmatch, short.values)):
        return table
    pairs, codes = distinct_texts(short, table.coded("kLongName"))
    names = Coded.of(shown_name(*pair) for pair in pairs).take(codes)
    return table.with_column("kShortName", names)
