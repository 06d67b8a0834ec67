"""Install pyprof with pairs of Python and torch, lowest and highest dependencies, run tests there, and write the table.

    python tools/matrix.py --list                      # the rows, and which can run here
    python tools/matrix.py --run all --scratch /tmp/m  # each in an environment of its own, one after the other
    python tools/matrix.py --run py310-torch2.4 ...    # some of them; the others keep their last result
    python tools/matrix.py                             # docs/reference/compatibility.md is up to date
    python tools/matrix.py --write                     # write it

A row needs its Python on PATH, in pyenv, or named by PYTHON310, PYTHON311, ...; and PyPI. Plain torch brings CUDA's
libraries, so an environment takes up to 7 GB while it is tested, and is removed afterwards. Results are kept in
tools/matrix.json.
"""

import argparse
import ast
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tools" / "matrix.json"
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
# Capture, which depends on torch; reading and tables, which depend on numpy, pyarrow, msgspec and orjson; DataFrames,
# which depend on pandas. Tests that start processes are left to CI: `pyprof demo` stands in for them.
CAPTURE = "session markers_of_calls layers optimizers step_finder steps_before memory_record"
READING = "tests/parse/kineto tests/table"
TESTS = [*(f"tests/capture/test_{name}.py" for name in CAPTURE.split()), *READING.split(), "tests/prof/notebook"]
NEEDED = ["pytest>=9.0.3,<10", "hypothesis>=6.100", "jsonschema>=4.21", "pyyaml>=6", "setuptools>=78.1.1", "wheel"]
INSTALLED = "installed"  # this empty file says that an environment is complete
SHOWN = "numpy pandas pyarrow msgspec orjson rich jinja2 nvtx".split()


class Row(NamedTuple):
    """An environment. `lowest`: dependencies at their lower bounds in setup.py; `more`: requirements beside them."""

    name: str
    python: str
    torch: str
    lowest: bool = False
    more: tuple[str, ...] = ()


OF_MATPLOTLIB = "pyparsing<3.3"  # newer ones warn of how matplotlib 3.8 calls them, and tests take warnings for errors
ROWS = (
    Row("py310-torch2.4", "3.10", "2.4.1", lowest=True, more=(OF_MATPLOTLIB,)),
    Row("py311-torch2.6", "3.11", "2.6.0", lowest=True, more=(OF_MATPLOTLIB,)),
    Row("py312-torch2.8", "3.12", "2.8.0", more=("pandas>=2,<3", "numpy>=2")),
    Row("py311-torch2.13", "3.11", "2.13.0", more=("pandas>=3", "numpy>=2")),
    Row("py313-newest", "3.13", "", more=("pandas>=3", "numpy>=2")),
    Row("py314-newest", "3.14", "", more=("pandas>=3", "numpy>=2")),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the rows, and which can run here")
    parser.add_argument("--run", nargs="+", metavar="ROW", choices=[*(row.name for row in ROWS), "all"])
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/pyprof-matrix"), help="for the environments")
    parser.add_argument("--reuse", action="store_true", help="keep environments, and use those that are there again")
    parser.add_argument("--write", action="store_true", help="write the page")
    args = parser.parse_args()
    if args.list:
        for row in ROWS:
            print(f"{row.name:16} {interpreter(row.python) or why_no_python(row.python)}")
        return 0
    if args.run:
        for row in ROWS:
            if row.name in args.run or "all" in args.run:
                keep(row, tested(row, args.scratch, args.reuse))
        return 0
    text = page(json.loads(RESULTS.read_text(encoding="utf-8")))
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.relative_to(ROOT)} is out of date: run tools/matrix.py --write")
        return 1
    return 0


def interpreter(version: str) -> str | None:
    """The Python of that version on this machine."""
    named = os.environ.get(f"PYTHON{version.replace('.', '')}")
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found = [named, *map(str, pyenv), shutil.which(f"python{version}")]
    return next((path for path in found if path and _is(path, version)), None)


def _is(path: str, version: str) -> bool:
    code = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def why_no_python(version: str) -> str:
    return f"not run: no Python {version} on this machine"


