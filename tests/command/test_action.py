"""action.yml: its script, run as GitHub runs it, with a stand-in for GitHub's command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.paths import GOLDEN, ROOT

EAGER, COMPILED = (str(GOLDEN / f"h200_diff_{name}.json.gz") for name in ("eager", "compiled"))
FAKE_GH = """#!{python}
import json, os, sys
asked = {{"words": sys.argv[1:], "sent": sys.stdin.read() if "--input" in sys.argv else None}}
with open(os.environ["ASKED"], "a") as file:
    file.write(json.dumps(asked) + "\\n")
if os.environ.get("GH_FAILS"):
    sys.exit("HTTP 403: Resource not accessible by integration")
print(os.environ["COMMENTS"] if "GET" in sys.argv else "{{}}")
"""


@pytest.fixture
def github(tmp_path):
    """Runs the action's step; what it printed, and what gh was asked."""
    gh, event, asked = tmp_path / "gh", tmp_path / "event.json", tmp_path / "asked"
    gh.write_text(FAKE_GH.format(python=sys.executable))
    gh.chmod(0o755)
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    asked.touch()
    own = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_REPOSITORY": "me/net",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "ASKED": str(asked),
        "COMMENTS": "[]",
    }

    def run(*script, **environment):
        script = script or (sys.executable, str(ROOT / "tools" / "pr_comment.py"))
        done = subprocess.run(
            script, cwd=tmp_path, env={**os.environ, **own, **environment}, capture_output=True, text=True
        )
        return done, [json.loads(line) for line in asked.read_text().splitlines()]

    return run


def test_a_regression_fails_and_is_commented(github, tmp_path):
    done, asked = github(BEFORE=COMPILED, AFTER=EAGER, FAIL_IF="step > 3%\n\n  kernels > 0 \n")
    assert done.returncode == 3, done.stderr
    find, post = asked
    assert find["words"] == "api --method GET repos/me/net/issues/7/comments?per_page=100".split()
    assert post["words"] == "api --method POST repos/me/net/issues/7/comments --input -".split()
    body = json.loads(post["sent"])["body"]
    assert body.startswith("<!-- pyprof diff -->\n### pyprof diff: a condition is true")
    assert "step > 3%" in body and "kernels > 0" in body
    assert (tmp_path / "summary.md").read_text() == body
    assert body.count("```") % 2 == 0


def test_the_step_runs_as_on_github(github, tmp_path):
    """GitHub writes a step's text to a file, puts the inputs into its environment, and calls bash so."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    step = action["runs"]["steps"][1]
    given = {"before": COMPILED, "after": EAGER, "fail-if": "step > 3%\n", "comment": "true", "token": "ghs_x"}
    values = {name: value.replace("${{ inputs.", "").replace(" }}", "") for name, value in step["env"].items()}
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "step.sh").write_text(step["run"])
    bash = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(tmp_path / "step.sh"))
    environment = {name: given[value] for name, value in values.items()}
    done, asked = github(*bash, GITHUB_ACTION_PATH=str(ROOT), **environment)
    assert done.returncode == 3, done.stderr
    assert len(asked) == 2


def test_files_of_the_pull_request_are_no_modules(github, tmp_path):
    """Not even json.py or profile.py, which many a repository has."""
    for name in ("json", "profile", "pyprof", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the pull request ran')")
    done, _ = github(BEFORE=EAGER, AFTER=COMPILED, COMMENT="false")
    assert done.returncode == 0, done.stderr


def test_the_comment_of_an_earlier_run_is_replaced(github):
    others = [{"id": 1, "body": "nice"}, {"id": 22, "body": "<!-- pyprof diff -->\nold"}]
    done, asked = github(BEFORE=EAGER, AFTER=COMPILED, FAIL_IF="step > 3%", COMMENTS=json.dumps(others))
    assert done.returncode == 0, done.stderr
    assert asked[1]["words"] == "api --method PATCH repos/me/net/issues/comments/22 --input -".split()
    assert "no condition is true" in json.loads(asked[1]["sent"])["body"]


def test_without_a_right_to_comment_the_result_stands(github):
    done, _ = github(BEFORE=EAGER, AFTER=COMPILED, GH_FAILS="1")
    assert done.returncode == 0
    assert "::warning::pyprof diff: no comment was made: HTTP 403" in done.stderr
    assert "pull-requests: write" in done.stderr


@pytest.mark.parametrize("other", [{"COMMENT": "false"}, {"GITHUB_EVENT_PATH": os.devnull}])
def test_no_comment_is_made_unasked_or_outside_of_a_pull_request(github, other):
    done, asked = github(BEFORE=EAGER, AFTER=EAGER, **other)
    assert (done.returncode, asked) == (0, [])


def test_a_missing_capture_is_an_error_and_no_comment(github):
    done, asked = github(BEFORE="none.json.gz", AFTER=EAGER)
    assert (done.returncode, asked) == (1, [])
    assert "none.json.gz" in done.stderr


def test_fences_in_names_do_not_end_the_comments_fence():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from pr_comment import comment
    finally:
        sys.path.pop(0)
    body = comment("kernel ````evil`\n", "", False)
    assert body.splitlines()[3] == "`" * 7 and body.splitlines()[-1] == "`" * 7
    long = comment("x" * 100_000, "", False)
    assert len(long) < 65_536 and "40,000 more characters" in long


def test_the_action_passes_every_input_through_the_environment():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    install, compare = action["runs"]["steps"]
    assert not any("${{" in step["run"] for step in (install, compare))
    used = " ".join(value for step in (install, compare) for value in step["env"].values())
    assert all(f"inputs.{name} " in used for name in action["inputs"])
    assert Path(ROOT, "tools", "pr_comment.py").is_file() and "tools/pr_comment.py" in compare["run"]
