"""docs/reference/ops.md is what the registry says, and every model says what it counts."""

import subprocess
import sys

import pyprof.prof.ops.families  # noqa: F401
from pyprof.prof.ops.model import MODELS
from tests.paths import ROOT


def test_the_page_is_up_to_date():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "ops_page.py")], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_model_says_what_it_counts():
    assert [name for name, function in MODELS.items() if not (function.__doc__ or "").strip()] == []
