"""The work of action.yml: run `pyprof diff`, and put what it prints on the pull request and on the job's page.

Everything comes from the environment: BEFORE, AFTER, FAIL_IF (a condition per line), COMMENT, and what GitHub sets. The
exit code is that of `pyprof diff`: 3 if a condition is true. A comment of an earlier run is replaced. GitHub's command
line, gh, posts it; if that fails, the job goes on and says why.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

MARK = "<!-- pyprof diff -->"  # the beginning of our comment, by which a later run finds it
MOST = 60_000  # characters; GitHub takes 65,536
# Like python -m pyprof, but files of the pull request, in whose checkout this runs, are no modules.
RUN = "import sys; sys.path = [folder for folder in sys.path if folder]; from pyprof.cli import main; sys.exit(main())"
PASSED, FAILED = 0, 3  # exit codes of a comparison that was made


def main() -> int:
    done = compared(os.environ["BEFORE"], os.environ["AFTER"], os.environ.get("FAIL_IF", "").splitlines())
    sys.stderr.write(done.stderr)
    if done.returncode not in (PASSED, FAILED):
        return done.returncode
    body = comment(done.stdout, done.stderr, done.returncode == FAILED)
    print(body)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with open(summary, "a", encoding="utf-8") as file:
            file.write(body)
    if os.environ.get("COMMENT", "true").lower() == "true":
        publish(body)
    return done.returncode


def compared(before: str, after: str, conditions: list[str]) -> "subprocess.CompletedProcess[str]":
    gates = [f"--fail-if={condition.strip()}" for condition in conditions if condition.strip()]
    command = [sys.executable, "-c", RUN, "diff", "-w", "110", *gates, "--", before, after]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


def comment(text: str, notes: str, failed: bool) -> str:
    """The comment in Markdown. Names in the text come from captures: no fence in them ends ours."""
    if len(text) > MOST:
        text = f"{text[:MOST]}\n... {len(text) - MOST:,} more characters are in the job's log\n"
    fence = "`" * (3 + max((len(run) for run in re.findall("`+", text + notes)), default=0))
    verdict = "a condition is true: the step regressed" if failed else "no condition is true"
    parts = [MARK, f"### pyprof diff: {verdict}", "", fence, text.rstrip(), fence]
    parts += ["", "Notes:", "", fence, notes.rstrip()[: MOST // 20], fence] if notes.strip() else []
    return "\n".join([*parts, ""])


def publish(body: str) -> None:
    """Post the comment, or replace the one of an earlier run. What fails is said, and does not fail the job."""
    event = Path(os.environ.get("GITHUB_EVENT_PATH", os.devnull))
    text = event.read_text(encoding="utf-8")
    request = (json.loads(text) if text else {}).get("pull_request")
    if request is None:
        print("::notice::pyprof diff: this is no pull request, so there is no comment", file=sys.stderr)
        return
    comments = f"repos/{os.environ['GITHUB_REPOSITORY']}/issues/{request['number']}/comments"
    try:
        ours = [each for each in json.loads(gh(f"{comments}?per_page=100")) if str(each["body"]).startswith(MARK)]
        if ours:
            gh(f"repos/{os.environ['GITHUB_REPOSITORY']}/issues/comments/{ours[0]['id']}", "PATCH", body)
        else:
            gh(comments, "POST", body)
    except (OSError, subprocess.CalledProcessError) as error:
        why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        needs = "the job needs permissions: pull-requests: write"
        print(f"::warning::pyprof diff: no comment was made: {' '.join(why)} ({needs})", file=sys.stderr)


def gh(path: str, method: str = "GET", body: str | None = None) -> str:
    """Ask GitHub; what it answers."""
    given = [] if body is None else ["--input", "-"]
    sent = None if body is None else json.dumps({"body": body})
    command = ["gh", "api", "--method", method, path, *given]
    return subprocess.run(command, input=sent, capture_output=True, text=True, encoding="utf-8", check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
