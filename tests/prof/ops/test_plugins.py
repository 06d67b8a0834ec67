"""Op models of installed packages: found by their entry point, and an error names the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof.errors import ModelError
from pyprof.prof.ops.model import FAMILY, MODELS, Tensor, Work, evaluate, find
from pyprof.prof.ops.plugins import load_models

MODULE = '''
from pyprof.prof.ops.model import Work, model

@model("mylib::scaled_add", family="custom")
def scaled_add(a, b, scale, *_):
    """2 an element"""
    return Work(2 * a.numel, a.nbytes + b.nbytes, a.nbytes)
'''


def install(folder: Path, name: str, code: str) -> None:
    (folder / f"{name}_flops.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pyprof.models]\n{name} = {name}_flops\n")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    load_models.cache_clear()
    before = set(MODELS)
    yield tmp_path
    load_models.cache_clear()
    for name in set(MODELS) - before:
        del MODELS[name], FAMILY[name]


def test_a_packages_models_are_loaded(fresh: Path) -> None:
    install(fresh, "mylib", MODULE)
    assert "mylib" in load_models()
    x = Tensor((2, 3), "float32")
    assert evaluate(find("mylib::scaled_add") or "", (x, x, 0.5)) == Work(12, 48, 24)


def test_an_error_names_the_package(fresh: Path) -> None:
    install(fresh, "broken", "import a_module_that_is_not_there\n")
    with pytest.raises(ModelError, match=r"broken_flops of broken cannot be loaded.*a_module_that_is_not_there"):
        load_models()
