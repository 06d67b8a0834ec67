"""The command pyprof scrub: a copy of a capture that can be shown to others."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.errors import InputError, UsageError
from pyprof.files import check_output, is_standard, open_input, open_output

if TYPE_CHECKING:
    from pyprof.parse.scrub.private_text import Cleaner

PART = 1 << 24  # bytes searched for names at a time
REPORTS = (".nsys-rep", ".qdrep", ".ncu-rep")


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof scrub",
        description="Write a copy of a capture without private data of its machine and user: environment, folders, "
        "hosts, users, command lines, addresses, names of processes, serial numbers. All commands find the same "
        "numbers in it. At the end the copy is searched for what was removed, and what remains is listed.",
        epilog="Names of kernels, layers, ranges and source files stay, and what the program was: look at them before "
        "you share a capture. A path becomes its last part; of a second folder's net.py, 2/net.py remains. The copy "
        "has the input's form; a folder of Parquet files becomes a database.",
    )
    parser.add_argument(
        "file",
        help="net.sqlite of nsys, nvprof or rocprofv3, net.json of torch.profiler or rocprofv3, snapshot.pickle, a "
        "table of ncu --csv, net.dict, net.parquet or net.pyprof; the files also as .gz",
    )
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the copy; a name in .gz is compressed")
    parser.add_argument(
        "--project",
        metavar="FOLDER",
        help="keep paths of source files relative to this folder, on the machine of the capture (default: their names)",
    )
    add_json(parser)
    add_common(parser, writes="file")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof scrub", build_parser, _run, argv)


def _run(args: argparse.Namespace) -> Done:
    from pyprof.parse.scrub.json_document import scrubbed
    from pyprof.parse.scrub.leftovers import listed
    from pyprof.parse.scrub.private_text import Cleaner
    from pyprof.table.container import is_container

    file, cleaner = Path(args.file), Cleaner(args.project)
    if is_standard(args.file) or is_standard(args.output):
        raise UsageError("a file is read more than once: give names of files, not -")
    if file.name.endswith(REPORTS):
        raise InputError(
            file, "expected an export, found a report (nsys export --type sqlite, or ncu --csv --page raw)"
        )
    if is_container(file):
        left = list[str]()
        found = _container(file, cleaner, args)
    else:
        check_output(args.output, args.force)
        if file.is_file():
            _learn(file, cleaner)
        left, found = _file(file, cleaner, args)
    if args.json:
        write_answer("scrub", scrubbed(args.output, cleaner.removed, left, found), input=[args.file])
    tables = f"{', '.join(left[:8])}{f' and {len(left) - 8} more' if len(left) > 8 else ''}"
    removed = ", ".join(f"{count:,} × {kind}" for kind, count in cleaner.removed.most_common())
    return Done([
        *([f"left out {len(left)} tables that pyprof does not read: {tables}"] if left else []),
        f"removed from what is kept: {removed or 'nothing'}",
        *(listed(found) or ["searched the copy: nothing private remains, as far as its form or the capture tells"]),
    ])  # fmt: skip


def _learn(file: Path, cleaner: Cleaner) -> None:
    """Learn the words by which the file's bytes name its user or host."""
    with open_input(str(file)) as source:
        while part := source.read(PART):
            cleaner.learn_from(part)


def _container(file: Path, cleaner: Cleaner, args: argparse.Namespace) -> Counter[str]:
    from pyprof.parse.scrub.leftovers import in_texts
    from pyprof.parse.scrub.scrub_table import scrub_container, texts_of
    from pyprof.table.container import check_container_output, read_container, write_container

    if not str(args.output).lower().endswith(".pyprof"):
        raise UsageError("a container's copy is a container: give -o a name that ends in .pyprof")
    check_container_output(Path(args.output), args.force)
    whole = read_container(file)
    cleaner.learn_from("\0".join(texts_of(whole)).encode("utf-8", "replace"))
    container = scrub_container(whole, cleaner)
    found = in_texts(texts_of(container), cleaner.words)
    write_container(container, Path(args.output), args.force)
    return found


def _file(file: Path, cleaner: Cleaner, args: argparse.Namespace) -> tuple[list[str], Counter[str]]:
    """Write the copy of a file, once it has been searched. Returns the tables left out, and what the search found."""
    from pyprof.parse.scrub.leftovers import in_bytes, in_texts
    from pyprof.parse.scrub.write_copy import copied

    with copied(file, cleaner) as (copy, texts, left):
        found = in_bytes(copy, cleaner.words) if texts is None else in_texts(texts, cleaner.words)
        copy.seek(0)
        with open_output(args.output, args.force) as out:
            shutil.copyfileobj(copy, out, PART)
    return left, found
