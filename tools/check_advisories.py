"""Known faults of the installed packages, by PyPI's advisories: what `make audit` runs, with pip-audit.

    python tools/check_advisories.py             # of this environment
    python tools/check_advisories.py --bounds    # of the lower bounds in setup.py, which users may have

Exit code 0: the advisories of every package were read, and none is known. 1: a package has a known fault; a line says
which version is without it. 2: the advisories of some package could not be read, so nothing is known of it. (pip-audit
itself passes over such a package, and ends with 0 where an index has no advisories at all.) With --may-be-unknown, the
lines stay and the exit code is 0 instead of 2: CI has to run where the index is a mirror without advisories.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FAULTS, UNKNOWN = 1, 2
OWN = "torch-pyprof"
NAMED = 5  # packages in a line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bounds", action="store_true", help="audit the lower bounds of setup.py")
    parser.add_argument("--may-be-unknown", action="store_true", help="end with 0 where advisories cannot be read")
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", prefix="pyprof-", suffix=".txt") as file:
        file.write("".join(f"{bound}\n" for bound in lower_bounds()))
        file.flush()
        chosen = ["-r", file.name, "--no-deps", "--disable-pip"] if args.bounds else ["--skip-editable"]
        audit = [sys.executable, "-m", "pip_audit", "--progress-spinner=off", "-f", "json", *chosen]
        done = subprocess.run(audit, capture_output=True, text=True, check=False)
    code, lines = verdict(done.stdout, done.stderr)
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return 0 if code == UNKNOWN and args.may_be_unknown else code


def lower_bounds() -> list[str]:
    """Every requirement of setup.py at its lower bound: users may have that version."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    lists = [node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)]
    asked = [requirement for each in lists for requirement in ast.literal_eval(each)]
    return sorted({re.sub(r"(\[.*\])?[>=]=([\d.]+).*", r"==\2", requirement) for requirement in asked})


def verdict(out: str, err: str) -> tuple[int, list[str]]:
    """The exit code, and what to say, of pip-audit's JSON and of what it said on standard error."""
    try:
        packages: list[dict[str, Any]] = json.loads(out)["dependencies"]
    except (ValueError, KeyError):
        last = next((line for line in reversed(err.splitlines()) if line.strip()), "pip-audit said nothing")
        return UNKNOWN, [f"audit: nothing is known: {last.strip()} (pip-audit asks the advisories of pypi.org)"]
    faults = [line for package in packages for line in faults_of(package)]
    # Our own checkout, and builds with a local version (torch 2.13.0+cpu), are on no index.
    others = [package for package in packages if package["name"] != OWN and "skip_reason" in package]
    local = [package["name"] for package in others if "+" in package["skip_reason"]]
    unread = [package["name"] for package in others if package["name"] not in local]
    read = sum("skip_reason" not in package for package in packages)
    lines = [*faults, f"audit: {read} packages read, {len(faults)} known faults"]
    lines += [f"audit: not read, for their builds are on no index: {', '.join(local)}"] if local else []
    if unread:
        names = ", ".join(unread[:NAMED]) + (f" and {len(unread) - NAMED} others" if len(unread) > NAMED else "")
        lines.append(f"audit: the index has no advisories of {names}: nothing is known of them (ask pypi.org itself)")
    return FAULTS if faults else UNKNOWN if unread or not read else 0, lines


def faults_of(package: dict[str, Any]) -> list[str]:
    """A line for each known fault of a package."""
    return [
        f"{package['name']} {package['version']}: {fault['id']}{_names(fault)}, "
        + (
            f"mended in {', '.join(fault['fix_versions'])}"
            if fault.get("fix_versions")
            else "not mended in any version"
        )
        for fault in package.get("vulns", [])
    ]


def _names(fault: dict[str, Any]) -> str:
    return f" ({', '.join(fault['aliases'])})" if fault.get("aliases") else ""


if __name__ == "__main__":
    sys.exit(main())
