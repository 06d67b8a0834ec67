"""Check the Markdown pages against the checkout: links, paths, and the pasted output of commands.

    python tools/check_docs.py [--write]

- A relative link leads to a file, and its #anchor to a heading there.
- `parse/cli.py` or `tests/bench/`, in backquotes, is there (the changelog may name files that are gone).
- Between <!-- help: parse.py --> and <!-- /help --> stands what `parse.py --help` prints.
- Between <!-- output: pyprof prof FILE --> and <!-- /output --> stands what that command prints in the checkout; with
  `; from: • FLOPs` at the end, from the line that begins so, and then with `; up to: By phase`, up to that line. With
  `; exit code: 3` before these, that is the command's exit code; otherwise it is 0. A mark `session:` in place of
  `output:` shows the command, too, as one types it on a terminal of 100 columns, where `-q`, `-w 100` and `--summary`
  change nothing but notes; dots stand for what is left out.

--write pastes the texts again. (Those of diff.md: pytest --update-golden tests/prof/diff/test_docs.py.)
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("pyprof", "parse", "prof", "tests", "tools", "docs", "examples", ".ci")
MODULES = {"parse.py": "pyprof.parse", "prof.py": "pyprof.prof", "pyprof": "pyprof"}  # a command's first word

HISTORY = "CHANGELOG.md"  # names files that are gone

LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
DOCSTRING = re.compile(r"^::: (\S+)$", re.MULTILINE)  # the site has the docstring there, under the object's name
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*")
PASTED = re.compile(
    r"<!-- (?P<kind>help|output|session): (?P<command>.+?)(?:; exit code: (?P<code>\d+))?"
    r"(?:; from: (?P<start>.+?))?(?:; up to: (?P<end>.+?))? -->\n(?P<text>.*?)<!-- /(?P=kind) -->",
    re.DOTALL,
)
ASIDE = re.compile(r" (?:-q|-w 100|--summary)(?= )")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the Markdown pages against the checkout.")
    parser.add_argument("--write", action="store_true", help="paste the help texts and outputs again")
    args = parser.parse_args(argv)
    pages = list(markdown(ROOT))
    if args.write:
        for page in pages:
            paste(page)
    complaints = [line for page in pages for line in check(page, ROOT)]
    print("\n".join(complaints) or f"{len(pages)} pages agree with the checkout")
    return 1 if complaints else 0


def markdown(root: Path) -> Iterator[Path]:
    """README.md and its neighbours, and all below docs/ and examples/; nothing of .venv or build."""
    yield from sorted(root.glob("*.md"))
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.md"))


def check(page: Path, root: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    here = page.relative_to(root)
    for target in LINK.findall(CODE.sub("", prose)):
        if complaint := broken(target, page):
            yield f"{here}: the link {target} {complaint}"
    for span in CODE.findall(prose) if page.name != HISTORY else ():
        if PATH.fullmatch(span) and not (root / span).exists():
            yield f"{here}: {span} is not in the checkout"
    for match in PASTED.finditer(text):
        pasted, now = match["text"], printed(match)
        if pasted != now and (match["kind"] != "help" or words(pasted) != words(now)):
            yield f"{here}: the {match['kind']} of {match['command']} has changed: run tools/check_docs.py --write"


def broken(target: str, page: Path) -> str | None:
    """What is wrong with a link; None if nothing is, or if it leads out of the checkout."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return None
    file, _, anchor = target.partition("#")
    goal = page.parent / file if file else page
    if not goal.exists():
        return "leads nowhere"
    if anchor and anchor not in anchors(goal):
        return "leads to no heading"
    return None


def anchors(page: Path) -> set[str]:
    """As GitHub and MkDocs make them: lower case, words joined by hyphens, punctuation left out."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(prose)}
    return named | set(DOCSTRING.findall(prose))


def paste(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    new = PASTED.sub(lambda m: f"{m[0][: m.start('text') - m.start()]}{printed(m)}<!-- /{m['kind']} -->", text)
    if new != text:
        page.write_text(new, encoding="utf-8")


def printed(match: re.Match[str]) -> str:
    """What the command of a mark prints on a terminal of 100 columns, as a fenced block."""
    done = ran(match["command"], match["kind"] == "help")
    if done.returncode != int(match["code"] or 0):
        raise SystemExit(f"{match['command']}: exit code {done.returncode}: {done.stderr}")
    text, session = done.stdout, match["kind"] == "session"
    if match["start"]:
        if f"\n{match['start']}" not in f"\n{text}":
            raise SystemExit(f"no line that {match['command']} prints begins with {match['start']}")
        text = "".join(f"\n{text}".partition(f"\n{match['start']}")[1:]).removeprefix("\n")
        text = f"...\n{text}" if session else text
    if match["end"]:
        text, _, rest = text.partition(f"\n{match['end']}")
        text = f"{text.rstrip()}\n..." if session and rest else text
    if session:
        typed = " ".join(word for word in ASIDE.sub("", match["command"]).split(" ") if word)
        return f"```console\n$ {typed}\n{text.rstrip()}\n```\n"
    return f"```text\n{text.rstrip()}\n```\n"


@cache
def ran(command: str, for_help: bool) -> subprocess.CompletedProcess[str]:
    """A command's run. Several marks may show parts of one output."""
    first, *rest = shlex.split(command)
    return subprocess.run(
        [sys.executable, "-m", MODULES[first], *rest, *(["--help"] if for_help else [])],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def words(text: str) -> list[str]:
    """Without the line breaks and the `-o FILE, --output FILE`, which argparse writes differently since Python 3.13."""
    return re.sub(r"(?m)^(\s+-\w) \S+, --", r"\1, --", text).split()


if __name__ == "__main__":
    sys.exit(main())
