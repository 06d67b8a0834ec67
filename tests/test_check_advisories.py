"""`make audit`: what is said of known faults, and that a package whose advisories could not be read has not passed."""

import json
import subprocess
import sys

import pytest

from tools.check_advisories import FAULTS, UNKNOWN, lower_bounds, verdict

GOOD = {"name": "rich", "version": "15.0.0", "vulns": []}
BAD = {
    "name": "jinja2",
    "version": "3.1.5",
    "vulns": [
        {"id": "GHSA-cpwx-vrp4-4pq7", "fix_versions": ["3.1.6"], "aliases": ["CVE-2025-27516"], "description": ""}
    ],
}
UNMENDED = {"name": "x", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": [], "aliases": []}]}
LOCAL, UNREAD = (  # as pip-audit 2.10 writes them
    {"name": name, "skip_reason": f"Dependency not found on PyPI and could not be audited: {name} ({version})"}
    for name, version in (("torch", "2.13.0+cpu"), ("numpy", "2.4.6"))
)
OWN = {"name": "torch-pyprof", "skip_reason": "distribution marked as editable"}


def said(*packages: dict[str, object]) -> tuple[int, list[str]]:
    return verdict(json.dumps({"dependencies": packages, "fixes": []}), "No known vulnerabilities found\n")


def test_all_read_and_none_known():
    assert said(GOOD, OWN, LOCAL) == (
        0,
        ["audit: 1 packages read, 0 known faults", "audit: not read, for their builds are on no index: torch"],
    )


def test_a_known_fault_fails_and_says_which_version_is_without_it():
    code, lines = said(GOOD, BAD, UNMENDED, UNREAD)
    assert code == FAULTS
    assert lines[:3] == [
        "jinja2 3.1.5: GHSA-cpwx-vrp4-4pq7 (CVE-2025-27516), mended in 3.1.6",
        "x 1: PYSEC-1, not mended in any version",
        "audit: 3 packages read, 2 known faults",
    ]


@pytest.mark.parametrize("packages", [[UNREAD], [GOOD, UNREAD], [OWN]], ids=["mirror", "partly", "nothing"])
def test_a_package_without_advisories_has_not_passed(packages):
    """pip-audit ends with 0 and "No known vulnerabilities found" there."""
    assert said(*packages)[0] == UNKNOWN


def test_offline_is_one_line():
    code, lines = verdict(
        "", "Traceback (most recent call last):\n  ...\nConnectionError: Failed to resolve 'pypi.org'\n\n"
    )
    assert (code, len(lines)) == (UNKNOWN, 1)
    assert "nothing is known: ConnectionError: Failed to resolve 'pypi.org'" in lines[0]


def test_a_missing_tool_is_one_line():
    code = "import sys; sys.modules['pip_audit'] = None; import runpy; runpy.run_module('pip_audit')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    found, (line,) = verdict(done.stdout, done.stderr)
    assert found == UNKNOWN
    assert "pip_audit" in line


def test_lower_bounds_are_those_of_setup(root):
    bounds = dict(bound.split("==") for bound in lower_bounds())
    assert bounds["jinja2"] == "3.1.6"
    assert bounds["dask"].startswith("2026.")  # with an extra
    assert bounds["ruff"] == "0.16.10"  # asked for exactly
    text = (root / "setup.py").read_text(encoding="utf-8")
    assert all(f"{name}" in text and version in text for name, version in bounds.items())
