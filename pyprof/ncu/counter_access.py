"""Whether this user may read the GPU's performance counters, and what to do if not.

Since driver 418.43 only administrators may, unless an option of the driver says otherwise.
Source: https://developer.nvidia.com/ERR_NVGPUCTRPERM
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pyprof.errors import PyprofError

ERROR = "ERR_NVGPUCTRPERM"  # what ncu says
CAP_SYS_ADMIN, CAP_PERFMON = 21, 38  # bits of CapEff, as in linux/capability.h
PERFMON_SINCE = 565  # the driver's version
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv", "/run/.singularityenv", "/.singularity.d")
CONTAINER_GROUPS = re.compile(r"docker|kubepods|containerd|libpod|lxc")


def check_access(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> None:
    """Raise PyprofError if the driver restricts counters to administrators and this process has no such rights.

    Does nothing where the driver's setting cannot be read: then ncu itself finds out.
    """
    params = root / "proc/driver/nvidia/params"
    if _admin_only(params) and not _may_read(root):
        raise PyprofError(f"{params}: RmProfilingAdminOnly is 1, and this process has no administrator's rights: "
                          f"{remedy(root, environ)}")  # fmt: skip


def remedy(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> str:
    """What to do against ``ERR_NVGPUCTRPERM`` on this machine."""
    if "microsoft" in _text(root / "proc/version").lower():
        return (
            "in Windows' NVIDIA Control Panel, under Developer, Manage GPU Performance Counters, "
            "allow access to all users"
        )
    option = "NVreg_RestrictProfilingToAdminUsers=0"
    if in_container(root, environ):
        return (
            "start the container with --cap-add=SYS_ADMIN (or PERFMON, from driver 565 on; Kubernetes: "
            f"securityContext.capabilities.add), or load the driver of the host with {option}"
        )
    return (
        f"let an administrator write `options nvidia {option}` into a file in /etc/modprobe.d, update the initramfs "
        'and restart, or run this command as root yourself (pyprof never does): sudo env "PATH=$PATH" pyprof ncu ...'
    )


def in_container(root: Path, environ: Mapping[str, str]) -> bool:
    named = bool(environ.get("container") or environ.get("KUBERNETES_SERVICE_HOST"))
    by_file = any((root / name.lstrip("/")).exists() for name in CONTAINER_FILES)
    return named or by_file or bool(CONTAINER_GROUPS.search(_text(root / "proc/1/cgroup")))


def _admin_only(params: Path) -> bool:
    found = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", _text(params), re.MULTILINE)
    return found is not None and found[1] != "0"


def _may_read(root: Path) -> bool:
    """Whether this process has one of the capabilities. User 0 of a container may have none of them."""
    found = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", _text(root / "proc/self/status"), re.MULTILINE)
    bits = int(found[1], 16) if found else 0
    perfmon = bool(bits >> CAP_PERFMON & 1) and _driver(root) >= PERFMON_SINCE
    return bool(bits >> CAP_SYS_ADMIN & 1) or perfmon


def _driver(root: Path) -> int:
    """The major version of the driver: 580 of 580.65.06; 0 if it is unknown."""
    found = re.search(r"\b(\d{3,4})\.\d+", _text(root / "proc/driver/nvidia/version"))
    return int(found[1]) if found else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
