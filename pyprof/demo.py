"""The command pyprof demo: capture, parse and annotate one training step of examples/lenet.py.

Each stage is its own process, started as a user would start it, and each result is a file that stays.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from pyprof.command.envelope import Parser, add_json, envelope, fail, write_envelope
from pyprof.command.json_schema import Schema, listing, record, text
from pyprof.errors import PyprofError

HERE = Path(__file__).resolve().parent
SHOWN = "idx,dir,layer,op,kernel,params,sil,tc,flops,bytes"  # what fits a terminal; the CSV has every column


def build_parser() -> Parser:
    parser = Parser(prog="pyprof demo", description="Capture, parse and annotate one training step of LeNet.")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        type=Path,
        default=Path("build/demo"),
        help="net.json.gz, net.dict and net.csv go here, over those of the last demo (default: build/demo)",
    )
    add_json(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    try:
        script = example("lenet.py")
        args.output.mkdir(parents=True, exist_ok=True)
        capture, table, csv = (args.output / name for name in ("net.json.gz", "net.dict", "net.csv"))
        for old in (capture, table, csv):
            old.unlink(missing_ok=True)
        run = ["run", "-o", str(capture), str(script)]
        done = [step(*run, aside=args.json), step("parse", str(capture), into=table)]
        done.append(step("prof", "--csv", "-c", "all", str(table), into=csv))
        if args.json:
            _answer(capture, table, csv, done)
            return 0
        step("prof", "-w", str(terminal_width()), "-c", SHOWN, str(table))
    except (OSError, StepFailed, PyprofError) as error:
        return fail("pyprof demo", error if isinstance(error, PyprofError) else PyprofError(str(error)), args.json)
    print(f"\nThe kernel table is {table}, the annotated one {csv}.", file=sys.stderr)
    return 0


def _answer(capture: Path, table: Path, csv: Path, commands: list[str]) -> None:
    from pyprof.files import open_output

    own = {"output": {"capture": capture, "table": table, "csv": csv}, "commands": commands}
    with open_output(None) as out:
        write_envelope(envelope("demo", own), out)


def _schema() -> Schema:
    files = {
        "capture": text("torch.profiler's trace"),
        "table": text("the kernel table, net.dict"),
        "csv": text("the annotated table, every column"),
    }
    commands = listing(text("as a shell takes it"), "what was run, one after the other")
    return record({"output": record(files, "the files made"), "commands": commands}, "demo")


SCHEMAS = {"demo": _schema}


class StepFailed(Exception):
    """A stage did not exit with 0; it has said why itself."""


def example(name: str) -> Path:
    """The script as installed, or the checkout's."""
    for folder in (HERE, HERE.parent):
        if (script := folder / "examples" / name).is_file():
            return short(script)
    raise FileNotFoundError(f"examples/{name} is not beside {HERE}: install torch-pyprof again")


def short(path: Path) -> Path:
    """Relative to the working directory where it lies below it, so that the commands shown can be copied."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def terminal_width() -> int:
    """Wide enough for a table where the output is a file or a pipe."""
    return os.get_terminal_size().columns if sys.stdout.isatty() else 150


def step(*words: str, into: Path | None = None, aside: bool = False) -> str:
    """Run `pyprof WORDS`; what it prints goes to `into`, moved there only when it is whole. The command, as shown.

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
