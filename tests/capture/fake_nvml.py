"""A module ``pynvml`` for tests: one GPU, whose readings a test sets. It follows NVML's documented functions, error
codes and units (nvidia-ml-py 13).
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable
from typing import Any

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, GPU_IS_LOST = 3, 4, 6, 9, 15
TEXTS = {
    NOT_SUPPORTED: "Not Supported",
    NO_PERMISSION: "Insufficient Permissions",
    NOT_FOUND: "Not Found",
    DRIVER_NOT_LOADED: "Driver Not Loaded",
    GPU_IS_LOST: "GPU is lost",
}
UUID = "11111111-2222-3333-4444-555555555555"


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return TEXTS.get(self.value, f"NVML Error with code {self.value}")


class _Value(ctypes.Union):
    _fields_ = [("uiVal", ctypes.c_uint), ("ullVal", ctypes.c_ulonglong)]


class _FieldValue(ctypes.Structure):
    _fields_ = [("fieldId", ctypes.c_uint32), ("nvmlReturn", ctypes.c_uint), ("value", _Value)]


class FakeNvml(types.ModuleType):
    """``readings``: name of a function -> its value, or an NVMLError's code for which it is raised."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_FI_DEV_POWER_INSTANT = 1, 2, 0, 186

    def __init__(self, **readings: Any) -> None:
        super().__init__("pynvml")
        self.readings: dict[str, Any] = {
            "sm": 1980, "memory": 3201, "sm_limit": 1980, "memory_limit": 3201, "power": 300_000, "instant": 400_000,
            "limit": 700_000, "temperature": 45, "reasons": 0x1, "energy": 5_000_000, "init": None, "mig": False,
            "uuids": (f"GPU-{UUID}",), **readings,
        }  # fmt: skip
        self.open = 0
        self.asked: list[str] = []

    def _give(self, name: str) -> Any:
        self.asked.append(name)
        value = self.readings[name]
        if isinstance(value, Callable):  # type: ignore[arg-type]
            value = value()
        if isinstance(value, NVMLError):
            raise value
        return value

    def nvmlInit(self) -> None:
        self._give("init")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        if uuid.decode() not in self._give("uuids"):
            raise NVMLError(NOT_FOUND)
        return "the handle"

    def nvmlDeviceIsMigDeviceHandle(self, handle: str) -> ctypes.c_uint:
        return ctypes.c_uint(self._give("mig"))

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return int(self._give("sm" if kind == self.NVML_CLOCK_SM else "memory"))

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:
        return int(self._give("sm_limit" if kind == self.NVML_CLOCK_SM else "memory_limit"))

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return int(self._give("power"))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return int(self._give("limit"))

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return int(self._give("temperature"))

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return int(self._give("reasons"))

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return int(self.readings.get("throttle", 0x4))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return int(self._give("energy"))

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[int]) -> Any:
        found = (_FieldValue * len(fields))()
        for value, field in zip(found, fields, strict=True):
            value.fieldId = field
            try:
                value.value.uiVal = self._give("instant")
            except NVMLError as error:  # NVML puts the error of one field into its value
                value.nvmlReturn = error.value
        return found
