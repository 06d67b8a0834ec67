"""The option --device: which GPU or CPU to measure."""

from pyprof.errors import PyprofError


def measured_device(name: str) -> str:
    """The device to measure; without a name, the GPU, or the CPU if there is none.

    Raises PyprofError if torch has no such device.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not name:
        return "cuda" if count else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cuda", "cpu") or (number and not number.isdecimal()):
        raise PyprofError(f"--device: expected cuda, cuda:N or cpu, found {name[:40]!r}")
    if kind == "cuda" and int(number or 0) >= count:
        raise PyprofError(f"--device {name}: torch sees {count} GPUs here; try --device cpu")
    return name
