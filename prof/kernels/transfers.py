"""Copies and collectives, by the names of GPU operations as nsys, nvprof and Kineto write them."""

from __future__ import annotations


def is_collective(name: str) -> bool:
    """Whether a kernel is NCCL's or RCCL's."""
    return name.startswith(("nccl", "rccl"))


def stays_on_device(copy: str) -> bool:
    """Whether a copy reads and writes the memory of one GPU: ``[CUDA memcpy DtoD]``, ``Memcpy DtoD``."""
    return "Device-to-Device" in copy or "DtoD" in copy
