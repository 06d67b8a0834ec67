"""What all tests share: where the large captures lie, and the checkout."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pyprof import gc_pause
from pyprof.prof.kept_files import keep_files
from tests.paths import ROOT

# How long an example takes says nothing where other programs want the cores. A folder that examples share is no fault:
# each writes its own file there, or the same one anew.
settings.register_profile(
    "pyprof", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("pyprof")

# A process of all tests is large and reads thousands of small files: it need not give memory back after each.
gc_pause.LARGE = 1 << 60


@pytest.fixture(scope="session", autouse=True)
def _kept_files() -> Iterator[None]:
    """Commands that run in this process read each capture once, as `pyprof mcp` does; all take less than 1 GB."""
    with keep_files(1000):
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real captures, too large for the repository: PYPROF_DATA. Without it the test skips."""
    return _folder("PYPROF_DATA")


@pytest.fixture(scope="session")
def truth() -> Path:
    """The folder of worked cases: PYPROF_TRUTH. Without it the test skips."""
    return _folder("PYPROF_TRUTH")


def _folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    folder = Path(value)
    if not folder.is_dir():  # a typing error must not turn the real tests off
        pytest.fail(f"{variable}={value} is no folder")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files; review the diff")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
