"""pyprof mcp without the Model Context Protocol's SDK: one line that says what to install."""

import subprocess
import sys

from tests.paths import ROOT

WITHOUT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "mcp" else found(name, *rest)
from pyprof.mcp.cli import main
sys.exit(main(["."]))
"""


def test_one_line_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True)
    expected = "no module mcp; pyprof mcp needs the Model Context Protocol's SDK: pip install 'torch-pyprof[mcp]'"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"pyprof mcp: {expected}\n")
