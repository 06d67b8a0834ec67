"""Make the virtual environment of the Makefile: bare, or with the torch of the calling Python seen through.

    python tools/make_venv.py .venv

A torch with CUDA took its owner some care to install, and matches the driver: it is used as it is. Any other torch is
left alone, and the Makefile installs the release that the tests were written for.
"""

import importlib.util
import subprocess
import sys
import venv
from pathlib import Path

HINT = "name another with make PYTHON=python3.12"
PROBE = """
import os, torch
if torch.cuda.is_available():
    print(os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))))
"""


def main() -> int:
    if sys.version_info < (3, 10):  # noqa: UP036 - an older Python is what this is here to refuse
        print(f"make: {sys.executable} is Python {sys.version.split()[0]}, and 3.10 or newer is needed: {HINT}")
        return 2
    if importlib.util.find_spec("ensurepip") is None:  # Debian and Ubuntu split it off
        print(f"make: {sys.executable} has no ensurepip: install the package python3-venv, or {HINT}")
        return 2
    target = Path(sys.argv[1])
    site = cuda_torch(sys.executable)
    venv.create(target, clear=True, with_pip=True, symlinks=True, system_site_packages=site is not None)
    if site and not cuda_torch(str(target / "bin" / "python")):
        # The calling Python is itself a virtual environment, which the new one does not look into.
        (packages,) = target.glob("lib/python*/site-packages")
        (packages / "torch_of_the_caller.pth").write_text(f"import site; site.addsitedir({site!r})\n")
    print(f"{target}: {'the torch in ' + site if site else 'no torch yet'}")
    return 0


def cuda_torch(python: str) -> str | None:
    """The site-packages folder of a torch that sees a GPU; None if there is none, or it is broken."""
    done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
