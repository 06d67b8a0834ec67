""".ncu-rep files: through the package ncu-report, through ncu, or one line that names both."""

import gzip
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from pyprof.errors import InputError
from pyprof.parse.ncu import binary_report
from pyprof.parse.ncu.quantities import executed_flops, quantity
from pyprof.parse.ncu.reader import read
from tests.parse.ncu.ncu_table import launch, raw

HAS_PACKAGE = importlib.util.find_spec("ncu_report") is not None
with_package = pytest.mark.skipif(not HAS_PACKAGE, reason="the package ncu-report is not installed")
CONTENT = b"NVR\0\x01not a report"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "net.ncu-rep"
    path.write_bytes(CONTENT)
    return path


def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_report, "find_spec", lambda name: None)


def refused(path: Path) -> str:
    with pytest.raises(InputError) as error:
        read(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_package_and_ncu_one_line_names_both(report, monkeypatch):
    no_package(monkeypatch)
    monkeypatch.setenv("PATH", "")
    message = refused(report)
    assert "expected the package ncu-report (pip install ncu-report) or ncu on the PATH" in message
    assert "ncu --import net.ncu-rep --csv --page raw --print-units base > report.csv" in message


@pytest.mark.parametrize("packed", [False, True])
def test_an_installed_ncu_prints_the_report(packed, report, monkeypatch, tmp_path):
    """It gets the file, or its unpacked copy, and prints a table, in base units."""
    table = raw([("gpu__time_duration.sum", "ns")], [[*launch(0), "5"]], before="==PROF== importing\n")
    tool = tmp_path / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text(f"""#!{sys.executable}
import pathlib, sys
assert pathlib.Path(sys.argv[2]).read_bytes() == {CONTENT!r}, sys.argv
assert sys.argv[1] == "--import" and sys.argv[3:] == ["--csv", "--page", "raw", "--print-units", "base"], sys.argv
sys.stdout.write({table!r})
""")
    tool.chmod(0o755)
    no_package(monkeypatch)
    monkeypatch.setenv("PATH", str(tool.parent))
    if packed:
        report.write_bytes(gzip.compress(CONTENT))
    found = read(report)
    assert [one.name for one in found.launches] == ["gemm"]
    assert found.metric("gpu__time_duration.sum").tolist() == [5]


def test_a_tool_that_fails_is_quoted(report, monkeypatch, tmp_path):
    tool = tmp_path / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('one\\nFailed to open the report')\n")
    tool.chmod(0o755)
    no_package(monkeypatch)
    monkeypatch.setenv("PATH", str(tool.parent))
    assert "found that ncu ends with code 1 and says: Failed to open the report" in refused(report)


@with_package
def test_a_broken_report_is_refused(report):
    assert "expected a whole report, found that ncu_report" in refused(report)


@with_package
@pytest.mark.parametrize("packed", [False, True])
def test_a_report_of_an_h800_whose_last_kernel_failed(packed, data, tmp_path):
    """Its csv, printed by ncu, has 8,448 and 21,469,696 bytes of DRAM traffic for the first and third kernel."""
    path = data / "ncu" / "flyinglandlord+sglang__profile.ncu-rep"
    if packed:
        copy = tmp_path / "report.gz"
        copy.write_bytes(gzip.compress(path.read_bytes(), 1))
        path = copy
    found = read(path)
    assert len(found) == 5
    assert found.failed.tolist() == [False, False, False, False, True]
    assert found.launches[4].names[1] == "flash_fwd_kernel"
    assert {one.device_name for one in found.launches} == {"NVIDIA H800"}
    assert quantity(found, "dram_bytes")[[0, 2]].tolist() == [8448, 21469696]
    assert np.isnan([quantity(found, key)[4] for key in ("dram_bytes", "duration_ns", "instructions")]).all()


@with_package
def test_reports_of_ampere(data):
    """adamw of 1,048,576 parameters in float: 17 FLOPs each as ncu counts them, tensor cores idle."""
    found = read(data / "ncu" / "karpathy+llm.c__dev__cuda__profiles__adamw_coalsecing_shared.ncu-rep")
    assert {(one.cc, one.device_name) for one in found.launches} == {("8.6", "NVIDIA GeForce RTX 3060 Ti")}
    assert quantity(found, "dram_read_bytes").tolist() == [16806528, 16782080, 16853760, 17194240]
    assert executed_flops(found) == pytest.approx([17 * 1048576] * 4)
    other = read(data / "ncu" / "AveryClapp+ESMM-Research__profile.ncu-rep")
    assert other.failed.tolist() == [False] * 5 + [True]
    assert other.launches[0].names == (
        "basic(int, int, int, const float *, const float *, float *)", "basic", "_Z5basiciiiPKfS0_Pf",
    )  # fmt: skip
