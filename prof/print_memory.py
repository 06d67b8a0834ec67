"""The command pyprof memory: what a run's memory holds at its peak, and what checkpointing would change."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pyprof.command.argument_types import number, whole_number
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.parser import Parser, add_common, add_forms

if TYPE_CHECKING:
    from pyprof.prof.load import LoadedMemory
    from pyprof.prof.memory.memory_numbers import DeviceMemory

TOP = 10


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof memory",
        description="Memory over a run: the peak, what is in use then by category, layer and line, the activations "
        "that each layer saves, and what checkpointing them would free and cost. Reads the traces of `pyprof run "
        "--memory` and torch.profiler (profile_memory=True), memory snapshots of PyTorch, nsys exports "
        "(--cuda-memory-usage=true) and net.pyprof.",
    )
    parser.add_argument("file", help="net.json, snapshot.pickle, net.sqlite or net.pyprof, the first three also as .gz")
    parser.add_argument("--top", metavar="N", type=whole_number(), default=TOP, help=f"rows per table (default: {TOP})")
    parser.add_argument(
        "--checkpoint",
        metavar="LAYERS",
        help='predict only the checkpointing of these layers, as the table names them: "GPT:h.*"',
    )
    step = "what a step takes without a profiler, where it was measured: it sets the host's pace"
    parser.add_argument("--step-ms", metavar="MS", type=number(1e-3, 1e9, "a time in ms"), help=step)
    forms = add_forms(parser.add_argument_group("form"), 40, "characters per line; figures in tables are never cut")
    forms.add_argument("--csv", action="store_true", help="the events instead: one line per allocation or free")
    output = "write here, not to standard output"
    parser.add_argument("-o", "--output", metavar="FILE", help=output)
    add_common(parser, writes="file")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof memory", build_parser, _run, argv)


def _run(args: argparse.Namespace) -> Done:
    from pyprof.command.progress import progress
    from pyprof.files import check_output, open_output
    from pyprof.prof.load import load_memory

    check_output(args.output, args.force)
    with progress(2, not args.quiet) as say:
        loaded = load_memory(Path(args.file), say, host=not args.csv)
    if args.csv:
        from pyprof.prof.table.write_memory_csv import write_memory_csv

        with open_output(args.output, args.force) as out:
            write_memory_csv(loaded.memory, out)
        return Done(warned(loaded.warnings))
    return _describe(args, loaded)


def _describe(args: argparse.Namespace, loaded: LoadedMemory) -> Done:
    from pyprof.command.envelope import write_answer
    from pyprof.command.terminal_text import output_width
    from pyprof.errors import PyprofError
    from pyprof.files import open_output
    from pyprof.prof.changes.checkpointing_times import with_added_times
    from pyprof.prof.memory.memory_numbers import memory_numbers
    from pyprof.prof.summary.memory_document import memory_document

    devices = memory_numbers(loaded.memory, loaded.kernels, args.checkpoint)
    devices = with_added_times(devices, loaded, None if args.step_ms is None else args.step_ms * 1e6)
    if args.checkpoint and not any(device.checkpointing for device in devices):
        wanted = f"--checkpoint {args.checkpoint}: expected layers that run forward and backward in a step"
        raise PyprofError(f"{args.file}: {wanted}, found none of that name (pyprof memory lists them)")
    if args.json:
        document = memory_document(devices)
        write_answer(
            "memory", document, input=[loaded.input], warnings=loaded.warnings, output=args.output, force=args.force
        )
        return Done(warned(loaded.warnings))
    width, terminal = output_width(args.output, args.width)
    with open_output(args.output, args.force) as out:
        write_memory(devices, out, width, terminal, args.top)
    return Done(warned(loaded.warnings))


def write_memory(
    devices: Sequence[DeviceMemory], out: BinaryIO, width: int, terminal: bool = False, top: int = TOP
) -> None:
    """Write the sentences, and the tables of each device that has its own blocks, in lines of at most ``width``."""
    from pyprof.command.terminal_text import page, prose
    from pyprof.prof.summary.memory_document import all_sentences
    from pyprof.prof.summary.memory_tables import memory_tables, size
    from pyprof.prof.summary.terminal import print_table

    with page(out, width, terminal) as console:
        for sentence in all_sentences(list(devices)):
            prose(console, f"• {sentence}", "", hang=2)
        for device in devices:
            if len(devices) > 1:
                console.print()
                prose(console, f"{_title(device)}: {device.events:,} events, at most {size(device.peak_bytes)}", "bold")
            for table in memory_tables(device, top):
                print_table(console, table, fitted=True)


def _title(device: DeviceMemory) -> str:
    numbers = (("rank", device.rank), ("process", device.pid), ("device", device.device))
    where = ", ".join(f"{name} {value}" for name, value in numbers if value is not None)
    what = "blocks of PyTorch's allocator" if device.level == "allocator" else "memory of the driver"
    return f"{device.kind}, {where}, {what}"
