"""skills/pyprof/SKILL.md: every command in it works, and it has the form that agents look for."""

import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.paths import GOLDEN, ROOT

SKILL = ROOT / "skills" / "pyprof" / "SKILL.md"
FILES = {
    "net.json.gz": "h200_gpt2_training_eager",
    "before.json.gz": "h200_diff_eager",
    "after.json.gz": "h200_diff_padded",
}


def commands():
    blocks = SKILL.read_text(encoding="utf-8").split("```sh\n")[1:]
    lines = [line for block in blocks for line in block.partition("```")[0].splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captures")
    for name, golden in FILES.items():
        shutil.copy(GOLDEN / f"{golden}.json.gz", folder / name)
    return folder


def test_the_front_matter_names_and_describes_it():
    _, front, text = SKILL.read_text(encoding="utf-8").split("---\n", 2)
    found = yaml.safe_load(front)
    assert found["name"] == SKILL.parent.name
    assert 50 < len(found["description"]) < 1024
    assert len(text.splitlines()) < 100


@pytest.mark.slow
@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_works(words, folder):
    assert words[0] == "pyprof"
    done = subprocess.run(
        [sys.executable, "-m", "pyprof", *words[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )
    assert done.returncode in ((0, 3) if "--fail-if" in words else (0,)), done.stderr
    assert done.stdout


def test_the_recording_command_is_what_run_takes():
    from pyprof.capture.run import build_parser

    (line,) = (line for line in SKILL.read_text(encoding="utf-8").splitlines() if line.startswith("    pyprof run"))
    args = build_parser().parse_args(line.split()[2:])
    assert (args.warmup, args.steps, args.output, args.script) == (10, 3, "net.json.gz", "train.py")
