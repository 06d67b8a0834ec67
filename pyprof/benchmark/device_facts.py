"""A device's name, architecture, sizes of memory and cache, and clock, as the system reports them."""

from pathlib import Path
from typing import Any

UNKNOWN_CACHE_BYTES = 64 << 20
UNKNOWN_FREE_BYTES = 4 << 30


def facts(device: Any) -> dict[str, Any]:
    """The keys of a peaks file that describe a ``torch.device``."""
    import torch

    if device.type != "cuda":
        cpu = {"device": cpu_name(), "arch": "cpu", "torch": torch.__version__}
        return {**cpu, "threads": torch.get_num_threads(), "cache_bytes": cache_bytes(device)}
    gpu: Any = torch.cuda.get_device_properties(device)
    arch = str(getattr(gpu, "gcnArchName", "")).split(":")[0] if torch.version.hip else f"sm_{gpu.major}{gpu.minor}"
    return {
        "device": gpu.name,
        "arch": arch or f"sm_{gpu.major}{gpu.minor}",
        "torch": torch.__version__,
        "sms": gpu.multi_processor_count,
        "memory_bytes": gpu.total_memory,
        "cache_bytes": cache_bytes(device),
    }


def cache_bytes(device: Any) -> int:
    """The size of the last cache before memory, on a CPU the first core's largest (Linux); 64 MiB if not known."""
    if device.type != "cuda":
        folder = Path("/sys/devices/system/cpu/cpu0/cache")
        sizes = [_kib_to_bytes(file) for file in folder.glob("index*/size")] if folder.is_dir() else []
        return max(sizes, default=0) or UNKNOWN_CACHE_BYTES
    import torch

    return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or UNKNOWN_CACHE_BYTES)


def free_bytes(device: Any) -> int:
    """The free memory of the device, in bytes; for a CPU the system's (Linux), or 4 GiB if not known."""
    if device.type == "cuda":
        import torch

        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return UNKNOWN_FREE_BYTES
    free = next((line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable:")), "")
    return int(free) << 10 if free.isdigit() else UNKNOWN_FREE_BYTES


def clock_mhz() -> int | None:
    """The clock of the current GPU's multiprocessors now, as NVML reports it; None without NVML's Python module."""
    import torch

    try:
        return int(torch.cuda.clock_rate())
    except (ImportError, RuntimeError, AttributeError):
        return None


# The CPU


def cpu_name() -> str:
    """The CPU's model name; "CPU" if the system does not report one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in names if name), "CPU")


def _kib_to_bytes(file: Path) -> int:
    """Convert a file's text such as 32768K to bytes; return 0 for any other text."""
    text = file.read_text(encoding="ascii", errors="replace").strip()
    return int(text[:-1]) << 10 if text.endswith("K") and text[:-1].isdigit() else 0
