"""The file that ``pyprof peaks`` writes: measured peaks of a device, used in place of its data sheet's."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyprof.errors import InputError
from pyprof.prof.kernels.precision import UNITS
from pyprof.prof.limits.architectures import SM_LIMITS
from pyprof.prof.limits.devices import Device, is_rate


@dataclass(frozen=True, slots=True)
class Peaks:
    """The contents of a peaks file: peaks to use in place of the table's."""

    file: str
    device: str
    arch: str = ""
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    byte_per_s: float | None = None


FORMAT = "pyprof peaks"


def load_peaks(file: str | Path) -> Peaks:
    """Read a JSON file as ``pyprof peaks`` writes it. Raises an InputError that names the problem.

    ``"format": "pyprof peaks"`` and ``flop_per_s`` (unit -> FLOP/s) or ``byte_per_s`` are required. The rest is
    optional, so a file of a few lines can be written by hand.
    """
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(file, f"cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(file, f"expected JSON as pyprof peaks writes it, found none ({str(error)[:80]})") from error
    problem = next(_problems(data), None)
    if problem is not None:
        raise InputError(file, problem)
    return Peaks(
        str(file), data.get("device", ""), data.get("arch", ""), data.get("flop_per_s", {}), data.get("byte_per_s")
    )


def _problems(data: Any) -> Iterator[str]:
    """Yield the problems of a peaks file, in the order in which they are checked."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        yield f'expected an object with "format": "{FORMAT}" (write one with pyprof peaks -o peaks.json)'
        return
    for key in ("device", "arch"):
        if not isinstance(data.get(key, ""), str):
            yield f"{key}: expected a text, found {str(data[key])[:40]}"
    peaks = data.get("flop_per_s", {})
    if not isinstance(peaks, dict):
        yield f"flop_per_s: expected an object of unit: FLOP/s, found {str(peaks)[:40]}"
        return
    for unit, value in peaks.items():
        if unit not in UNITS:
            yield f"flop_per_s: no unit {unit[:40]!r} (the units are {', '.join(UNITS)})"
        if not is_rate(value):
            yield f"flop_per_s: {unit[:40]}: expected FLOP/s, a positive number, found {str(value)[:40]}"
    if "byte_per_s" in data and not is_rate(data["byte_per_s"]):
        yield f"byte_per_s: expected bytes/s, a positive number, found {str(data['byte_per_s'])[:40]}"
    if not peaks and "byte_per_s" not in data:
        yield "expected flop_per_s or byte_per_s, found neither"


def with_peaks(device: Device | None, peaks: Peaks, name: str = "") -> Device:
    """The device with the file's peaks where the file has them, and its own peaks otherwise."""
    base = device or Device(name=name, arch=peaks.arch, limits=SM_LIMITS.get(peaks.arch))
    said = peaks.file + (f", measured on {peaks.device}" if peaks.device else "")
    return replace(
        base,
        flop_per_s={**base.flop_per_s, **{unit: float(value) for unit, value in peaks.flop_per_s.items()}},
        byte_per_s=peaks.byte_per_s or base.byte_per_s,
        source=said + (f"; the rest: {base.source}" if base.source else ""),
    )
