"""The command pyprof: one table of subcommands, each imported only when it is called."""

import importlib
import sys
from typing import NamedTuple

from pyprof._version import __version__


class Command(NamedTuple):
    """A subcommand; `module` has a `main(argv: list[str] | None) -> int`."""

    name: str
    module: str
    does: str


COMMANDS = (
    Command("run", "pyprof.capture.run", "run a script under the embedded collector (torch.profiler)"),
    Command("ncu", "pyprof.ncu.cli", "measure the hardware's counters of a program's kernels by Nsight Compute"),
    Command("parse", "pyprof.parse.cli", "profiler file to kernel table: the command parse.py"),
    Command("prof", "pyprof.prof.cli", "kernel table to FLOPs, bytes and limits: the command prof.py"),
    Command(
        "memory", "pyprof.prof.print_memory", "memory: the peak, what is in use then, what checkpointing would change"
    ),
    Command("ranks", "pyprof.prof.job.cli", "a job's captures: which rank the others wait for, and why"),
    Command("stats", "pyprof.parse.stats.cli", "the tables of nsys stats, of any profiler's file"),
    Command("scrub", "pyprof.parse.scrub.cli", "a copy of a capture without private data of its machine and user"),
    Command("report", "pyprof.prof.report.cli", "kernel table or profiler file to one web page"),
    Command("perfetto", "pyprof.prof.perfetto.cli", "kernel table or profiler file to a trace for ui.perfetto.dev"),
    Command("plot", "pyprof.prof.plot.cli", "a figure of a capture as PNG, SVG or PDF: roofline, layers, timeline"),
    Command("replay", "pyprof.prof.replay.cli", "simulate a run from its parts: idle time, the critical path"),
    Command("plan", "pyprof.prof.planning.cli", "which changes to make, and what the step takes after each"),
    Command("try", "pyprof.variants.cli", "run a script once per change applied from outside, and time its steps"),
    Command("diff", "pyprof.prof.diff.cli", "two captures: what got faster or slower, and why; a gate for CI"),
    Command("trend", "pyprof.prof.diff.trend_cli", "one program's step over many captures: which one changed it"),
    Command("peaks", "pyprof.benchmark.peaks", "measure what this machine's GPU (or CPU) really reaches"),
    Command("bench", "pyprof.benchmark.bench_command", "time one call, or the heaviest calls of a capture, alone"),
    Command("mcp", "pyprof.mcp.cli", "answer coding agents' questions about captures (Model Context Protocol)"),
    Command("completion", "pyprof.completion", "shell completion for bash, zsh and fish"),
    Command("schema", "pyprof.command.schemas", "the JSON Schemas of what --json prints"),
    Command("demo", "pyprof.demo", "run, parse, prof and report on one training step of LeNet"),
)
USAGE = "usage: pyprof [-h] [--version] COMMAND ..."


def main(argv: list[str] | None = None) -> int:
    first, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if first in ("-h", "--help"):
        return _say(help_text())
    if first == "--version":
        return _say(f"pyprof {__version__}")
    for command in COMMANDS:
        if command.name == first:
            return _run(command, rest)
    complaint = _complaint(first)
    if "--json" in (first, *rest):
        from pyprof.command.envelope import usage_error

        usage_error("pyprof", complaint)
    print(f"{USAGE}\npyprof: {complaint}", file=sys.stderr)
    return 2


def _run(command: Command, rest: list[str]) -> int:
    from pyprof.errors import PyprofError, ScriptInterrupted, packages

    try:
        with packages():
            module = importlib.import_module(command.module)
        return int(module.main(rest))
    except PyprofError as error:  # a package that the module needs is not installed
        from pyprof.command.envelope import fail

        return fail(f"pyprof {command.name}", error, "--json" in rest)
    except ScriptInterrupted:
        sys.excepthook = lambda *_: None  # the script's traceback has been printed
        raise KeyboardInterrupt from None  # for this class itself, and for no other, Python ends the process by SIGINT
    except KeyboardInterrupt:
        from pyprof.files import tell

        tell(f"pyprof {command.name}: interrupted")
        return 130


def _say(text: str) -> int:
    try:
        print(text, flush=True)
    except OSError as error:
        from pyprof.files import drop_standard_output, tell

        drop_standard_output()
        if not isinstance(error, BrokenPipeError):  # the reader, such as `| head`, has stopped reading
            tell(f"pyprof: standard output: cannot be written: {error.strerror or error}")
            return 1
    return 0


def help_text() -> str:
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {command.name:{width}}  {command.does}" for command in COMMANDS]
    return "\n".join([USAGE, "", "commands:", *lines, "", "`pyprof COMMAND --help` lists a command's options."])


def _complaint(word: str) -> str:
    names = ", ".join(command.name for command in COMMANDS)
    if not word:
        return f"no command given (the commands are {names}; pyprof --help says what each does)"
    return f"{'no option' if word.startswith('-') else 'no command'} {word} (the commands are {names})"
