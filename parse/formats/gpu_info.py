"""What a capture says of its GPUs, in one spelling: the column ``gpuInfo``.

The keys are nsys's (TARGET_INFO_GPU), in bytes, Hz and bytes/s; Kineto's deviceProperties and nvprof's DEVICE table are
translated. A fact that a profiler does not tell is left out. No uuid, bus address or path is copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyprof.parse.formats.database import Database

# Key of gpuInfo -> Kineto's key (libkineto, deviceProperties)
KINETO: Mapping[str, str] = {
    "smCount": "numSms", "computeMajor": "computeMajor", "computeMinor": "computeMinor",
    "totalMemory": "totalGlobalMem", "threadsPerWarp": "warpSize",
}  # fmt: skip
# Key of gpuInfo -> nvprof's column and its unit (CUpti_ActivityDevice: kHz, kB/s)
NVPROF: Mapping[str, tuple[str, int]] = {
    "smCount": ("numMultiprocessors", 1), "clockRate": ("coreClockRate", 1000),
    "memoryBandwidth": ("globalMemoryBandwidth", 1000), "computeMajor": ("computeCapabilityMajor", 1),
    "computeMinor": ("computeCapabilityMinor", 1), "totalMemory": ("globalMemorySize", 1),
    "l2CacheSize": ("l2CacheSize", 1), "threadsPerWarp": ("numThreadsPerWarp", 1),
}  # fmt: skip
NSYS = ("smCount", "clockRate", "memoryBandwidth", "computeMajor", "computeMinor", "totalMemory", "l2CacheSize",
        "threadsPerWarp")  # fmt: skip


def info_text(facts: Iterable[tuple[str, Any]]) -> str:
    """The facts as JSON, empty where there are none. Only numbers are facts, and 0 is one of a minor version alone."""
    usual = {k: v for k, v in facts if type(v) is int and (v > 0 or (v == 0 and k == "computeMinor"))}
    return json.dumps(usual, separators=(",", ":")) if usual.keys() - {"computeMinor"} else ""


def kineto_info(properties: Mapping[str, Any]) -> str:
    """``gpuInfo`` of an entry of deviceProperties."""
    return info_text((key, properties.get(theirs)) for key, theirs in KINETO.items())


def nvprof_infos(db: Database, table: str) -> dict[int, str]:
    """``gpuInfo`` of each device of an nvprof database."""
    here = [(key, column, unit) for key, (column, unit) in NVPROF.items() if db.has(table, column)]
    if not db.has(table, "id") or not here:
        return {}
    rows = db.query_ints(db.select(table, "id", *(column for _, column, _ in here), default=0), len(here) + 1)
    values = zip(*(column.tolist() for column in rows), strict=True)
    return {
        id_: info_text((key, value * unit) for (key, _, unit), value in zip(here, told, strict=True))
        for id_, *told in values
    }


def nsys_infos(db: Database) -> dict[int, str]:
    """``gpuInfo`` of each row of TARGET_INFO_GPU, by id."""
    here = [key for key in NSYS if db.has("TARGET_INFO_GPU", key)]
    if not db.has("TARGET_INFO_GPU", "id") or not here:
        return {}
    rows = db.query_ints(db.select("TARGET_INFO_GPU", "id", *here, default=0), len(here) + 1)
    values = zip(*(column.tolist() for column in rows), strict=True)
    return {id_: info_text(zip(here, told, strict=True)) for id_, *told in values}
