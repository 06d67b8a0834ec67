"""Which ncu is taken where there are several."""

from pathlib import Path

import pytest

from pyprof.errors import PyprofError
from pyprof.ncu.find_ncu import find_ncu


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", "utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_variable_goes_first_then_the_path_then_cuda_home_then_the_newest(tmp_path: Path) -> None:
    newest = program(tmp_path / "opt/nvidia/nsight-compute/2025.10.0/ncu")
    program(tmp_path / "opt/nvidia/nsight-compute/2025.9.1/ncu")
    installed = (f"{tmp_path}/usr/local/cuda-*/bin/ncu", f"{tmp_path}/opt/nvidia/nsight-compute/*/ncu")
    assert find_ncu({"PATH": ""}, installed) == newest
    home = program(tmp_path / "cuda/bin/ncu")
    assert find_ncu({"PATH": "", "CUDA_HOME": f"{tmp_path}/cuda"}, installed) == home
    on_path = program(tmp_path / "bin/ncu")
    environ = {"PATH": f"{tmp_path}/bin", "CUDA_HOME": f"{tmp_path}/cuda"}
    assert find_ncu(environ, installed) == on_path
    assert find_ncu({**environ, "NCU": newest}, installed) == newest


def test_a_file_that_cannot_be_run_is_passed_over(tmp_path: Path) -> None:
    older = program(tmp_path / "cuda-12.4/bin/ncu")
    Path(program(tmp_path / "cuda-13.0/bin/ncu")).chmod(0o644)
    assert find_ncu({"PATH": ""}, (f"{tmp_path}/cuda-*/bin/ncu",)) == older


def test_none_is_one_sentence_with_the_places(tmp_path: Path) -> None:
    with pytest.raises(PyprofError, match=r"not found in the PATH, /usr/local/cuda\*/bin .* set NCU=/path/to/ncu"):
        find_ncu({"PATH": str(tmp_path)}, (f"{tmp_path}/x/ncu",))