def lower_bounds() -> list[str]:
    """The requirements of setup.py and those of figures, each at its lower bound."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    lists = [ast.literal_eval(node.value) for node in assigned if ast.unparse(node.targets[0]) in ("BASE", "PLOT")]
    return [re.sub(r">=([\d.]+).*", r"==\1", requirement) for each in lists for requirement in each]


def tested(row: Row, scratch: Path, reuse: bool) -> dict[str, object]:
    """Install and test a row; its result. The environment is removed, unless it is to be used again."""
    python = interpreter(row.python)
    if python is None:
        return {"not_run": why_no_python(row.python)}
    folder = scratch / row.name
    ours = str(folder / "venv" / "bin" / "python")
    try:
        if not (reuse and (folder / INSTALLED).exists()):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
            if why := install(row, ours, folder):
                return {"not_run": f"cannot be installed: {why}"}
            (folder / INSTALLED).touch()
        return run_tests(row, ours, folder)
    finally:
        if not reuse:
            shutil.rmtree(folder, ignore_errors=True)


def install(row: Row, ours: str, folder: Path) -> str:
    """Install a row's requirements and this checkout; why that failed, if it did."""
    torch = f"torch=={row.torch}" if row.torch else "torch"
    wanted = [torch, *NEEDED, *(lower_bounds() if row.lowest else []), *row.more]
    tell(f"{row.name}: installing {' '.join(wanted)}")
    pip = [ours, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
    temporary = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run([*pip, *wanted, f"{ROOT}[plot]"], capture_output=True, text=True, check=False, env=temporary)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (" ".join(errors)[:300] or done.stderr[-300:]) if done.returncode else ""


def run_tests(row: Row, ours: str, folder: Path) -> dict[str, object]:
    listed = "{d.name.lower(): d.version for d in m.distributions()}"
    code = f"import importlib.metadata as m, json; print(json.dumps({listed}))"
    names = json.loads(subprocess.run([ours, "-c", code], capture_output=True, text=True, check=True).stdout)
    exact = subprocess.run([ours, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    tell(f"{row.name}: testing with Python {exact}, torch {names['torch']}")
    begun, report = time.monotonic(), folder / "report.xml"
    demo = subprocess.run(
        [ours, "-m", "pyprof", "demo", "-q", "-o", str(folder / "demo")], cwd=ROOT, capture_output=True, check=False
    )
    pytest = [ours, "-m", "pytest", "-q", "-m", "not slow", "-o", f"cache_dir={folder / 'cache'}"]
    # CI: Hypothesis then sets no deadlines, which a busy machine misses.
    settings: dict[str, Any] = {"cwd": ROOT, "env": {**os.environ, "CI": "true"}, "text": True}
    run = subprocess.run([*pytest, f"--junit-xml={report}", *TESTS], capture_output=True, check=False, **settings)
    print(run.stdout[-6000:])
    if not report.exists():
        return {"not_run": f"the tests did not start: {(run.stdout + run.stderr)[-300:]}"}
    result = counted(report)
    if result["failed"]:  # once more, without the others: some tests time things, and the machine may be busy
        subprocess.run([*pytest, "--last-failed", f"--junit-xml={report}", *TESTS], check=False, **settings)
        again = counted(report)["failed"]
        result["passed_again"] = [name for name in result["failed"] if name not in again]
        result["failed"] = again
    return {
        **result,
        "demo": "works" if demo.returncode == 0 else f"exit code {demo.returncode}",
        "python": exact,
        "versions": {name: names[name] for name in ("torch", *SHOWN)},
        "seconds": round(time.monotonic() - begun),
        "day": datetime.now(timezone.utc).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def counted(report: Path) -> dict[str, Any]:
    """The counts of a JUnit report, and the names of the tests that failed."""
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    names = [f"{case.get('classname')}::{case.get('name')}" for case in failed]
    return {"passed": len(cases) - len(failed) - len(skipped), "skipped": len(skipped), "failed": names}


def keep(row: Row, result: dict[str, object]) -> None:
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    known[row.name] = {"asked": row._asdict(), **result}
    ordered = {each.name: known[each.name] for each in ROWS if each.name in known}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    tell(f"{row.name}: {result.get('not_run') or {key: result[key] for key in ('passed', 'skipped', 'failed')}}")


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def page(results: dict[str, dict[str, object]]) -> str:
    """The page: a line per row, what failed, and what could not run."""
    return "\n".join([HEAD, *map(_line, results.values()), "", *_below(results), "", FOOT, ""])


HEAD = f"""\
# Compatibility

Written by `python tools/matrix.py --write` from the last runs of `tools/matrix.py --run`, which installs each row in an
environment of its own, runs `pyprof demo` there, and then the tests of capture
({", ".join(CAPTURE.split()).replace("_", " ")}), of reading and tables
({", ".join(f"`{test}`" for test in READING.split())}) and of DataFrames. Lowest: every dependency at its lower
bound in `setup.py`; highest: the newest that the row allows. No machine of these rows has a GPU: captures are of CPU
code; captures of GPUs are read, not made.

| Python | torch | dependencies | numpy | pandas | pyarrow | `pyprof demo` | passed | failed | skipped | day |
|---|---|---|---|---|---|---|---|---|---|---|"""


FOOT = """\
What cannot run: torch has wheels for Python 3.13 from 2.5.0 on and for Python 3.14 from 2.9.0 on; for Python 3.14,
numpy has them from 2.3.2 on and pandas from 2.3.3 on. So the lowest dependencies (numpy 1.26, pandas 2.2) run on
Python 3.10 and 3.11 here. The lower bounds of pyarrow, orjson, distributed, pytest and transformers are higher than
what pyprof needs: older versions have known faults (`make audit`). Not run: macOS, Windows, and Linux on ARM."""


def _line(result: dict[str, object]) -> str:
    asked, versions = result["asked"], result.get("versions")
    assert isinstance(asked, dict)
    bounds = "lowest" if asked["lowest"] else "highest"
    if not isinstance(versions, dict):
        return f"| {asked['python']} | {asked['torch'] or 'newest'} | {bounds} | | | | not run | | | | |"
    cells = [result["python"], versions["torch"], bounds, *(versions[name] for name in ("numpy", "pandas", "pyarrow"))]
    failed = result["failed"]
    assert isinstance(failed, list)
    again = result.get("passed_again", [])
    assert isinstance(again, list)
    counts = [result["demo"], f"{result['passed'] + len(again):,}", len(failed), result["skipped"], result["day"]]
    return f"| {' | '.join(map(str, [*cells, *counts]))} |"


def _below(results: dict[str, dict[str, object]]) -> list[str]:
    lines = []
    for name, result in results.items():
        failed = result.get("failed")
        again = result.get("passed_again")
        if isinstance(again, list) and again:
            lines.append(
                f"- {name}: passed when run again, without the others: {', '.join(f'`{test}`' for test in again)}."
            )
        if result.get("not_run"):
            lines.append(f"- {name}: {result['not_run']}.")
        elif isinstance(failed, list) and failed:
            lines.append(f"- {name}: failed: {', '.join(f'`{test}`' for test in failed)}.")
    return lines


if __name__ == "__main__":
    sys.exit(main())
