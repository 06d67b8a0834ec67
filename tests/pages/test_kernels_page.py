"""docs/reference/kernels.md is what the tables of families say."""

import subprocess
import sys

from tests.paths import ROOT


def test_the_page_is_up_to_date():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "kernels_page.py")], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
