"""docs/reference/json.md: each object shown is what the command prints, but for what "..." leaves out."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from typing import Any

import pytest

from pyprof import cli, demo
from pyprof.command.envelope import ANSWERS
from tests.answered import strict, valid
from tests.paths import ROOT

EXAMPLE = re.compile(r"<!-- json: (\w+) -->\n```console\n\$ (.*?)\n(\{.*?\n\})\n```", re.DOTALL)
PAGE = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
EXAMPLES = [match.groups() for match in EXAMPLE.finditer(PAGE)]
COMMANDS = {"prof.py": ["prof"], "parse.py": ["parse"], "pyprof": []}
LEFT_OUT = "..."


def agrees(shown: Any, found: Any, where: str = "") -> None:
    """Raise where what is shown is not there."""
    if isinstance(shown, dict):
        assert isinstance(found, dict), where
        keys = [key for key in shown if key != LEFT_OUT]
        assert LEFT_OUT in shown or list(found) == keys, where
        for key in keys:
            agrees(shown[key], found[key], f"{where}.{key}")
    elif isinstance(shown, list):
        assert isinstance(found, list) and (len(shown) == len(found) or LEFT_OUT in shown), where
        for item, other in zip(shown, found, strict=False):
            if item != LEFT_OUT:
                agrees(item, other, f"{where}[]")
    else:
        assert (shown, type(shown)) == (found, type(found)), where


@pytest.mark.parametrize(("mark", "command", "text"), EXAMPLES, ids=[example[1] for example in EXAMPLES])
def test_what_the_page_shows_is_printed(mark, command, text, tmp_path, monkeypatch, capfdbinary):
    shown = json.loads(text)
    if mark == "measured":  # on a machine of its own
        valid(shown)
        return
    if not mark.isdigit():  # an exit code, or the package that it needs
        pytest.importorskip(mark)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    shutil.copy(ROOT / "tests" / "golden" / "h200_lenet_fp32.json.gz", "lenet.json.gz")
    shutil.copy(ROOT / "tests" / "golden" / "h200_lenet.sqlite.gz", "lenet.sqlite.gz")
    shutil.copy(ROOT / "tests" / "golden" / "memory" / "h200_lstm.json.gz", "lstm.json.gz")
    shutil.copy(ROOT / "tests" / "golden" / "ncu/h200_lenet.raw.csv.gz", "lenet.ncu.csv.gz")
    shutil.copy(demo.example("lenet.py"), "lenet.py")
    first, *words = shlex.split(command)
    if mark == "torch":  # pyprof run hands standard output on as a process has it
        done = subprocess.run([sys.executable, "-m", "pyprof", *words], stdout=subprocess.PIPE)
        code, printed = done.returncode, done.stdout
    else:
        code = cli.main([*COMMANDS[first], *words])
        printed = capfdbinary.readouterr().out
    found = valid(strict(printed))
    assert code == (int(mark) if mark.isdigit() else 0)
    agrees(shown, found)


def test_the_keys_on_the_page_are_those_of_the_documents():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "json_page.py")], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_answer_has_its_example():
    shown = {json.loads(text)["schema"].split("/")[1] for _, _, text in EXAMPLES}
    assert shown == {answer.what for answer in ANSWERS}


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, LEFT_OUT: LEFT_OUT}, {"a": 2}),
        ([1], [1, 2]),
        ([2, LEFT_OUT], [1, 2]),
        (1, 1.0),
        ({}, []),
    ],
)
def test_a_difference_is_seen(shown, found):
    with pytest.raises(AssertionError):
        agrees(shown, found)
