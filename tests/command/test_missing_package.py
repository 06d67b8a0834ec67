"""A checkout run by a Python without the dependencies: one line that names the package and the remedy."""

import subprocess
import sys

import pytest

from pyprof.errors import MissingPackage, packages
from tests.paths import ROOT

LENET = ROOT / "tests" / "golden" / "h200_lenet.sqlite.gz"
WITHOUT = "import sys; sys.modules['{package}'] = None; from {module} import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("module", "command", "package"),
    [
        ("pyprof.parse.cli", "parse.py", "msgspec"),
        ("pyprof.prof.cli", "prof.py", "msgspec"),
        ("pyprof.prof.report.cli", "pyprof report", "jinja2"),
        ("pyprof.parse.stats.cli", "pyprof stats", "numpy"),
    ],
)
def test_one_line_and_nothing_written(module, command, package, tmp_path):
    out = tmp_path / ("net.html" if command == "pyprof report" else "net.csv")
    run = [sys.executable, "-c", WITHOUT.format(module=module, package=package), str(LENET), "-o", str(out)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    expected = f"the package {package} is not installed for this Python (install pyprof: pip install .)"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{command}: {expected}\n")
    assert not out.exists()


def test_a_module_of_ours_that_is_missing_is_our_own_bug():
    with pytest.raises(ModuleNotFoundError), packages():
        import pyprof.no_such_module  # noqa: F401


def test_a_package_is_named_by_its_first_part():
    with pytest.raises(MissingPackage, match="the package no_such_package is not installed"), packages():
        import no_such_package.part  # noqa: F401
