"""The command pyprof demo: capture, parse, annotate and report one training step of examples/lenet.py.

Each stage is a process of its own, started as a user would start it, and each result is a file that stays. The last
one prints the summary of the capture.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyprof.command.envelope import Parser, add_json, envelope, fail, write_envelope
from pyprof.command.json_schema import Schema, listing, record, text
from pyprof.errors import PyprofError

HERE = Path(__file__).resolve().parent
FILES = {  # of --json and the folder: key, name
    "capture": "net.json.gz",
    "table": "net.dict",
    "csv": "net.csv",
    "report": "net.html",
}


def build_parser() -> Parser:
    parser = Parser(prog="pyprof demo", description="Capture, parse, annotate and report one training step of LeNet.")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        type=Path,
        default=Path("build/demo"),
        help="net.json.gz, net.dict, net.csv and net.html go here, over those of the last demo (default: build/demo)",
    )
    add_json(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        files = {key: args.output / name for key, name in FILES.items()}
        commands = make(files, args.json)
        if args.json:
            _answer(files, commands)
            return 0
        run_step("prof", "--summary", str(files["capture"]))
    except (OSError, StepFailed, PyprofError) as error:
        return fail("pyprof demo", error if isinstance(error, PyprofError) else PyprofError(str(error)), args.json)
    print(
        f"\nThe kernel table is {files['table']}, the annotated one {files['csv']}.\n"
        f"The page is {files['report']}: open it in a browser.",
        file=sys.stderr,
    )
    return 0


def make(files: Mapping[str, Path], aside: bool) -> list[str]:
    """Make the files anew. Return the commands, as shown. ``aside``: what they print goes to standard error."""
    script = example("lenet.py")
    for old in files.values():
        old.unlink(missing_ok=True)
    capture, table = str(files["capture"]), str(files["table"])
    return [
        run_step("run", "-o", capture, str(script), aside=aside),
        run_step("parse", capture, into=files["table"]),
        run_step("prof", "--csv", "-c", "all", table, into=files["csv"]),
        run_step("report", "-o", str(files["report"]), capture, aside=aside),
    ]


def _answer(files: Mapping[str, Path], commands: list[str]) -> None:
    from pyprof.files import open_output

    with open_output(None) as out:
        write_envelope(envelope("demo", {"output": files, "commands": commands}), out)


def _schema() -> Schema:
    files = {
        "capture": text("torch.profiler's trace"),
        "table": text("the kernel table, net.dict"),
        "csv": text("the annotated table, every column"),
        "report": text("the web page"),
    }
    commands = listing(text("as a shell takes it"), "what was run, one after the other")
    return record({"output": record(files, "the files made"), "commands": commands}, "demo")


SCHEMAS = {"demo": _schema}


class StepFailed(Exception):
    """A stage did not exit with 0; it has printed why."""


def example(name: str) -> Path:
    """The example script: as installed, or the checkout's."""
    for folder in (HERE, HERE.parent):
        if (script := folder / "examples" / name).is_file():
            return short(script)
    raise FileNotFoundError(f"examples/{name} is not beside {HERE}: install torch-pyprof again")


def short(path: Path) -> Path:
    """The path relative to the working directory if it lies below, so that the commands shown can be copied."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def run_step(*words: str, into: Path | None = None, aside: bool = False) -> str:
    """Run `pyprof WORDS` and return the command as shown. Raise StepFailed if it does not exit with 0.

    ``into``: the file for what it prints, which appears only when it is whole.
    ``aside``: what it prints goes to standard error.
    """
    shown = shlex.join(("pyprof", *words)) + (f" > {shlex.quote(str(into))}" if into else "")
    print(f"$ {shown}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pyprof", *words]
    if into is None:
        code = subprocess.run(command, check=False, stdout=2 if aside else None).returncode
    else:
        part = into.with_name(f"{into.name}.part")
        try:
            with part.open("wb") as out:
                code = subprocess.run(command, check=False, stdout=out).returncode
            if code == 0:
                part.replace(into)
        finally:
            part.unlink(missing_ok=True)
    if code != 0:
        raise StepFailed(f"`{shown}` exited with {code}")
    return shown
