"""A capture's data on its GPUs, with the same keys for all profilers: the column ``gpuInfo``.

The keys are nsys's (TARGET_INFO_GPU), in bytes, Hz and bytes/s; Kineto's deviceProperties and nvprof's DEVICE table are
translated. Facts that a profiler does not record are left out. No uuid, bus address or path is copied.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyprof.parse.databases.database import Database, Source, named

FACTS = "smCount clockRate memoryBandwidth computeMajor computeMinor totalMemory l2CacheSize threadsPerWarp".split()
# Key of gpuInfo, and Kineto's key (libkineto, deviceProperties)
KINETO = named("smCount=numSms, computeMajor, computeMinor, totalMemory=totalGlobalMem, threadsPerWarp=warpSize")


def info_text(facts: Iterable[tuple[str, Any]]) -> str:
    """The facts as JSON, empty if there are none. Only positive integers count, and 0 as a minor version."""
    known = {k: v for k, v in facts if type(v) is int and (v > 0 or (v == 0 and k == "computeMinor"))}
    return json.dumps(known, separators=(",", ":")) if known.keys() - {"computeMinor"} else ""


def kineto_info(properties: Mapping[str, Any]) -> str:
    """``gpuInfo`` of an entry of deviceProperties."""
    return info_text((key, properties.get(theirs)) for key, theirs in KINETO)


def database_infos(db: Database, gpus: Source, units: Mapping[str, int] | None = None) -> dict[int, str]:
    """``gpuInfo`` of each GPU with facts in a profiler's table, by its column `id`.

    ``units``: fact -> the unit of its column in bytes, Hz or bytes/s, for facts in other units.
    """
    if not db.has(gpus.table, gpus.column("id")):
        return {}
    columns = db.ints(gpus.table, gpus.column("id"), *map(gpus.column, FACTS))
    factors = [(units or {}).get(key, 1) for key in FACTS]
    infos = {
        id_: info_text((key, value * unit) for key, value, unit in zip(FACTS, values, factors, strict=True))
        for id_, *values in zip(*(column.tolist() for column in columns), strict=True)
    }
    return {id_: text for id_, text in infos.items() if text}
