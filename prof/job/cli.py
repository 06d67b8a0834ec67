"""The command pyprof ranks: the captures of a job's ranks as one dataset, and which rank the others wait for."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.command.argument_types import whole_number
from pyprof.command.envelope import Input, write_answer
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.errors import PyprofError, UsageError

if TYPE_CHECKING:
    from pyprof.prof.job.job_folder import Job
    from pyprof.prof.job.partition import Partition

TOP = 10
_MEMORY = re.compile(r"[1-9]\d{0,9}(\.\d+)?\s?([KMGT]i?)?B?", re.IGNORECASE)


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof ranks",
        description="Read the captures of all ranks of a job, side by side on Dask workers, into one folder, and say "
        "which rank the others wait for, for how long per step, and why. An interrupted run continues where it ended: "
        "files whose content has been read are not read again.",
        epilog="`pyprof ranks captures/*.json.gz -o job/` reads a job, and `pyprof ranks job/` prints the same again. "
        "The workers are processes of this machine, or those of --scheduler, which must see the same files and folder.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="file",
        help="captures, patterns, folders, URLs that fsspec knows (s3://..), or a job's folder, which is then printed",
    )
    parser.add_argument("-o", "--output", metavar="FOLDER", help="the job's folder, made or completed")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask scheduler: tcp://10.0.0.1:8786")
    parser.add_argument(
        "--workers",
        metavar="N",
        type=whole_number(),
        help="processes on this machine (default: one per core); 1: this process alone, without Dask",
    )
    parser.add_argument("--memory", metavar="SIZE", help="what one of them may use, such as 4GiB (default: its share)")
    parser.add_argument("--top", metavar="N", type=whole_number(), default=TOP, help=f"rows per table (default: {TOP})")
    add_json(parser)
    add_common(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof ranks", build_parser, _run, argv, inputs=("files",))


def _check(args: argparse.Namespace) -> None:
    if args.scheduler and (args.workers or args.memory):
        raise UsageError("--workers and --memory are for processes of this machine: leave them out with --scheduler")
    if args.memory and not _MEMORY.fullmatch(args.memory):
        raise UsageError(f"--memory {args.memory}: expected a size such as 4GiB or 500MB")


def _run(args: argparse.Namespace) -> Done:
    from pyprof.command.terminal_text import output_width
    from pyprof.files import open_output
    from pyprof.prof.job import is_job
    from pyprof.prof.job.job_folder import read_job
    from pyprof.prof.job.json_document import job_document
    from pyprof.prof.job.print_job import job_lines

    _check(args)
    of_path: list[str] = []
    if len(args.files) == 1 and is_job(Path(args.files[0])) and not args.output:
        job, of_path = read_job(Path(args.files[0])), _without_effect(args)
    elif args.output:
        job, of_path = _made(args)
    else:
        raise UsageError("give the job's folder with -o: pyprof ranks captures/*.json.gz -o job/")
    document = job_document(job)
    warnings = [*(f"{each.file}: {each.error}" for each in job.failed), *of_path]
    if args.json:
        inputs = [Input(each.file, each.profiler or None) for each in job.files]
        write_answer("ranks", document, input=inputs, warnings=warnings)
        return Done()
    width, _ = output_width(None, None)
    with open_output(None) as out:
        out.write("".join(f"{line}\n" for line in job_lines(document, args.top, width)).encode())
    return Done([*warned([*_of_files(job), *of_path]), *_closing(args, job)])


def _without_effect(args: argparse.Namespace) -> list[str]:
    """A warning of options for workers where no file is read."""
    options = {"--workers": args.workers, "--memory": args.memory, "--scheduler": args.scheduler}
    given = [option for option, value in options.items() if value]
    why = f"without effect: the captures of {args.files[0]} have been read, and its results are printed"
    return [f"{', '.join(given)}: {why}"] if given else []


def _of_files(job: Job) -> list[str]:
    """The readers' warnings, each once, with the number of files that have it."""
    files = Counter(text for each in job.made for text in each.warnings)
    return [text if count == 1 else f"{text} ({count} files)" for text, count in files.items()]


def _closing(args: argparse.Namespace, job: Job) -> list[str]:
    if not args.output:
        return []
    reused = sum(each.reused for each in job.made)
    again = f", {reused} of them by an earlier run" if reused else ""
    return [f"wrote {args.output}: {len(job.made)} of {len(job.files)} files{again}"]


def _made(args: argparse.Namespace) -> tuple[Job, list[str]]:
    """The job, written, and warnings of its critical path."""
    from pyprof.prof.job.job_folder import Job, prepare, write_job
    from pyprof.prof.job.joint_ranks import path_of_job
    from pyprof.prof.job.sources import is_url, sources
    from pyprof.prof.job.workers import merged_tables, partitions, workers

    files = [name if is_url(name) else str(Path(name).absolute()) for name in sources(args.files)]
    folder = Path(args.output)
    prepare(folder)
    with _progress(len(files), not args.quiet) as done, workers(args.scheduler, args.workers, args.memory) as pool:
        found = _distinct(partitions(pool, files, str(folder.absolute()), done))
        made = [each for each in found if not each.error]
        if not made:
            raise PyprofError("; ".join(f"{each.file}: {each.error}" for each in found[:3]))
        job = Job(folder, found, *merged_tables(pool, str(folder.absolute()), made))
        path, warnings = path_of_job(pool, folder.absolute(), made, job.ranks)
    job = replace(job, path=path)
    write_job(job)
    return job, warnings


def _distinct(found: list[Partition]) -> list[Partition]:
    """The partitions; a rank that an earlier file has too makes the later file an error."""
    from pyprof.prof.job.partition import failed

    seen: dict[int, str] = {}
    kept = []
    for each in found:
        twice = [rank for rank in each.ranks if rank in seen]
        if twice:
            each = failed(each.file, f"expected another rank than {seen[twice[0]]}, found rank {twice[0]} again")
        seen.update((rank, each.file) for rank in each.ranks)
        kept.append(each)
    return kept


@contextmanager
def _progress(files: int, wanted: bool) -> Iterator[Callable[[Partition], None]]:
    """A progress bar on a terminal: a step per file."""
    from pyprof.command.progress import progress

    with progress(files + 1, wanted) as say:
        say("reading")
        yield lambda partition: say(partition.file)
