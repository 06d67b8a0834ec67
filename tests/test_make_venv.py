"""The Makefile's environment sees a torch with CUDA through, and no other."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

WITH_CUDA = "class cuda:\n    is_available = staticmethod(lambda: True)\n"
WITHOUT_CUDA = WITH_CUDA.replace("True", "False")
BROKEN = "raise ImportError('libcudart.so.13: cannot open shared object file')\n"
FIND = "import importlib.util as u; print(bool(u.find_spec('torch')))"


def python_with(torch: str | None, home: Path) -> Path:
    """A virtual environment's Python with this text as its torch."""
    venv.create(home, symlinks=True)
    if torch is not None:
        (packages,) = home.glob("lib/python*/site-packages")
        (packages / "torch").mkdir()
        (packages / "torch" / "__init__.py").write_text(torch)
    return home / "bin" / "python"


@pytest.mark.parametrize(("torch", "seen"), [(WITH_CUDA, True), (WITHOUT_CUDA, False), (BROKEN, False), (None, False)])
def test_only_a_torch_with_cuda_is_seen_through(torch, seen, tmp_path, root):
    caller = python_with(torch, tmp_path / "caller")
    code = (
        "import runpy, sys, venv\n"
        "create = venv.create; venv.create = lambda *a, **k: create(*a, **{**k, 'with_pip': False})\n"  # takes seconds
        f"sys.argv = ['make_venv.py', {str(tmp_path / 'new')!r}]\n"
        f"runpy.run_path({str(root / 'tools' / 'make_venv.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([str(caller), "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    new = str(tmp_path / "new" / "bin" / "python")
    found = subprocess.run([new, "-c", FIND], capture_output=True, text=True, check=True).stdout.strip()
    assert found == str(seen)


def test_an_old_python_is_refused_in_words(tmp_path, root):
    code = (
        "import runpy, sys; sys.version_info = (3, 9, 18); sys.argv = ['make_venv.py', 'x']\n"
        f"runpy.run_path({str(root / 'tools' / 'make_venv.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "3.10 or newer is needed: name another with make PYTHON=python3.12" in done.stdout
    assert list(tmp_path.iterdir()) == []
