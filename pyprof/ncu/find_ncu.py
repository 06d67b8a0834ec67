"""Where ncu, the command line of Nsight Compute, is installed."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyprof.errors import PyprofError

VARIABLE = "NCU"  # an environment variable with the path of ncu, which goes before all other places
# Where NVIDIA's packages put it: the CUDA toolkit, the package nsight-compute-YEAR.N, the .run installer
INSTALLED = (
    "/usr/local/cuda/bin/ncu",
    "/usr/local/cuda-*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
)


def find_ncu(environ: Mapping[str, str], installed: tuple[str, ...] = INSTALLED) -> str:
    """The path of ncu: of the variable NCU, on the PATH, of CUDA_HOME, or the newest in the usual folders.

    Raises PyprofError if there is none, or if NCU does not name one.
    """
    named = environ.get(VARIABLE)
    if named:
        path = shutil.which(named, path=environ.get("PATH"))
        if path is None:
            raise PyprofError(f"{named}: expected the program ncu, which the variable {VARIABLE} names, found none")
        return path
    on_path = shutil.which("ncu", path=environ.get("PATH"))
    found = on_path or next(_installed(environ, installed), None)
    if found is None:
        places = "the PATH, /usr/local/cuda*/bin and /opt/nvidia/nsight-compute"
        raise PyprofError(
            f"ncu (Nsight Compute) was not found in {places}: it comes with the CUDA toolkit; if it is elsewhere, set "
            f"{VARIABLE}=/path/to/ncu"
        )
    return found


def _installed(environ: Mapping[str, str], patterns: tuple[str, ...]) -> Iterator[str]:
    """Each ncu in the usual folders; of several versions, the newest first."""
    homes = [environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    for pattern in (*(f"{home}/bin/ncu" for home in homes), *patterns):
        root = Path(pattern).anchor
        for path in sorted(Path(root).glob(pattern[len(root) :]), key=_version, reverse=True):
            if path.is_file() and os.access(path, os.X_OK):
                yield str(path)


def _version(path: Path) -> tuple[int, ...]:
    """The numbers in a path: 2025.10.1 is newer than 2025.9.0."""
    return tuple(int(number) for number in re.findall(r"\d+", str(path)))
