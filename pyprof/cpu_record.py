"""What PyTorch knows of the CPU that it runs on, for the trace's key pyprof."""

from __future__ import annotations

import os
from typing import Any

VERSION = 1  # parse/formats/own_record.py reads it


def cpu_record() -> dict[str, Any] | None:
    """Cores that the process may use, PyTorch's threads, and the CPU's instructions for products in bf16.

    None if the program uses a GPU: then the CPU only launches.
    """
    import torch

    if torch.cuda.is_initialized():
        return None
    return {"version": VERSION, "facts": {"cores": cores(), "threads": torch.get_num_threads(), "bf16": _bf16()}}


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bf16() -> str:
    """The fastest instructions for bf16; empty where PyTorch names none, or cannot say (it can since 2.4)."""
    import torch

    for name, function in (("amx", "_is_amx_tile_supported"), ("avx512_bf16", "_is_avx512_bf16_supported")):
        supported = getattr(torch.cpu, function, None)
        if supported is not None and supported():
            return name
    return ""
