"""docs/reference/compatibility.md is made from the matrix's results, and setup.py claims what they show."""

import json
import re
import subprocess
import sys

from tests.paths import ROOT

RESULTS = json.loads((ROOT / "tools" / "matrix.json").read_text(encoding="utf-8"))
RAN = [result for result in RESULTS.values() if "not_run" not in result]


def test_the_page_is_made_from_the_results():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "matrix.py")], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_python_that_setup_claims_was_tested_without_a_failure():
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    claimed = set(re.findall(r"Programming Language :: Python :: (3\.\d+)", text))
    tested = {result["python"].rpartition(".")[0] for result in RAN}
    assert claimed == tested
    assert all(result["failed"] == [] and result["demo"] == "works" for result in RAN)


def test_the_lowest_row_has_the_lower_bounds_of_setup():
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    lowest = next(result["versions"] for result in RAN if result["asked"]["lowest"])
    for name in ("numpy", "pandas", "pyarrow", "msgspec", "orjson", "rich", "jinja2", "nvtx"):
        (bound,) = re.findall(rf'"{name}>=([\d.]+)"', text)
        assert lowest[name].removesuffix(".0") in (bound, bound.removesuffix(".0")) or lowest[name] == f"{bound}.0.0"


def test_the_readme_claims_the_lowest_torch_that_was_tested():
    (claimed,) = re.findall(r"torch is yours \(([\d.]+) or newer\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    lowest = min(
        (result["versions"]["torch"] for result in RAN), key=lambda text: [*map(int, text.split("+")[0].split("."))]
    )
    assert lowest.startswith(f"{claimed}.")
    pairs = {(result["python"], result["versions"]["torch"]) for result in RAN}
    assert len(pairs) >= 4
