"""NVML's readings of an NVIDIA GPU: clocks, power, temperature, energy, and what holds the clocks back.

The Python package nvidia-ml-py (the extra ``nvml``) calls NVML. Names and units are those of NVML's reference
(nvmlDeviceGetClockInfo, nvmlDeviceGetFieldValues, nvmlDeviceGetTotalEnergyConsumption, nvmlClocksEventReasons). A
reading that a GPU, a driver or a permission does not give is unknown; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pyprof.errors import PyprofError

INSTALL = "pip install nvidia-ml-py"
INSTANT, MEAN = "instant", "mean of a second"  # what a power reading is of


class Reading(NamedTuple):
    """One reading; None where it is unknown."""

    sm_mhz: int | None
    memory_mhz: int | None
    power_mw: int | None
    temperature_c: int | None
    reasons: int | None  # bits of nvmlClocksEventReasons: what holds the clocks back (``REASONS``)
    energy_mj: int | None  # since the driver was loaded


# The bits of nvmlClocksEventReasons in words. Idle GPUs and clocks that somebody chose are no throttling.
IDLE = 0x1
REASONS = {
    IDLE: "idle",
    0x2: "application clocks",
    0x4: "power cap (software)",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake (hardware)",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability limit",
}


def reason_names(bits: int) -> list[str]:
    """The reasons of a reading, without idleness; an unknown bit by its number.

    >>> reason_names(0x5), reason_names(0x8000)
    (['power cap (software)'], ['reason 0x8000'])
    """
    single = [1 << place for place in range(bits.bit_length()) if bits >> place & 1]
    return [REASONS.get(bit, f"reason {bit:#x}") for bit in single if bit != IDLE]


class Nvml:
    """NVML, loaded and initialised. Raises PyprofError, in one line, if that fails."""

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError:
            raise PyprofError(f"the package nvidia-ml-py is not installed for this Python ({INSTALL})") from None
        self._lib: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise PyprofError(f"NVML cannot be used here: {error}") from None

    def close(self) -> None:
        self._given(self._lib.nvmlShutdown)

    def gpu(self, uuid: str) -> Gpu:
        """The GPU of a UUID, with or without the prefix ``GPU-``. Raises PyprofError if NVML does not show it."""
        names = [uuid] if uuid.startswith(("GPU-", "MIG-")) else [f"GPU-{uuid}", f"MIG-{uuid}"]
        error: object = ""
        for name in names:
            try:
                handle = self._lib.nvmlDeviceGetHandleByUUID(name.encode())
            except self._lib.NVMLError as why:
                error = why
                continue
            if name.startswith("MIG-") or self._is_slice(handle):
                raise PyprofError("it is a MIG slice, and NVML gives the clocks and the power of whole GPUs only")
            return Gpu(self._lib, handle)
        raise PyprofError(f"NVML does not show it: {error}")

    def _is_slice(self, handle: Any) -> bool:
        found = self._given(lambda: self._lib.nvmlDeviceIsMigDeviceHandle(handle))
        return bool(getattr(found, "value", found))

    def _given(self, call: Callable[[], Any]) -> Any:
        return given(self._lib, call)


def given(lib: Any, call: Callable[[], Any]) -> Any:
    """The result of a call of NVML; None if the GPU or driver does not support it, or a permission is missing."""
    try:
        return call()
    except lib.NVMLError:
        return None


class Gpu:
    """A GPU whose readings can be taken. Readings that it does not give at first are not asked for again."""

    def __init__(self, lib: Any, handle: Any) -> None:
        self._lib = lib
        sensors: dict[str, Callable[[], int]] = {
            "sm_mhz": lambda: lib.nvmlDeviceGetClockInfo(handle, lib.NVML_CLOCK_SM),
            "memory_mhz": lambda: lib.nvmlDeviceGetClockInfo(handle, lib.NVML_CLOCK_MEM),
            "power_mw": lambda: lib.nvmlDeviceGetPowerUsage(handle),
            "temperature_c": lambda: lib.nvmlDeviceGetTemperature(handle, lib.NVML_TEMPERATURE_GPU),
            "reasons": _reasons(lib, handle),
            "energy_mj": lambda: lib.nvmlDeviceGetTotalEnergyConsumption(handle),
        }
        # From Ampere on, nvmlDeviceGetPowerUsage is a mean over a second; the field of the instant is newer (R530).
        self.power = MEAN
        instant = _field(lib, handle, getattr(lib, "NVML_FI_DEV_POWER_INSTANT", None))
        if instant is not None and given(lib, instant):
            sensors["power_mw"], self.power = instant, INSTANT
        self._sensors: dict[str, Callable[[], int] | None] = {
            name: call if given(lib, call) is not None else None for name, call in sensors.items()
        }
        self.sm_limit_mhz: int | None = given(lib, lambda: lib.nvmlDeviceGetMaxClockInfo(handle, lib.NVML_CLOCK_SM))
        self.memory_limit_mhz: int | None = given(
            lib, lambda: lib.nvmlDeviceGetMaxClockInfo(handle, lib.NVML_CLOCK_MEM)
        )
        self.power_limit_mw: int | None = given(lib, lambda: lib.nvmlDeviceGetEnforcedPowerLimit(handle))

    def read(self, energy: bool = True) -> Reading:
        """``energy``: whether to read the counter, too, which takes 2.5 ms on an H200; the rest takes 14 µs."""
        return Reading(*(self._value(name) if energy or name != "energy_mj" else None for name in Reading._fields))

    def _value(self, name: str) -> int | None:
        call = self._sensors[name]
        if call is None:
            return None
        found: int | None = given(self._lib, call)
        return found


def _reasons(lib: Any, handle: Any) -> Callable[[], int]:
    """nvmlDeviceGetCurrentClocksEventReasons, which drivers before R535 call ...ThrottleReasons."""
    older: Callable[[Any], int] = lib.nvmlDeviceGetCurrentClocksThrottleReasons
    newer: Callable[[Any], int] = getattr(lib, "nvmlDeviceGetCurrentClocksEventReasons", older)
    call = older if given(lib, lambda: newer(handle)) is None else newer
    return lambda: call(handle)


def _field(lib: Any, handle: Any, number: int | None) -> Callable[[], int] | None:
    """A reading of nvmlDeviceGetFieldValues, all of whose used fields are unsigned int; None if there is no field."""
    if number is None:
        return None

    def read() -> int:
        (value,) = lib.nvmlDeviceGetFieldValues(handle, [number])
        if value.nvmlReturn:
            raise lib.NVMLError(value.nvmlReturn)
        return int(value.value.uiVal)

    return read
