"""The command pyprof demo: capture, parse, annotate and report one training step of examples/lenet.py.

Each stage runs in its own process, started as a user would start it, and its result is a file that is kept. The last
stage prints the summary of the capture.
"""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command
from pyprof.command.json_schema import Record, doc
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.errors import PyprofError

HERE = Path(__file__).resolve().parent
# The key of each file in --json, and its name in the folder.
FILES = {"capture": "net.json.gz", "table": "net.dict", "csv": "net.csv", "report": "net.html"}


class FilesMade(Record):
    capture: Annotated[str, doc("torch.profiler's trace")]
    table: Annotated[str, doc("the kernel table, net.dict")]
    csv: Annotated[str, doc("the annotated table, every column")]
    report: Annotated[str, doc("the web page")]


class DemoFiles(Record):
    """The files that the demo made, and the commands that made them."""

    output: Annotated[FilesMade, doc("the files made")]
    commands: Annotated[list[str], doc("what was run, one after the other, as a shell takes it")]


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
    add_common(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof demo", build_parser, _run, argv, inputs=(), runs_code=True)


def _run(args: argparse.Namespace) -> Done:
    files = {key: args.output / name for key, name in FILES.items()}
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        commands = make(files, aside=args.json, quiet=args.quiet)
        if not args.json:
            run_step("prof", "--summary", str(files["capture"]), quiet=args.quiet)
    except OSError as error:
        raise PyprofError(str(error)) from error
    if args.json:
        output = FilesMade(**{key: str(file) for key, file in files.items()})
        write_answer("demo", DemoFiles(output=output, commands=commands))
    tables = f"the kernel table is {files['table']}, the annotated one {files['csv']}"
    return Done([tables, f"the page is {files['report']}: open it in a browser"])


def make(files: Mapping[str, Path], *, aside: bool, quiet: bool) -> list[str]:
    """Make the files again. Return the commands as shown. ``aside``: send their output to standard error."""
    script = example("lenet.py")
    for old in files.values():
        old.unlink(missing_ok=True)
    capture, table = str(files["capture"]), str(files["table"])
    return [
        run_step("run", "-o", capture, str(script), aside=aside, quiet=quiet),
        run_step("parse", capture, into=files["table"], quiet=quiet),
        run_step("prof", "--csv", "-c", "all", table, into=files["csv"], quiet=quiet),
        run_step("report", "-o", str(files["report"]), capture, aside=aside, quiet=quiet),
    ]


def example(name: str) -> Path:
    """The path of an example script, in the installed package or in the checkout.

    It is relative to the working directory if it lies below, so that the commands shown can be copied.
    """
    for folder in (HERE, HERE.parent):
        if (script := folder / "examples" / name).is_file():
            return script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    raise FileNotFoundError(f"examples/{name} is not beside {HERE}: install torch-pyprof again")


def run_step(*words: str, into: Path | None = None, aside: bool = False, quiet: bool = False) -> str:
    """Run `pyprof WORDS` and return the command as shown. Raise PyprofError if it does not exit with 0.

    ``into``: the file for the command's output, which appears only when it is complete.
    ``aside``: the output goes to standard error. ``quiet``: print only errors.
    """
    if quiet:
        words = (words[0], "-q", *words[1:])
    shown = shlex.join(("pyprof", *words)) + (f" > {shlex.quote(str(into))}" if into else "")
    if not quiet:
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
    if code != 0:  # the stage itself has printed the reason
        raise PyprofError(f"`{shown}` exited with {code}")
    return shown
