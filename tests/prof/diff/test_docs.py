"""docs/how-to/diff.md shows what is printed; the workflow and the test of examples/ci run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.prof.diff import cli
from pyprof.prof.diff.gate import QUANTITIES, parse_gate

SHOWN = re.compile(r"<!-- diff: (\w+) (\w+) -->\n```text\n(.*?)```", re.DOTALL)
WIDTH = "96"


def test_what_is_shown_is_printed(root, tmp_path, monkeypatch, capfdbinary, update_golden):
    """Where figures change: pytest --update-golden, and read the diff."""
    file = root / "docs" / "how-to" / "diff.md"
    text = file.read_text(encoding="utf-8")
    assert SHOWN.search(text)
    monkeypatch.chdir(tmp_path)

    def printed(match: re.Match[str]) -> str:
        names = [f"{name}.json.gz" for name in match.groups()[:2]]
        for name in names:
            shutil.copy(root / "tests" / "golden" / f"h200_diff_{name}", name)
        assert cli.main([*names, "-w", WIDTH]) == 0
        said = capfdbinary.readouterr().out.decode()
        said = said.split("\nBy kind of work")[0]
        return f"<!-- diff: {match[1]} {match[2]} -->\n```text\n{said}```"

    expected = SHOWN.sub(printed, text)
    if update_golden:
        file.write_text(expected, encoding="utf-8")
        text = expected
    assert text == expected


def test_the_conditions_of_the_page_can_be_read(root):
    page = (root / "docs" / "how-to" / "diff.md").read_text(encoding="utf-8")
    table = page.partition("| condition |")[2].partition("\n\n")[0]
    found = [word for word in re.findall(r"`([^`]+)`", table) if re.search(r"[<>=]", word)]
    assert len(found) >= 12
    for condition in found:
        parse_gate(condition)
    for name in QUANTITIES:
        assert f"`{name}" in table, name


def workflow(root: Path) -> dict[str, str]:
    """The workflow's commands by the names of their steps."""
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((root / "examples" / "ci" / "pyprof.yml").read_text(encoding="utf-8"))
    assert set(found) == {"name", True, "permissions", "env", "jobs"}  # YAML 1.1 reads `on` as true
    (job,) = found["jobs"].values()
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
    return {"env": found["env"], **{step["name"]: step["run"] for step in job["steps"] if "run" in step}}


@pytest.fixture
def runner(root, tmp_path):
    """Runs a step as GitHub's runner does (bash -e), in a folder with this checkout's pyprof on the path."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "pyprof"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m pyprof "$@"\n')
    command.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(root),
           "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}  # fmt: skip

    def run(script: str, **more: str) -> int:
        done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env={**env, **more}, timeout=300, check=False)
        return done.returncode

    return run


@pytest.mark.parametrize(("base", "head", "code"), [("eager", "padded", 0), ("padded", "eager", 3)])
def test_the_workflow_compares(base, head, code, root, runner, tmp_path):
    steps = workflow(root)
    for side, name in (("base", base), ("head", head)):
        shutil.copy(root / "tests" / "golden" / f"h200_diff_{name}.json.gz", tmp_path / f"{side}.json.gz")
    assert runner(steps["Compare"]) == code
    assert runner(steps["Summary"]) == 0
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("```\nB is 13.06 ms per step")
    assert ("failed: step > 3%: 10.08 -> 23.14 ms" in summary) == (code == 3)
    assert (tmp_path / "diff.html").read_text().startswith("<!doctype html>")


TRAIN = """
import torch, pyprof
layer = torch.nn.Linear(64, 64)
for _ in range(40):
    layer(torch.randn(8, 64)).sum().backward()
    pyprof.step()
"""


@pytest.mark.torch
def test_the_workflow_captures(root, runner, tmp_path):
    pytest.importorskip("torch")
    steps = workflow(root)
    for side in ("base", "head"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "train.py").write_text(TRAIN)
    env = {name: str(value) for name, value in steps["env"].items()}
    assert runner(steps["Capture"], **env) == 0
    assert runner(steps["Compare"], **env) in (0, 3)  # a busy machine may be 3% slower; the commands ran
    assert "per step" in (tmp_path / "diff.txt").read_text()


@pytest.mark.torch
def test_the_test_makes_its_baseline_and_holds_it(root, runner, tmp_path):
    pytest.importorskip("torch")
    shutil.copy(root / "examples" / "ci" / "test_step.py", tmp_path)
    lines = ["import os, pytest, sys", "run = lambda: pytest.main(['-q', '-p', 'no:cacheprovider', 'test_step.py'])"]
    lines += [
        "assert run() == 0 and os.path.getsize('baseline.json.gz')",
        "sys.exit(40 + run())",
    ]  # one import of torch
    (tmp_path / "twice.py").write_text("\n".join(lines))
    assert runner(f"{sys.executable} twice.py") in (40, 41)  # as above
